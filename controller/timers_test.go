package controller

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// timers is the wish for a timer extent of a horizon.
func (r *harness) timers(queue core.QueueID, ahead core.Horizon) wish {
	w := r.wish(queue)
	w.kind, w.ahead = core.KindTimer, ahead
	return w
}

// timerExtent makes one with so many records on every replica.
func (r *harness) timerExtent(queue core.QueueID, ahead core.Horizon, records int) core.Extent {
	r.t.Helper()
	e, err := r.ctl.ensureExtent(r.t.Context(), r.timers(queue, ahead))
	r.ok(err)
	for _, s := range r.replicas(e) {
		s.write(e, numbers(1, records)...)
	}
	return e
}

// sealDue asks for the seal like the writer of a timer extent.
func (r *harness) sealDue(e core.Extent, floor core.Seq, due time.Time) {
	r.t.Helper()
	_, err := (&service{r.ctl.Host}).SealExtent(r.t.Context(), connect.NewRequest(&pb.SealExtentRequest{
		Extent: convert.ExtentToProto(e), Floor: uint64(floor), Reason: "test", Due: timestamppb.New(due),
	}))
	r.ok(err)
	r.sleep(time.Second)
}

func TestEnsure_TimersByHorizon(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		_, other := r.otherInput(queue)
		other.kind, other.ahead = core.KindTimer, core.HorizonHour
		seen := make(map[core.ExtentID]bool)
		for name, w := range map[string]wish{
			"log": r.wish(queue), "an hour": r.timers(queue, core.HorizonHour), "a day": r.timers(queue, core.HorizonDay), "another host's hour": other,
		} {
			e, err := r.ctl.ensureExtent(r.t.Context(), w)
			r.ok(err)
			if e.Kind != w.kind || e.Horizon != w.ahead || e.Input != w.input || seen[e.ID] {
				t.Errorf("%s: extent %+v, seen before: %v", name, e, seen[e.ID])
			}
			seen[e.ID] = true
			if again, err := r.ctl.ensureExtent(r.t.Context(), w); err != nil || again.ID != e.ID {
				t.Errorf("%s, asked again: %s, %v; want %s", name, again.ID, err, e.ID)
			}
		}
		for kind, horizon := range map[string]string{"timer": "", "log": "1h", "tape": ""} {
			req := &pb.EnsureExtentRequest{Queue: queue.ID[:], Input: "in", InputRun: r.input.Run.ID[:], Kind: kind, Horizon: horizon}
			if _, err := (&service{r.ctl.Host}).EnsureExtent(r.t.Context(), connect.NewRequest(req)); core.CodeOf(convert.FromRPC(err)) != core.CodeUnsupported {
				t.Errorf("kind %q with horizon %q: %v", kind, horizon, err)
			}
		}
		resp, err := (&service{r.ctl.Host}).EnsureExtent(r.t.Context(), connect.NewRequest(&pb.EnsureExtentRequest{
			Queue: queue.ID[:], Input: "in", InputRun: r.input.Run.ID[:], Kind: "timer", Horizon: "30d",
		}))
		r.ok(err)
		if resp.Msg.Extent.Horizon != "30d" || resp.Msg.Open != 1 {
			t.Errorf("got %v", resp.Msg)
		}
	})
}

