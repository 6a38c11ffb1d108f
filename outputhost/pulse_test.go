package outputhost

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPulse_DoubtsAfterAPause steps the clock over a pause.
func TestPulse_DoubtsAfterAPause(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPulse(now)
	if !p.steady(now.Add(maxPause - 1)) {
		t.Error("in doubt although it has just begun")
	}
	if p.steady(now.Add(maxPause)) {
		t.Error("steady after a pause")
	}
	p.set(now.Add(10 * time.Second))
	if !p.steady(now.Add(11 * time.Second)) {
		t.Error("in doubt after a beat")
	}
	p.doubt.Store(true)
	if p.steady(now.Add(11 * time.Second)) {
		t.Error("steady although its shares are to be confirmed")
	}
}

// TestHost_HandsOutNothingAfterAPauseUntilConfirmed has no controller that could confirm: it goes on after a while.
func TestHost_HandsOutNothingAfterAPauseUntilConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var skipped atomic.Int64
		began := time.Now()
		b.deps.Now = func() time.Time { return time.Now().Add(time.Duration(skipped.Load())) }
		g, _ := b.share(10, 0)
		var beating sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		beating.Go(func() { b.beat(ctx) })
		defer beating.Wait()
		defer cancel()
		time.Sleep(10 * time.Second)
		if !b.pulse.steady(b.deps.Now()) {
			t.Fatal("in doubt without a pause")
		}
		skipped.Store(int64(30 * time.Second))
		if m, err := g.takeForPull(10); err != nil || len(m) != 0 {
			t.Errorf("after a pause %d messages were handed out, %v", len(m), err)
		}
		time.Sleep(beatEvery + confirmTimeout + time.Second)
		if !b.pulse.steady(b.deps.Now()) {
			t.Errorf("still in doubt %s after the start, without a controller", time.Since(began))
		}
	})
}
