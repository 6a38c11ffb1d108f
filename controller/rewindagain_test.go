package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestRewind_AfterOneThatFailed: a rewind to the end writes a position and then fails; the next one, to the beginning,
// must not begin there.
func TestRewind_AfterOneThatFailed(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		r.group(queue, "g")
		e := r.sealed(queue, 5)
		r.extent(queue, 3) // where that is, nobody can say in a moment
		for _, s := range r.stores {
			r.kill(s.id)
		}
		if _, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartLatest}, 0); err == nil {
			t.Fatal("it knows where an extent is whose stores are all away")
		}
		for _, s := range r.stores {
			r.restart(s)
		}
		epoch, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartEarliest}, 0)
		r.ok(err)
		g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
		r.ok(err)
		n, err := progress.Settled(r.t.Context(), r.meta, g, e.ID)
		r.ok(err)
		consumed, err := metadata.IsConsumed(r.t.Context(), r.meta, g.ID, e.ID, g.Epoch, metadata.Serial)
		r.ok(err)
		if n != 0 || consumed || g.Epoch != epoch {
			t.Errorf("%d of 5 messages are skipped by a group that was sent to the beginning, at epoch %d", n, g.Epoch)
		}
	})
}

// TestRewind_DoneRowsOfEarlierEpochsGo: a group that is sent to the end again and again keeps the done rows of two
// epochs: its own, and the one before, by which output hosts go until they hear of the rewind.
func TestRewind_DoneRowsOfEarlierEpochsGo(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		g := r.group(queue, "g")
		all := []core.Extent{r.sealed(queue, 5), r.sealed(queue, 7)}
		old := metadata.Key{Partition: g.String(), Row: all[0].ID.String()} // as keys were before epochs were part of them
		r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Dones, old, metadata.DoneRecord{L: 5}, time.Now(), 0, metadata.One))
		behind := func(epoch uint64, extents ...core.Extent) {
			for _, e := range extents {
				if done, err := metadata.IsConsumed(r.t.Context(), r.meta, g, e.ID, epoch, metadata.Serial); err != nil || !done {
					t.Errorf("extent %s is not behind the group at epoch %d: %v", e.ID, epoch, err)
				}
			}
		}
		ended, consumed := uint64(0), all[:1]
		for range 3 {
			epoch, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartLatest}, 0)
			r.ok(err)
			behind(epoch, all...)
			r.eventually("only the rows of two epochs are there", time.Minute, func() bool {
				return rows(r, metadata.Dones, g.String()) == len(consumed)+len(all)
			})
			synctest.Wait()
			behind(ended, consumed...)
			ended, consumed = epoch, all
		}
	})
}

// TestStart_SecondCall: of two calls that start a group the first that ends counts. The second one's positions, written
// later, are of an epoch that nobody uses.
func TestStart_SecondCall(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		e := r.extent(queue, 3)
		id := core.GroupID{ID: core.NewID(time.Now())}
		record := metadata.GroupRecord{ID: id, Queue: queue, Created: time.Now(), Spec: core.GroupSpec{Name: "g", Status: core.StatusEnabled, Start: core.Start{Mode: core.StartLatest}}}
		key := metadata.GroupKey(queue, "g")
		r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, key, record))
		for _, s := range r.stores {
			r.kill(s.id)
		}
		if err := r.startGroup(r.ctl, queue, "g"); err == nil {
			t.Fatal("it knows where an extent is whose stores are all away")
		}
		for _, s := range r.stores {
			r.restart(s)
		}
		read := func() metadata.GroupRecord {
			g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, key, metadata.Serial)
			r.ok(err)
			return g
		}
		r.ok(r.startGroup(r.ctl, queue, "g"))
		g := read()
		if !g.Started || g.Epoch != 1 || g.Rewound() {
			t.Errorf("the second call left %+v, want it started in epoch 1, and not rewound", g)
		}
		r.ok(r.startGroup(r.ctl, queue, "g"))
		if again := read(); again.Starts != g.Starts || again.Epoch != g.Epoch {
			t.Errorf("a call for a started group made %+v of it", again)
		}
		late := record // the first call, whose positions come late
		known, _ := r.ctl.extents.Get(e.ID)
		r.ok(r.ctl.writeStart(r.t.Context(), late, known, 9))
		n, err := progress.Settled(r.t.Context(), r.meta, g, e.ID)
		r.ok(err)
		if n != 3 {
			t.Errorf("%d messages are before the start of the group, want 3", n)
		}
		epoch, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartEarliest}, 0)
		r.ok(err)
		if g := read(); epoch != 2 || !g.Rewound() {
			t.Errorf("a rewind led to epoch %d, %+v", epoch, g)
		}
	})
}

