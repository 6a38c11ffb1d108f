package dispatch

import (
	"math"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
)

// TestShare_SettlesTheHighestSeqs: a consumer may name any seq. Those behind the last message are refused, up to the highest there is.
func TestShare_SettlesTheHighestSeqs(t *testing.T) {
	const base = math.MaxUint64 - 100
	_, s := newShare(t, core.GroupSpec{}, 1)
	want := []Refusal{{base, 100, core.CodeStale}}
	if diff := cmp.Diff(want, s.Ack(base, 100, 1, start, nil)); diff != "" {
		t.Errorf("acks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, s.Return(base, 100, 1, start, nil)); diff != "" {
		t.Errorf("returns (-want +got):\n%s", diff)
	}
}

// TestShare_ReturnSkipsWhatIsNotHere: a return of seqs that were never handed out costs about what an ack of them costs, which looks at 64 of them at
// a time.
func TestShare_ReturnSkipsWhatIsNotHere(t *testing.T) {
	_, s := newShare(t, core.GroupSpec{}, 1)
	took := func(settle func(base core.Seq)) time.Duration {
		least := time.Duration(math.MaxInt64)
		for range 5 {
			began := time.Now()
			for i := range core.Seq(50) {
				settle(1000 + i*MaxSettleRun)
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	var bad []Refusal
	acks := took(func(base core.Seq) { bad = s.Ack(base, MaxSettleRun, 1, start, bad[:0]) })
	returns := took(func(base core.Seq) { bad = s.Return(base, MaxSettleRun, 1, start, bad[:0]) })
	if diff := cmp.Diff([]Refusal{{1000 + 49*MaxSettleRun, MaxSettleRun, core.CodeStale}}, bad); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if returns > 8*acks {
		t.Errorf("returns took %s, acks of the same seqs %s", returns, acks)
	}
}
