package controller

import (
	"net/http"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestHosts_RunThatMembershipHasNotShownYet: an input host asks a controller that has been up for long, before
// membership shows the host there. Its extent stays open.
func TestHosts_RunThatMembershipHasNotShownYet(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		r.sleep(time.Minute)
		late := membership.Host{ID: "in2", Roles: []string{"inputhost"}, Address: "in2:1", Run: newRun()}
		r.serve(late.Address, http.NotFoundHandler())
		e, err := r.ctl.ensureExtent(r.t.Context(), wish{queue: queue, input: late.ID, run: late.Run, kind: core.KindLog})
		r.ok(err)
		r.sleep(8 * time.Second)
		r.join(late)
		r.sleep(time.Minute)
		if x, _ := r.ctl.extents.Get(e.ID); x.State != core.ExtentOpen {
			t.Errorf("the extent of a healthy writer is %s", x.State)
		}
	})
}

// TestHosts_NewerRunThanMembershipShows: a host has started again, and membership shows its last run still.
func TestHosts_NewerRunThanMembershipShows(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		old := r.extent(queue, 1)
		r.sleep(time.Minute)
		again := r.input
		again.Run = newRun()
		e, err := r.ctl.ensureExtent(r.t.Context(), wish{queue: queue, input: again.ID, run: again.Run, kind: core.KindLog})
		r.ok(err)
		r.sleep(8 * time.Second)
		r.join(again)
		r.eventually("the extent of the last run is sealed", 3*time.Second, func() bool { return r.row(old).State.HasEnd() })
		r.sleep(time.Minute)
		if x, _ := r.ctl.extents.Get(e.ID); x.State != core.ExtentOpen {
			t.Errorf("the extent of the run that is there is %s", x.State)
		}
	})
}

// TestHosts_RunThatMembershipNeverShows: nobody waits for it without end.
func TestHosts_RunThatMembershipNeverShows(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		r.sleep(time.Minute)
		e, err := r.ctl.ensureExtent(r.t.Context(), wish{queue: queue, input: "in2", run: newRun(), kind: core.KindLog})
		r.ok(err)
		took := r.eventually("it is sealed", 20*time.Second, func() bool { return r.row(e).State.HasEnd() })
		if took < 10*time.Second {
			t.Errorf("it is sealed after %s, before the hosts have exchanged all that they know", took)
		}
	})
}

// TestHosts_Unshown: a run that began before the controller is waited for briefly, one that calls again stays, and
// those nobody asks about are forgotten.
func TestHosts_Unshown(t *testing.T) {
	began := time.UnixMilli(1_900_000_000_000)
	run := func(at time.Time) core.RunID { return core.RunID{ID: core.NewID(at)} }
	x := newHosts(began)
	now := began.Add(time.Hour)
	x.adopt([]membership.Host{{ID: "s"}, {ID: "t"}}, began)
	before, after := run(began.Add(-time.Hour)), run(now)
	for _, h := range []catalog.HostRun{{Host: "a", Run: before}, {Host: "b", Run: after}} {
		if f := x.fate(h.Host, h.Run, now); f != unsure {
			t.Errorf("%s is %d when this controller meets it", h.Host, f)
		}
	}
	if a, b := x.fate("a", before, now.Add(settleAfter)), x.fate("b", after, now.Add(settleAfter)); a != gone || b != unsure {
		t.Errorf("%d and %d a little later, want the one that began before to be gone", a, b)
	}
	heard := now.Add(lateAfter - time.Second)
	x.heard(catalog.HostRun{Host: "b", Run: after}, heard)
	if f := x.fate("b", after, heard.Add(lateAfter-time.Second)); f != unsure {
		t.Errorf("it called a moment ago, and is %d", f)
	}
	if changed, _ := x.adopt(nil, heard.Add(lateAfter)); !changed {
		t.Errorf("nobody is told that its time is over")
	}
	if changed, _ := x.adopt(nil, heard.Add(lateAfter)); changed {
		t.Errorf("it is told again")
	}
	if f := x.fate("b", after, heard.Add(lateAfter)); f != gone {
		t.Errorf("it is %d when its time is over", f)
	}
	x.adopt([]membership.Host{{ID: "a", Run: run(now)}}, now)
	if f := x.fate("a", before, now); f != gone {
		t.Errorf("a run that was followed by another one is %d", f)
	}
	x.adopt([]membership.Host{{ID: "a", Run: before}}, now) // its clock was set back
	if f := x.fate("a", run(now.Add(time.Minute)), now); f != unsure {
		t.Errorf("a newer run than the one that is shown is %d", f)
	}
	x.adopt([]membership.Host{{ID: "a", Run: run(began.Add(-2 * time.Hour))}}, now)
	if f := x.fate("a", before, now); f != gone {
		t.Errorf("a run that was shown, and followed by one of an earlier time, is %d", f)
	}
	x.adopt(nil, now.Add(2*catalog.ForgetAfter))
	if n := len(x.mu.unshown); n > 0 {
		t.Errorf("%d runs are remembered", n)
	}
}

// TestHosts_UnshownToControllerThatHearsNobody: it has started, and has joined no other host yet.
func TestHosts_UnshownToControllerThatHearsNobody(t *testing.T) {
	began := time.UnixMilli(1_900_000_000_000)
	before := core.RunID{ID: core.NewID(began.Add(-time.Hour))}
	x := newHosts(began)
	fate := func(at time.Time) fate {
		return x.fate("a", before, at)
	}
	self := membership.Host{ID: "self"}
	x.adopt([]membership.Host{self}, began)
	if f := fate(began); f != unsure {
		t.Errorf("a run of before is %d at the start", f)
	}
	if f := fate(began.Add(lateAfter - time.Second)); f != unsure {
		t.Errorf("it is %d while membership shows nobody else", f)
	}
	joined := began.Add(lateAfter - time.Second)
	x.adopt([]membership.Host{self, {ID: "s"}}, joined)
	if f := fate(joined.Add(settleAfter - time.Second)); f != unsure {
		t.Errorf("it is %d a moment after the first host is shown", f)
	}
	if f := fate(joined.Add(settleAfter)); f != gone {
		t.Errorf("it is %d when it is not shown with the others", f)
	}
}

// TestHosts_CallersThatNobodyKnows: a caller that calls as another host each time fills no memory.
func TestHosts_CallersThatNobodyKnows(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	x := newHosts(now)
	first := catalog.HostRun{Host: "a", Run: core.RunID{ID: core.NewID(now)}}
	x.heard(first, now)
	for range 2 * mostUnshown {
		x.heard(catalog.HostRun{Host: "b", Run: core.RunID{ID: core.NewID(now)}}, now)
	}
	if n := len(x.mu.unshown); n > mostUnshown {
		t.Errorf("%d runs are remembered", n)
	}
	x.heard(first, now.Add(lateAfter))
	if f := x.fate(first.Host, first.Run, now.Add(lateAfter)); f != unsure {
		t.Errorf("one that called a moment ago is %d", f)
	}
}
