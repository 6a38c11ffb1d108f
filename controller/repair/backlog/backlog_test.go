package backlog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
)

var errTry = errors.New("a store did not take it")

func id(n byte) core.ExtentID { return core.ExtentID{ID: core.ID{15: n}} }

func take(t *testing.T, b *Backlog, urgent bool, now time.Time, want core.ExtentID) {
	t.Helper()
	got, ok := b.Next(urgent, now, func(error) {})
	if want.ID.IsZero() == ok || got != want {
		t.Fatalf("next, urgent %t: %s %t, want %s", urgent, got, ok, want)
	}
}

var none core.ExtentID

func TestBacklog_UrgentOnesApart(t *testing.T) {
	b, now := New(), time.Now()
	b.Add(id(1), false)
	b.Add(id(2), true)
	b.Add(id(1), true) // moves
	b.Add(id(2), false)
	take(t, b, false, now, none)
	take(t, b, true, now, id(2))
	take(t, b, true, now, id(1))
	take(t, b, true, now, none)
	b.Add(id(1), true)
	take(t, b, true, now, none) // under way
	b.Ended(id(1), ErrNotUrgent, now)
	take(t, b, false, now, id(1))
	b.Ended(id(1), ErrUrgent, now)
	take(t, b, true, now, id(1))
}

func TestBacklog_SlowLookThatBecomesUrgent(t *testing.T) {
	b, now := New(), time.Now()
	var why error
	b.Add(id(1), false)
	if _, ok := b.Next(false, now, func(err error) { why = err }); !ok {
		t.Fatal("nothing to look at")
	}
	b.Below(id(1))
	if why != ErrUrgent {
		t.Errorf("the look was stopped with %v", why)
	}
}

func TestBacklog_PausesEndWhenAStoreComes(t *testing.T) {
	b, now := New(), time.Now()
	for pause := minRetry; pause <= 4*minRetry; pause *= 2 {
		b.Add(id(1), true)
		take(t, b, true, now, id(1))
		b.Ended(id(1), errTry, now)
		b.Add(id(1), true)
		take(t, b, true, now.Add(pause-1), none)
		now = now.Add(pause)
	}
	if !b.Failing(id(1)) {
		t.Error("three failures are not noted")
	}
	b.Add(id(1), true)
	take(t, b, true, now, id(1))
	b.Ended(id(1), errTry, now)
	b.Sweep()
	if !b.TakeSweep() || b.TakeSweep() {
		t.Error("a sweep is wanted once")
	}
	b.Add(id(1), true)
	take(t, b, true, now, id(1))
	if !b.Failing(id(1)) {
		t.Error("that it has failed is forgotten")
	}
	b.Sweep() // while it is looked at
	b.Ended(id(1), errTry, now)
	take(t, b, true, now, id(1))
	b.Ended(id(1), nil, now)
	if b.Failing(id(1)) {
		t.Error("failing after a success")
	}
}

func TestBacklog_LostUntilFound(t *testing.T) {
	b := New()
	if !b.Lost(id(2)) || b.Lost(id(2)) || !b.Lost(id(1)) {
		t.Error("what is news is wrong")
	}
	if got := b.AllLost(); len(got) != 2 || got[0] != id(1) {
		t.Errorf("lost: %v", got)
	}
	b.Found(id(1))
	b.Forget(func(core.ExtentID) bool { return false })
	if got := b.AllLost(); len(got) != 0 {
		t.Errorf("still lost: %v", got)
	}
}

func TestPace_SharesTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := NewPace(1000), time.Now()
		for range 4 {
			if err := p.Wait(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("four pieces of half a second each were through after %s", took)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errTry)
		defer cancel()
		if err := p.Wait(ctx, 1); err != errTry {
			t.Errorf("a wait that was given up ended with %v", err)
		}
	})
}
