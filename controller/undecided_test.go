package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

// powerCut restarts all stores but one, which is gone for good with its disk.
func (r *harness) powerCut(gone *fakeStore) {
	for _, s := range r.stores {
		r.kill(s.id)
		r.leave(s.id)
	}
	for _, s := range r.stores {
		if s != gone {
			r.restart(s)
		}
	}
}

// sealAllOf declares a store gone.
func (r *harness) sealAllOf(s *fakeStore, dryRun bool) ([]*pb.UndecidedExtent, error) {
	var out []*pb.UndecidedExtent
	for after := ""; ; {
		resp, err := (&service{r.ctl.Host}).SealAllOfStore(r.t.Context(), connect.NewRequest(&pb.SealAllOfStoreRequest{Store: string(s.id), DryRun: dryRun, After: after, Who: "me"}))
		if err != nil {
			return out, convert.FromRPC(err)
		}
		out = append(out, resp.Msg.Extents...)
		if after = resp.Msg.Next; after == "" {
			return out, nil
		}
	}
}

// loseStore makes so many extents, each of a queue of its own, lets all stores lose power and one of three its
// directory, so that its name is gone, too. The extents stay sealing: the other two stores may both have lost
// something.
func (r *harness) loseStore(many int) (extents []core.Extent, gone *fakeStore) {
	r.t.Helper()
	for range many {
		extents = append(extents, r.extent(r.queue(3, 2), 5))
	}
	gone, other := r.stores[1], r.stores[2]
	other.cut(extents[0], 4) // its disk lied
	if _, err := r.sealAllOf(gone, true); core.CodeOf(err) != core.CodeConflict {
		r.t.Errorf("a store that is there is declared gone: %v", err)
	}
	r.powerCut(gone)
	r.kill(r.input.ID)
	r.leave(r.input.ID)
	r.eventually("the alarm", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.undecided) == float64(many) })
	return extents, gone
}

// declareGone has one command end all extents of a store that is gone.
func (r *harness) declareGone(gone *fakeStore, extents []core.Extent) {
	r.t.Helper()
	would, err := r.sealAllOf(gone, true)
	r.ok(err)
	if len(would) != len(extents) || would[0].Outcome != "would_seal" || would[0].LastSeq != 5 {
		r.t.Fatalf("%d would be sealed, the first %v", len(would), would[0])
	}
	if row := r.row(extents[0]); row.State != core.ExtentSealing {
		r.t.Fatalf("a dry run changed the row: %+v", row)
	}
	did, err := r.sealAllOf(gone, false)
	r.ok(err)
	if len(did) != len(extents) {
		r.t.Fatalf("%d were sealed", len(did))
	}
	for i, e := range extents {
		if row := r.row(e); row.State != core.ExtentSealed || row.L != 5 || row.Forced || did[i].Outcome != "sealed" || did[i].LastSeq != 5 {
			r.t.Fatalf("row %+v, outcome %v", row, did[i])
		}
	}
	r.sleep(3 * time.Second)
	if n := r.value(r.ctl.metrics.undecided); n != 0 {
		r.t.Errorf("%v extents are still undecided", n)
	}
}

// TestUndecided_PowerCutAndLostStore: extents that stay sealing are an alarm, and one command ends them all.
func TestUndecided_PowerCutAndLostStore(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		extents, gone := r.loseStore(mostNamed + 2)
		r.sleep(10 * time.Minute)
		const said = "extents stay sealing"
		if n := strings.Count(r.log.text(), said); n < 9 || n > 12 {
			t.Errorf("the log says %d times in ten minutes that extents stay sealing", n)
		}
		if !strings.Contains(r.log.text(), "columba seal --force --all-of-store s1") {
			t.Error("the log does not say what to do")
		}
		list, err := (&service{r.ctl.Host}).ListUndecided(r.t.Context(), connect.NewRequest(&pb.ListUndecidedRequest{Queue: extents[0].Queue.ID[:]}))
		if err != nil || list.Msg.Count != 1 || list.Msg.Extents[0].Extent != extents[0].ID.String() || len(list.Msg.Extents[0].Away) != 1 || list.Msg.Extents[0].Away[0] != "s1" {
			t.Errorf("undecided of the queue: %v, %v", list, err)
		}
		r.declareGone(gone, extents)
	})
}

// TestUndecided_MoreThanAPage ends more extents than one call does.
func TestUndecided_MoreThanAPage(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		extents, gone := r.loseStore(sealPage + 5)
		r.declareGone(gone, extents)
	})
}

