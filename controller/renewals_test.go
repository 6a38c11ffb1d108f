package controller

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// renew has an output host heard.
func (r *harness) renew(o *fakeOutput) {
	_, err := (&service{r.ctl.Host}).RenewShares(r.t.Context(), connect.NewRequest(&pb.RenewSharesRequest{Owner: string(o.id), Run: o.run.ID[:]}))
	r.ok(err)
}

// TestRenewals_OwnerThatWasJustHeardKeepsItsShares: it may be cut off and hand out until it has missed its renewal.
func TestRenewals_OwnerThatWasJustHeardKeepsItsShares(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		r.extents(100)
		cut := r.outputs[1]
		n := len(cut.shares())
		r.renew(cut)
		heard := time.Now()
		r.kill(cut.id) // its address answers nothing, and refuses nothing
		r.leave(cut.id)
		others := func() int { return len(r.outputs[0].shares()) }
		r.sleep(dispatch.OwnerLease - time.Since(heard))
		if got := others(); got != 100-n {
			t.Fatalf("%s after it was heard the other one owns %d of 100, want %d", time.Since(heard), got, 100-n)
		}
		r.eventually("the other one owns all", dispatch.OwnerGone+time.Second-time.Since(heard), func() bool { return others() == 100 })
	})
}

// TestRenewals_OwnerThatIsNotShownAndCalls: membership does not show a run that renews its shares. The run is not gone.
func TestRenewals_OwnerThatIsNotShownAndCalls(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		o := &fakeOutput{id: "late", run: newRun()}
		for range 2 * int(lateAfter/time.Second) {
			r.renew(o)
			if f := r.ctl.hosts.fate(o.id, o.run, time.Now()); f != unsure {
				r.t.Fatalf("its fate is %d", f)
			}
			r.sleep(time.Second)
		}
	})
}

// TestRenewals_OwnerWhosePortIsClosedIsGone: a process that has ended is not waited for, whenever it was heard.
func TestRenewals_OwnerWhosePortIsClosedIsGone(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		r.extents(100)
		dead := r.outputs[1]
		r.renew(dead)
		r.mu.Lock()
		s := r.mu.serving[string(dead.id)+":1"]
		r.mu.Unlock()
		s.server.Close()
		r.leave(dead.id)
		took := r.eventually("the other one owns all", 5*time.Second, func() bool { return len(r.outputs[0].shares()) == 100 })
		if took > 300*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

// TestRenewals_AWaitEndsOnce: the clock went back since the controller became responsible for the shares. A run that
// was found to have ended is not waited for again, and no wait is longer than an owner may hand out.
func TestRenewals_AWaitEndsOnce(t *testing.T) {
	x, now := newRenewals(), time.Unix(1000, 0)
	run, taken := newRun(), now.Add(time.Minute)
	left := x.left(run, taken, now)
	if left != dispatch.OwnerGone {
		t.Errorf("an owner is waited for for %s, want %s", left, dispatch.OwnerGone)
	}
	x.wait(run)
	x.over(run, taken, now)
	if left = x.left(run, taken, now); left != 0 {
		t.Errorf("an owner that has ended is waited for for %s again", left)
	}
}

func TestRenewals_RunsAreForgotten(t *testing.T) {
	x, now := newRenewals(), time.Unix(1000, 0)
	for i := range 10_000 {
		now = now.Add(dispatch.OwnerGone / 10)
		x.note(core.RunID{ID: core.ID{byte(i >> 8), byte(i)}}, now)
	}
	if n := len(x.mu.heard); n > 200 {
		t.Errorf("%d runs are remembered", n)
	}
}