// TestChain_TimersHaveNoPlace: any input host has timer extents of a CP queue, whoever has its head, and they are
// outside of the chain, also for those who read them.
func TestChain_TimersHaveNoPlace(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 3}, func(r *harness) {
		queue := r.chainedQueue()
		_, other := r.otherInput(queue)
		group := r.group(queue, "g")
		first := r.timerExtent(queue, core.HorizonHour, 1)
		head := r.extent(queue, 1)
		other.kind, other.ahead = core.KindTimer, core.HorizonHour
		theirs, err := r.ctl.ensureExtent(r.t.Context(), other)
		r.ok(err)
		if first.Chain != 0 || theirs.Chain != 0 || head.Chain != 1 || !r.head(queue).Equal(head) {
			t.Fatalf("timers at %d and %d, the head at %d", first.Chain, theirs.Chain, head.Chain)
		}
		chain := []core.Extent{head}
		for range 3 {
			_, err := r.seal(chain[len(chain)-1], 1)
			r.ok(err)
			chain = append(chain, r.extent(queue, 1))
		}
		if last := chain[len(chain)-1]; last.Chain != 4 {
			t.Errorf("the chain is at %d, want 4", last.Chain)
		}
		var timers []core.Extent
		for i := range 8 {
			timers = append(timers, r.timerExtent(queue, core.HorizonAt(i%core.Horizons), 1))
		}
		r.sleep(3 * time.Second)
		owner := r.ownerOf(group, head.ID)
		for _, e := range chain {
			if got := r.ownerOf(group, e.ID); got != owner || got == "" {
				t.Errorf("place %d has the owner %q, another %q", e.Chain, got, owner)
			}
		}
		for _, e := range append(timers, first, theirs) {
			if r.ownerOf(group, e.ID) == "" {
				t.Errorf("a timer extent of horizon %s has no owner", e.Horizon)
			}
		}
	})
}

// TestSeal_WhenTimersAreDue: the writer's word counts, also when somebody else had the extent sealed; without it the
// horizon does.
func TestSeal_WhenTimersAreDue(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		due := time.Now().Add(10 * time.Hour).Truncate(time.Millisecond)
		e := r.timerExtent(queue, core.HorizonDay, 2)
		r.sealDue(e, 2, due)
		if row := r.row(e); !row.LastDue().Equal(due) || !row.KeptFrom().Equal(due) {
			t.Errorf("due %s, kept from %s, want %s", row.LastDue(), row.KeptFrom(), due)
		}
		e = r.timerExtent(queue, core.HorizonDay, 2)
		_, err := r.seal(e, 0)
		r.ok(err)
		r.sleep(time.Second)
		row := r.row(e)
		if want := row.Ended.Add(24 * time.Hour); row.Due != (time.Time{}) || !row.LastDue().Equal(want) {
			t.Errorf("sealed without its writer: due %s, want %s", row.LastDue(), want)
		}
		r.sealDue(e, 2, due)
		r.sealDue(e, 2, due.Add(-time.Hour)) // an older word that came late
		if row := r.row(e); !row.LastDue().Equal(due) {
			t.Errorf("when its writer came to say it: due %s, want %s", row.LastDue(), due)
		}
		if known, _ := r.ctl.extents.Get(e.ID); !known.Kept.Equal(due) {
			t.Errorf("it counts as kept from %s, want %s", known.Kept, due)
		}
		if log := r.row(r.sealed(queue, 1)); !log.LastDue().IsZero() || !log.KeptFrom().Equal(log.Ended) {
			t.Errorf("a log extent is due %s and kept from %s, its end was fixed %s", log.LastDue(), log.KeptFrom(), log.Ended)
		}
	})
}

// TestRetain_TimersCountFromTheLast: nothing of a timer extent goes before its last record was due for the retention,
// consumed or not.
func TestRetain_TimersCountFromTheLast(t *testing.T) {
	for name, consumed := range map[string]bool{"unconsumed": false, "consumed": true} {
		t.Run(name, func(t *testing.T) {
			underrace.One(t, consumed)
			bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
				queue, keep := r.keeping(keepConsumed, keepUnconsumed), keepUnconsumed
				group := r.group(queue, "g")
				e := r.timerExtent(queue, core.HorizonDay, 5)
				r.sealDue(e, 5, time.Now().Add(2*keepUnconsumed))
				if consumed {
					r.done(group, e)
					keep = keepConsumed
				}
				r.sleep(2*keepUnconsumed + keep - 5*time.Second)
				r.stays(e, 5, "its last record was due a moment ago")
				r.goes(e)
			})
		})
	}
}
