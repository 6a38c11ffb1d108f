package verify

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestCheck_ParkedCopies has a message stored twice, and both copies parked: each goes on with its own attempts.
func TestCheck_ParkedCopies(t *testing.T) {
	h := good()
	h.Published[1].At = at(100.5) // an answer was lost in the crash
	h.Received = slices.DeleteFunc(h.Received, func(r Received) bool { return r.Seq == 2 && r.Group == "h" })
	for i, d := range []struct {
		attempt int
		settled Settled
	}{{1, RetryQueued}, {1, RetryQueued}, {2, RetryQueued}, {2, Done}, {3, Done}} {
		h.Received = append(h.Received, delivery("h", 2, 120+float64(40*i)).change(func(r *Received) {
			if r.Receipt.Seq, r.Attempt, r.Settled = core.Seq(50+i), d.attempt, d.settled; d.attempt > 1 {
				r.Receipt = moved(r.Receipt.Seq)
			}
		}))
	}
	if r := Check(h, time.Second); !r.OK() {
		t.Errorf("findings:\n%s", r)
	}
}

// TestCheck_CopiesBesideADroppedOne: of two copies one is in the retry queue and one was dropped where it was. The next
// attempt at another place is of the first: the second may come again where it was.
func TestCheck_CopiesBesideADroppedOne(t *testing.T) {
	h := good()
	h.Published[1].At = at(100.5) // an answer was lost in the crash
	h.Received = slices.DeleteFunc(h.Received, func(r Received) bool { return r.Seq == 2 && r.Group == "h" })
	for i, d := range []struct {
		seq     core.Seq
		attempt int
		settled Settled
	}{{50, 1, RetryQueued}, {51, 1, RetryQueued}, {52, 2, RetryQueued}, {53, 2, Dropped}, {54, 3, Done}, {53, 3, Done}} {
		h.Received = append(h.Received, delivery("h", 2, 120+float64(40*i)).change(func(r *Received) {
			if r.Receipt.Seq, r.Attempt, r.Settled = d.seq, d.attempt, d.settled; d.attempt > 1 {
				r.Receipt = moved(r.Receipt.Seq)
			}
		}))
	}
	if r := Check(h, time.Second); !r.OK() {
		t.Errorf("findings:\n%s", r)
	}
}

// TestCheck_ParkedAndDeliveredOnce has an owner that took over deliver once more what was parked, to a consumer that
// gives it back: it goes on where it was parked. Without a crash that is another copy, which nobody stored.
func TestCheck_ParkedAndDeliveredOnce(t *testing.T) {
	for at, ok := range map[float64]bool{99: true, 20: false} {
		h := good()
		h.Received = slices.DeleteFunc(h.Received, func(r Received) bool { return r.Seq == 2 && r.Group == "h" })
		h.Received = append(h.Received,
			delivery("h", 2, at).change(func(r *Received) { r.Settled = RetryQueued }),
			delivery("h", 2, at+1).change(func(r *Received) { r.Settled = Back }),
			delivery("h", 2, at+40).change(func(r *Received) { r.Receipt, r.Attempt = moved(50), 2 }),
		)
		if r := Check(h, time.Second); r.OK() != ok {
			t.Errorf("parked at %g s:\n%s", at, r)
		}
	}
}
