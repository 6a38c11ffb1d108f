package progress

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// TestProgress has a group that has consumed an extent, one that was rewound since, one that is half made, one that was
// deleted, and one that is on its way.
func TestProgress(t *testing.T) {
	ctx, meta, now := t.Context(), memory.New(), time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	defer meta.Close()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	queue, e := core.QueueID{ID: core.NewID(now)}, core.ExtentID{ID: core.NewID(now)}
	row := metadata.SealRecord{Extent: core.Extent{ID: e, Queue: queue}, L: 10}
	for i, g := range []metadata.GroupRecord{
		{Spec: core.GroupSpec{Name: "a"}, Started: true},
		{Spec: core.GroupSpec{Name: "b"}, Started: true, Epoch: 1},
		{Spec: core.GroupSpec{Name: "c"}},
		{Spec: core.GroupSpec{Name: "d", Status: core.StatusDeleted}, Started: true},
		{Spec: core.GroupSpec{Name: "e", Status: core.StatusDisabled}, Started: true},
	} {
		g.ID, g.Queue = core.GroupID{ID: core.ID{15: byte(i + 1)}}, queue
		ok(metadata.Create(ctx, meta, metadata.Groups, metadata.GroupKey(queue, g.Spec.Name), g))
		if i < 4 {
			ok(metadata.Write(ctx, meta, metadata.Dones, metadata.DoneKey(g.ID, e, 0), metadata.DoneRecord{L: 10}, now, 0, metadata.One))
		}
		state := dispatch.StartAfter(core.Seq(i + 3))
		ok(meta.Put(ctx, metadata.Checkpoints, metadata.CheckpointKey(g.ID, e, g.Epoch, core.RunID{}), state.Append(nil), now, 0, metadata.One))
	}
	p, names, err := Read(ctx, meta, queue, nil)
	ok(err)
	if got := p.Consumed(e); !slices.EqualFunc(got, []time.Time{now, {}, {}, {}}, time.Time.Equal) {
		t.Errorf("consumed at %v, want only by the first", got)
	}
	if n, err := p.Unconsumed(ctx, meta, row); err != nil || n != 6 { // b, which begins again, is at 4
		t.Errorf("%d unconsumed, %v; want 6", n, err)
	}
	if n, err := (Progress{}).Unconsumed(ctx, meta, row); err != nil || n != 10 {
		t.Errorf("without a group %d are unconsumed, %v", n, err)
	}
	var removed acklevel.Window
	for _, seq := range []core.Seq{2, 6, 10} {
		removed.Ack(seq)
	}
	thinned := row
	thinned.Removed, _ = removed.Append(nil)
	thinned.RemovedCount = 3
	if n, err := p.Unconsumed(ctx, meta, thinned); err != nil || n != 4 { // of the six two were removed
		t.Errorf("%d unconsumed of what selections have left, %v; want 4", n, err)
	}
	if n, err := (Progress{}).Unconsumed(ctx, meta, thinned); err != nil || n != 7 {
		t.Errorf("without a group %d are unconsumed of what selections have left, %v", n, err)
	}
	names["gone"] = struct{}{}
	if _, _, err := Read(ctx, meta, queue, names); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("a list that lacks a group: %v", err)
	}
	ok(Forget(ctx, meta, row, NewPlace(), now.Add(-time.Hour))) // by a clock that is behind
	for _, g := range p {
		rows, _, err := meta.List(ctx, metadata.Checkpoints, metadata.CheckpointPartition(g.ID, e), "", 1, metadata.Quorum)
		ok(err)
		var dones []metadata.DoneRecord
		for d, err := range metadata.DonesOf(ctx, meta, g.ID, e, metadata.One) {
			ok(err)
			dones = append(dones, d.Value)
		}
		if len(rows) > 0 || len(dones) != 1 || !dones[0].In(g.Epoch) {
			t.Errorf("group %s has %d checkpoints and %+v", g.Spec.Name, len(rows), dones)
		}
	}
}
