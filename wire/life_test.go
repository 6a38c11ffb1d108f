package wire

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// TestLives_Model: the last lives are kept, in their order, cut to their bounds, in a record that can be stored; other
// fields stay.
func TestLives_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		other := [][]byte{{9, 0, 2, 0, 7, 7}, {8, 0, 0, 0}}
		extra := slices.Clone(other[0])
		var want []Life
		for i := range rapid.IntRange(0, 2*MaxLives).Draw(t, "lives") {
			if i == 3 {
				extra = append(extra, other[1]...)
			}
			l := Life{
				Attempts: rapid.Uint16().Draw(t, "attempts"), Total: rapid.Uint16().Draw(t, "total"), DeadSince: rapid.Int64Range(0, 1000*MaxMillis).Draw(t, "since"),
				ReasonCode:   rapid.SliceOfN(rapid.Byte(), 0, MaxReasonCode+9).Draw(t, "code"),
				Reason:       rapid.SliceOfN(rapid.Byte(), 0, MaxLifeReason+9).Draw(t, "reason"),
				LastConsumer: rapid.SliceOfN(rapid.Byte(), 0, MaxConsumerName+9).Draw(t, "consumer"),
			}
			extra = AppendLife(extra, l)
			l.ReasonCode, l.Reason = l.ReasonCode[:min(len(l.ReasonCode), MaxReasonCode)], l.Reason[:min(len(l.Reason), MaxLifeReason)]
			l.LastConsumer = l.LastConsumer[:min(len(l.LastConsumer), MaxConsumerName)]
			want = append(want, l)
		}
		want = want[max(0, len(want)-MaxLives):]
		if diff := cmp.Diff(want, Lives(extra), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		if !bytes.HasPrefix(extra, other[0]) {
			t.Fatal("another field is gone")
		}
		b, err := AppendRecord(nil, &Record{Extra: extra, Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if _, err := DecodeRecord(b, &r); err != nil || !bytes.Equal(r.Extra, extra) {
			t.Fatalf("read back as %x, %v", r.Extra, err)
		}
	})
}

// FuzzLives: whatever a record has as extra, reading lives of it and adding one does not fail.
func FuzzLives(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendLife(nil, Life{Attempts: 3, DeadSince: 5, ReasonCode: []byte("nack"), Reason: []byte("no"), LastConsumer: []byte("c")}))
	f.Add([]byte{1, 0, 3, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, extra []byte) {
		before := Lives(extra)
		if !validExtra(extra) || len(before) > MaxLives {
			return
		}
		after := AppendLife(extra, Life{Attempts: 7})
		if got := Lives(after); len(got) == 0 || got[len(got)-1].Attempts != 7 || !validExtra(after) {
			t.Errorf("after one was added there are %+v, there were %+v", got, before)
		}
	})
}
