package extentlogtest

import (
	"context"
	"math/rand/v2"

	"github.com/columbamq/columba/core"
)

// verify: a sound replica is found sound in each state of its life, and nothing of it changes.
func verify(f *fixture) {
	e, w := f.opened(0)
	for range 30 {
		_, err := Append(f, e.ID, w.Batch(3, 20_000), 0)
		must(f.t, err)
	}
	f.sound(e.ID)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	f.sound(e.ID)
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 1))
	f.sound(e.ID)
	f.reopen()
	f.sound(e.ID)
	empty := Extent()
	_, err = f.Fence(empty, 0)
	must(f.t, err)
	f.sound(empty.ID)
	_, err = f.Verify(context.Background(), Extent().ID)
	wantCode(f.t, err, core.CodeNotFound)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = f.Verify(ended, e.ID)
	wantCode(f.t, err, core.CodeDeadline)
}

func verifyTimers(f *fixture) {
	e, w := TimerExtent(), new(Writer)
	must(f.t, f.Open(e))
	f.timers(e.ID, w, 40, rand.New(rand.NewPCG(1, 2)))
	f.sound(e.ID)
	f.reopen()
	f.sound(e.ID)
}

func (f *fixture) sound(id core.ExtentID) {
	f.t.Helper()
	before := f.state(id)
	v, err := f.Verify(context.Background(), id)
	must(f.t, err)
	if !v.Sound || v.Lifted || v.Why != "" || v.Bytes < before.Bytes {
		f.t.Fatalf("verify: got %+v, want sound after %d bytes", v, before.Bytes)
	}
	if after := f.state(id); after.Last != before.Last || after.Damaged {
		f.t.Fatalf("verify changed %+v to %+v", before, after)
	}
}