// TestStart_AnotherGroup: a group was deleted and made anew under its name before the call to start it came. The new
// one is left alone: whoever makes it has yet to make its dead letter queue.
func TestStart_AnotherGroup(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		r.halfMade(queue, "g")
		err := r.ctl.startGroup(r.t.Context(), queue, "g", core.GroupID{ID: core.NewID(time.Now())})
		if core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("start of a group that was deleted: %v, want not_found", err)
		}
		if g := r.readGroup(queue, "g"); g.Started || g.Starts != 0 {
			t.Errorf("it left %+v, want the other group untouched", g)
		}
	})
}

// TestRewind_AnotherGroup: a group was deleted and made anew under its name before the call to rewind it came. The new
// one stays where it is: nobody asked for its messages to be skipped, or delivered again.
func TestRewind_AnotherGroup(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		r.group(queue, "g")
		r.sealed(queue, 5)
		before, s, deleted := r.readGroup(queue, "g"), &service{r.ctl.Host}, core.NewID(time.Now())
		for _, to := range []string{"latest", "earliest"} {
			req := &pb.RewindGroupRequest{Queue: queue.ID[:], Group: "g", Id: deleted[:], To: to, Who: "me"}
			if _, err := s.RewindGroup(r.t.Context(), connect.NewRequest(req)); core.CodeOf(convert.FromRPC(err)) != core.CodeNotFound {
				t.Errorf("rewind to %s of a group that was deleted: %v, want not_found", to, err)
			}
			if _, err := s.PreviewRewind(r.t.Context(), connect.NewRequest(req)); core.CodeOf(convert.FromRPC(err)) != core.CodeNotFound {
				t.Errorf("preview of it: %v, want not_found", err)
			}
		}
		if now := r.readGroup(queue, "g"); now.Epoch != before.Epoch || now.Rewind != nil || now.LastSeek != nil {
			t.Errorf("the other group was rewound: %+v", now)
		}
	})
}

// TestResumeRewind_AnotherGroup: a controller goes on with a rewind of a group that was deleted and made anew since,
// and whose own first rewind is under way. It is left to the controller that runs it.
func TestResumeRewind_AnotherGroup(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		r.group(queue, "g")
		under := &metadata.Rewind{Epoch: 1, To: core.Start{Mode: core.StartLatest}, Began: time.Now(), By: "other", Run: core.RunID{ID: core.NewID(time.Now())}}
		r.edit(queue, "g", func(g *metadata.GroupRecord) { g.Rewind = under })
		_, err := r.ctl.rewindGroup(r.t.Context(), queue, "g", core.GroupID{ID: core.NewID(time.Now())}, core.Start{Mode: core.StartLatest}, 1)
		if core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("it goes on with the rewind of a group that was deleted: %v, want not_found", err)
		}
		if now := r.readGroup(queue, "g"); now.Rewind == nil || now.Rewind.By != "other" || now.Rewind.Epoch != 1 {
			t.Errorf("the rewind of the other group was taken from its controller: %+v", now.Rewind)
		}
	})
}