// TestUndecided_ReplacedDisk: the store comes back under its name with another disk. Nobody has to say anything.
func TestUndecided_ReplacedDisk(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		r.powerCut(r.stores[1])
		r.stores[1].wipe()
		r.restart(r.stores[1])
		r.kill(r.input.ID)
		r.leave(r.input.ID)
		r.eventually("it is sealed", time.Minute, func() bool { return r.row(e).State == core.ExtentSealed })
		if row := r.row(e); row.L != 5 || row.Forced {
			t.Errorf("row %+v", row)
		}
	})
}

// TestUndecided_AnotherStoreIsAway: no word about one store ends what another one may know more of.
func TestUndecided_AnotherStoreIsAway(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		r.powerCut(r.stores[1])
		r.kill(r.stores[2].id)
		r.leave(r.stores[2].id)
		r.kill(r.input.ID)
		r.leave(r.input.ID)
		r.eventually("the alarm", 2*time.Minute, func() bool { return r.value(r.ctl.metrics.undecided) == 1 })
		got, err := r.sealAllOf(r.stores[1], false)
		if err != nil || len(got) != 1 || got[0].Outcome != "undecided" || !strings.Contains(got[0].Reason, "s2") {
			t.Errorf("%v, %v; want that it stays sealing because of s2", got, err)
		}
		if row := r.row(e); row.State != core.ExtentSealing {
			t.Errorf("row %+v", row)
		}
	})
}

// TestUndecided_OfAnotherController: an operator's word is obeyed by the controller that gets it, whichever controller
// could not decide the seals, and also before it has met the extents itself.
func TestUndecided_OfAnotherController(t *testing.T) {
	two(t, harnessOptions{stores: 3}, func(r *harness, both [2]*running) {
		extents, gone := r.loseStore(3)
		slices.SortFunc(extents, func(a, b core.Extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
		asked := both[1]
		ask := func(dry bool) []outcome {
			t.Helper()
			for _, e := range extents { // as if it had started late
				asked.undecided.forget(e.ID)
				asked.extents.Remove(e.ID)
			}
			out, more, err := asked.sealAllOfStore(r.t.Context(), gone.id, core.ExtentID{}, dry)
			if r.ok(err); more {
				t.Error("there is more")
			}
			return out
		}
		for _, dry := range []bool{true, false} {
			out := ask(dry)
			if len(out) != 3 {
				t.Fatalf("dry run: %v; it knows of %d extents, want 3", dry, len(out))
			}
			want := map[bool]string{true: "would_seal", false: "sealed"}[dry]
			for i, x := range out {
				if x.ID != extents[i].ID || x.what != want || x.l != 5 {
					t.Errorf("extent %s: %s at %d, %s", x.ID, x.what, x.l, x.reason)
				}
			}
		}
		if out := ask(false); len(out) != 0 {
			t.Errorf("%d are left", len(out))
		}
	})
}

// TestUndecided_EndedElsewhere: an extent that another controller has ended is not undecided any more, also when a try
// of this one fails late. While others wait, the log has one line for each of them, not one for each try.
func TestUndecided_EndedElsewhere(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: seldom}, func(r *harness) {
		extents, _ := r.loseStore(3)
		const said = "extent cannot be sealed yet"
		before := strings.Count(r.log.text(), said)
		r.sleep(10 * time.Minute)
		if n := strings.Count(r.log.text(), said) - before; n > len(extents) {
			t.Errorf("the log says %d times in ten minutes that an extent cannot be sealed", n)
		}
		ended, row := extents[0], r.row(extents[0])
		row.State, row.L, row.Version, row.Ended = core.ExtentSealed, 5, row.Version+1, time.Now()
		r.ctl.took(row)
		r.eventually("it is not counted", 3*time.Second, func() bool { return r.value(r.ctl.metrics.undecided) == 2 })
		late := stays{errors.New("injected: its stores did not answer"), seal.Decision{}}
		r.ctl.noteUndecided(ended, late)
		r.eventually("it is forgotten", maxStuck+3*time.Second, func() bool {
			return len(r.ctl.undecided.list(func(x undecidedExtent) bool { return x.ID == ended.ID })) == 0
		})
		r.sleep(time.Minute)
		if n := r.value(r.ctl.metrics.undecided); n != 2 {
			t.Errorf("%v extents are undecided, want the two others", n)
		}
		r.ctl.extents.Remove(extents[1].ID)
		r.eventually("one that was retired is not counted", 3*time.Second, func() bool { return r.value(r.ctl.metrics.undecided) == 1 })
	})
}
