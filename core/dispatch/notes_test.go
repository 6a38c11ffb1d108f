package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestShare_HoldsWhatConsumersLeave: metadata and texts of nacks are memory, too, until the message is gone.
func TestShare_HoldsWhatConsumersLeave(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 10}, 10)
	take(g, 10, start)
	before := s.Held()
	if err := s.Replace(1, 1, make([]byte, 1000), start); err != nil {
		t.Fatal(err)
	}
	if err := s.Nack(1, 1, 0, []byte(strings.Repeat("x", 200)), 0, start); err != nil {
		t.Fatal(err)
	}
	if err := s.Reject(2, 1, []byte(strings.Repeat("x", 300)), start); err != nil {
		t.Fatal(err)
	}
	if n := s.Held() - before; n != 1500 || s.NoteBytes() != n {
		t.Errorf("it holds %d bytes more, %d noted; want 1500", n, s.NoteBytes())
	}
	save(s, start)
	for _, d := range g.TakeTransfers(DeadLetterQueue, 1, nil) {
		s.Transferred(d.Seq, start)
	}
	for seq := range core.Seq(10) {
		s.AckProven(seq+1, start)
	}
	if s.Held() != 0 || s.NoteBytes() != 0 {
		t.Errorf("when all is done it holds %d bytes, %d noted", s.Held(), s.NoteBytes())
	}
}

// TestShare_NotedIsBounded: while the retry queue takes nothing, a share keeps so many metadata, and refuses more.
// Metadata of the same size may replace others.
func TestShare_NotedIsBounded(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: time.Hour}, MaxOutstanding)
	take(g, MaxOutstanding, start)
	metadata := make([]byte, core.MaxMetadata)
	full := core.Seq(MaxNoteBytes / core.MaxMetadata)
	for seq := core.Seq(1); seq <= full; seq++ {
		if err := s.Replace(seq, 1, metadata, start); err != nil {
			t.Fatalf("message %d: %v", seq, err)
		}
	}
	if err := s.Replace(full+1, 1, metadata, start); core.CodeOf(err) != core.CodeThrottled {
		t.Errorf("above the bound: %v, want %s", err, core.CodeThrottled)
	}
	if err := s.Replace(full, 1, metadata, start); err != nil {
		t.Errorf("in place of as much: %v", err)
	}
	if s.NoteBytes() != MaxNoteBytes {
		t.Errorf("%d bytes are noted, want %d", s.NoteBytes(), MaxNoteBytes)
	}
}

// TestShare_HoldsSparseChunks: messages that stay one by one, each far from the next, keep a chunk each.
func TestShare_HoldsSparseChunks(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: time.Hour}, 64*100)
	take(g, 64*100, start)
	for i := range core.Seq(100) {
		s.Ack(64*i+1, 63, 1, start, nil)
	}
	if least := 100 * chunkLen * 16; s.Held() < least {
		t.Errorf("it holds %d bytes, want at least %d", s.Held(), least)
	}
}
