package controller

import (
	"strings"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// readGroup is the row of a group.
func (r *harness) readGroup(queue core.QueueID, name string) metadata.GroupRecord {
	r.t.Helper()
	g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, name), metadata.Serial)
	r.ok(err)
	return g
}

// startGroup has a controller start the group that is there under a name.
func (r *harness) startGroup(by *running, queue core.QueueID, name string) error {
	return by.startGroup(r.t.Context(), queue, name, r.readGroup(queue, name).ID)
}

// rewindGroup has a controller rewind the group that is there under a name.
func (r *harness) rewindGroup(by *running, queue core.QueueID, name string, to core.Start, resumed uint64) (epoch uint64, err error) {
	return by.rewindGroup(r.t.Context(), queue, name, r.readGroup(queue, name).ID, to, resumed)
}

// previewRewind is rewindGroup for a preview.
func (r *harness) previewRewind(by *running, queue core.QueueID, name string, to core.Start) (*pb.SeekPreview, error) {
	return by.previewRewind(r.t.Context(), queue, name, r.readGroup(queue, name).ID, to)
}

// publishNow appends one record to each replica of an extent, at the present instant. Those of harness.extent are of
// 1970.
func (r *harness) publishNow(e core.Extent, text string) {
	r.t.Helper()
	for _, s := range r.replicas(e) {
		s.edit(e.ID, func(x *fakeReplica) {
			x.batches = append(x.batches, batchAt(x.last()+1, text, x.sum(), time.Now().UnixMicro()))
		})
	}
}

// skips checks how many messages of an open extent a group skips.
func (r *harness) skips(g metadata.GroupRecord, e core.Extent, want uint64) {
	r.t.Helper()
	if n, err := progress.Settled(r.t.Context(), r.meta, g, e.ID); err != nil || n != want {
		r.t.Errorf("the group skips %d messages of extent %s, %v; want %d", n, e.ID, err, want)
	}
}

// skipsAll checks that a group skips a sealed extent.
func (r *harness) skipsAll(g metadata.GroupRecord, e core.Extent) {
	r.t.Helper()
	if done, err := metadata.IsConsumed(r.t.Context(), r.meta, g.ID, e.ID, g.Epoch, metadata.Serial); err != nil || !done {
		r.t.Errorf("the group does not skip extent %s: %v", e.ID, err)
	}
}

// TestRewind_ResumedLatest: a controller dies while it writes the positions of a rewind to latest. The next run goes on
// at once, to what was latest when the rewind began, although messages were published since; the audit says how it
// ended.
func TestRewind_ResumedLatest(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 1}, func(r *harness) {
		queue := r.queue(3, 2)
		r.group(queue, "g")
		old, open := r.sealed(queue, 4), r.extent(queue, 3)
		r.sleep(time.Minute)
		run := newRun()
		r.edit(queue, "g", func(g *metadata.GroupRecord) {
			g.Rewind = &metadata.Rewind{Epoch: 7, To: core.Start{Mode: core.StartLatest}, Began: time.Now(), By: "other", Run: run}
		})
		r.sleep(time.Second)
		r.publishNow(open, "4")
		r.ctl.end()
		r.ctl = r.startController(nil)
		took := r.eventually("the rewind is finished", time.Minute, func() bool { return r.readGroup(queue, "g").Rewind == nil })
		if took > 15*time.Second {
			t.Errorf("it took %s, though the controller that began it is gone", took)
		}
		g := r.readGroup(queue, "g")
		if g.Epoch != 8 || g.LastSeek == nil || g.LastSeek.To.String() != "latest" {
			t.Errorf("the rewind left epoch %d, %+v", g.Epoch, g.LastSeek)
		}
		r.skips(g, open, 3)
		r.skipsAll(g, old)
		ended := false
		for _, a := range audited(r) {
			ended = ended || a.What == "resume seek to latest" && a.Result == "ok" && strings.HasSuffix(a.Object, "/g")
		}
		if !ended {
			t.Errorf("the audit does not say how it ended: %+v", audited(r))
		}
	})
}

// TestRewind_ResumedTwice: the second controller dies, too. The instant of the first attempt counts.
func TestRewind_ResumedTwice(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		r.group(queue, "g")
		open := r.extent(queue, 3)
		r.sleep(time.Minute)
		first := time.Now()
		r.sleep(time.Second)
		r.publishNow(open, "4")
		r.sleep(time.Second)
		r.edit(queue, "g", func(g *metadata.GroupRecord) {
			g.Rewind = &metadata.Rewind{Epoch: 8, To: core.Start{Mode: core.StartLatest, At: first}, Began: time.Now()}
		})
		r.publishNow(open, "5")
		_, err := r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartLatest}, 8)
		r.ok(err)
		r.skips(r.readGroup(queue, "g"), open, 3)
	})
}

// TestStart_ResumedLatest: the first call for a new group does not come to its end. The second one starts the group at
// what was latest when it was made.
func TestStart_ResumedLatest(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		old, open := r.sealed(queue, 4), r.extent(queue, 3)
		r.sleep(time.Minute)
		g := metadata.GroupRecord{
			ID: core.GroupID{ID: core.NewID(time.Now())}, Queue: queue, Created: time.Now(),
			Spec: core.GroupSpec{Name: "g", Status: core.StatusEnabled, Start: core.Start{Mode: core.StartLatest}},
		}
		r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), g))
		for _, s := range r.stores {
			r.kill(s.id)
		}
		if err := r.startGroup(r.ctl, queue, "g"); err == nil {
			t.Fatal("it knows where an extent is whose stores are all away")
		}
		for _, s := range r.stores {
			r.restart(s)
		}
		r.sleep(time.Second)
		r.publishNow(open, "4")
		r.ok(r.startGroup(r.ctl, queue, "g"))
		now := r.readGroup(queue, "g")
		r.skips(now, open, 3)
		r.skipsAll(now, old)
		if now.Spec.Start != g.Spec.Start {
			t.Errorf("its start is %+v, want %+v", now.Spec.Start, g.Spec.Start)
		}
	})
}
