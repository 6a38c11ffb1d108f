package outputhost

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/wire"
)

// TestWindow_AfterAnOversizeMessage: the debt of a message that was larger than the window is paid first.
func TestWindow_AfterAnOversizeMessage(t *testing.T) {
	const most = 32 << 20
	var w window
	w.grant(wire.Credit{Messages: 100, Bytes: 100_000}, most)
	w.spend(1, 300_000)
	w.grant(wire.Credit{Messages: 5, Bytes: 50_000}, most)
	if w != (window{104, -150_000}) {
		t.Errorf("window %+v, want 104 messages and -150,000 bytes", w)
	}
	w.grant(wire.Credit{Bytes: math.MaxUint64}, most)
	if w.bytes != most {
		t.Errorf("%d bytes, want the most there is", w.bytes)
	}
}

// TestWindow_IsWhatWasGranted draws grants and deliveries as a host makes them: within the window, or one message
// beyond its bytes.
func TestWindow_IsWhatWasGranted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 1<<30).Draw(t, "most")
		var w window
		messages, bytes := int64(0), float64(0) // the same, unbounded below and exact enough
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			switch {
			case rapid.Bool().Draw(t, "grant"):
				c := wire.Credit{Messages: rapid.Uint32().Draw(t, "messages"), Bytes: rapid.OneOf(rapid.Uint64Range(0, 1<<20), rapid.Uint64()).Draw(t, "bytes")}
				w.grant(c, most)
				messages = min(messages+int64(c.Messages), maxWindow)
				bytes = max(bytes, min(bytes+float64(c.Bytes), float64(most)))
			case rapid.IntRange(0, 9).Draw(t, "recall") == 0:
				if back := w.recall(); int64(back.Messages) != messages {
					t.Fatalf("%d messages were taken back, want %d", back.Messages, messages)
				}
				messages = 0
			case w.messages > 0 && w.bytes > 0:
				size := rapid.OneOf(rapid.IntRange(0, w.bytes), rapid.IntRange(0, 16<<20)).Draw(t, "size")
				w.spend(1, size)
				messages, bytes = messages-1, bytes-float64(size)
			}
			if int64(w.messages) != messages || float64(w.bytes) != bytes || w.bytes > most || w.messages < 0 {
				t.Fatalf("window %+v, want %d messages and %.0f bytes, at most %d", w, messages, bytes, most)
			}
		}
	})
}
