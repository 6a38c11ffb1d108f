package lease

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core/dispatch"
)

// TestLease_EndsWithoutAWord steps the clock over the end of a lease.
func TestLease_EndsWithoutAWord(t *testing.T) {
	now := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return now.Add(d) }
	l := &Lease{base: now}
	if !l.renew(after(time.Second), after(dispatch.OwnerLease-1)) {
		t.Error("not renewed although it had just begun")
	}
	if l.renew(after(4*time.Second), after(4*time.Second)) || l.Holds(after(time.Second)) {
		t.Error("a lease that had ended was renewed")
	}
	if l.restore(after(5*time.Second), after(5*time.Second+dispatch.OwnerLease)) || l.Holds(after(5*time.Second)) {
		t.Error("restored from what was asked too long ago")
	}
	if !l.restore(after(8*time.Second), after(9*time.Second)) || !l.Holds(after(8*time.Second+dispatch.OwnerLease-1)) {
		t.Error("not restored")
	}
	if l.Holds(after(8*time.Second + dispatch.OwnerLease)) {
		t.Error("it is counted from the answer, not from the question")
	}
}

// BenchmarkLease_MayGive is what every pump asks.
func BenchmarkLease_MayGive(b *testing.B) {
	now := time.Now()
	l := &Lease{base: now}
	for b.Loop() {
		if !l.MayGive(now) {
			b.Fatal("it has ended")
		}
	}
}
