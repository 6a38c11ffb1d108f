package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

// idle is a controller beside others that was not started.
func (r *harness) idle() *Host {
	r.t.Helper()
	cfg := DefaultConfig()
	h, err := New(cfg, Deps{Log: r.ctl.log, Metrics: prometheus.NewRegistry(), Meta: r.meta, Peers: r.ctl.pool, Members: r.members})
	r.ok(err)
	return h
}

// lived is an extent whose rows change one after another.
type lived struct {
	metadata.ExtentRecord
	stage int
}

// stages are the changes of an extent's rows, in their order.
var stages = []func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error{
	func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error { // hints
		for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
			if err := metadata.Write(ctx, s, metadata.Work, metadata.HintKey(hint, e.ID), e, time.Now(), 0, metadata.One); err != nil {
				return err
			}
		}
		return nil
	},
	func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error {
		return metadata.Write(ctx, s, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), e, time.Now(), 0, metadata.Quorum)
	},
	func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error {
		row := metadata.SealRecord{Extent: e.Extent, State: core.ExtentSealing, Version: 1, Home: e.Home, Changed: time.Now()}
		return metadata.Create(ctx, s, metadata.Seals, metadata.SealKey(e.ID), row)
	},
	inState(core.ExtentSealed),
	func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error { // all holders know the end
		return s.Remove(ctx, metadata.Work, metadata.HintKey(metadata.HintOpen, e.ID), time.Now(), metadata.One)
	},
	inState(core.ExtentRetiring),
	inState(core.ExtentRetired),
	func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error {
		return s.Remove(ctx, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), time.Now(), metadata.Quorum)
	},
	func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error {
		return s.Remove(ctx, metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), time.Now(), metadata.One)
	},
}

func inState(state core.ExtentState) func(context.Context, metadata.Store, metadata.ExtentRecord) error {
	return func(ctx context.Context, s metadata.Store, e metadata.ExtentRecord) error {
		_, err := metadata.Change(ctx, s, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
			row.State, row.L, row.Version, row.Holders, row.HolderDisks = state, 5, row.Version+1, e.Replicas, []core.DiskID{{}}
			return nil
		})
		return err
	}
}

// TestCatchUp_IsLikeAFullReading: two controllers know the same. Extents change at random. One reads those that were
// named, the other reads all.
func TestCatchUp_IsLikeAFullReading(t *testing.T) {
	const extents = 60
	for seed := range underrace.Of[uint64](4, 20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, harnessOptions{}, func(r *harness) {
				die := rand.New(rand.NewPCG(seed, 1))
				writer, queue := r.idle(), r.queue(1, 1)
				all := make([]lived, extents)
				for i := range all {
					created := time.Now()
					if die.IntN(2) == 0 { // it is not a young one
						created = created.Add(-time.Hour)
					}
					all[i].ExtentRecord = metadata.ExtentRecord{Wanted: 1, Created: created, Extent: core.Extent{
						ID: core.ExtentID{ID: core.NewID(created)}, Queue: queue, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: r.input.Run, Replicas: []core.HostID{"s0"},
					}}
				}
				live := func() {
					for i := range all {
						for to := all[i].stage + die.IntN(len(stages)+1-all[i].stage); all[i].stage < to; all[i].stage++ {
							r.ok(stages[all[i].stage](r.t.Context(), writer.deps.Meta, all[i].ExtentRecord))
						}
						r.sleep(time.Millisecond)
					}
				}
				live()
				some, full := r.idle(), r.idle()
				for _, h := range []*Host{some, full} {
					_, err := h.load(r.t.Context(), time.Now().Add(-unopenedAfter))
					r.ok(err)
				}
				after := writer.changes.last()
				live()
				reads := newReadings(time.Minute, mostFollowed)
				reads.take(answered{changed: writer.changes.since(after, mostChanges).changed}, time.Now())
				made := time.Now().Add(-unopenedAfter)
				r.ok(some.catchUp(r.t.Context(), reads.named, reads.ids(), made))
				_, err := full.load(r.t.Context(), made)
				r.ok(err)
				for _, e := range all {
					x, here := some.extents.Get(e.ID)
					y, there := full.extents.Get(e.ID)
					if diff := cmp.Diff(y, x); here != there || diff != "" {
						t.Errorf("an extent at stage %d is known %t, with a full reading %t: %s", e.stage, here, there, diff)
					}
				}
			})
		})
	}
}

// TestCatchUp_WithoutHints: an extent is known by its create row, and by its seal row. Nothing says that its holders
// know its end.
func TestCatchUp_WithoutHints(t *testing.T) {
	bubble(t, harnessOptions{}, func(r *harness) {
		writer, reader, queue := r.idle(), r.idle(), r.queue(1, 1)
		made := func(upTo int) metadata.ExtentRecord {
			e := metadata.ExtentRecord{Wanted: 1, Created: time.Now(), Extent: core.Extent{
				ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: r.input.Run, Replicas: []core.HostID{"s0"},
			}}
			for _, stage := range stages[1:upTo] {
				r.ok(stage(r.t.Context(), writer.deps.Meta, e))
			}
			return e
		}
		open, sealed, retired := made(2), made(4), made(7)
		reads := newReadings(time.Minute, mostFollowed)
		reads.take(answered{changed: writer.changes.since(0, mostChanges).changed}, time.Now())
		r.ok(reader.catchUp(r.t.Context(), reads.named, reads.ids(), time.Now()))
		if e, known := reader.extents.Get(open.ID); !known || e.State != core.ExtentOpen {
			t.Errorf("the open extent is known %t: %+v", known, e)
		}
		if e, known := reader.extents.Get(sealed.ID); !known || e.State != core.ExtentSealed || e.Told {
			t.Errorf("the sealed extent is known %t: %+v", known, e)
		}
		if e, known := reader.extents.Get(retired.ID); known {
			t.Errorf("the retired extent is known: %+v", e)
		}
	})
}

// TestCalm_MinorityReleases: the extents of a minority are like all others at the other controller, too, soon after
// their maker has said so.
func TestCalm_MinorityReleases(t *testing.T) {
	becalmed(t, time.Minute, func(r *harness, both [2]*running) {
		e := metadata.ExtentRecord{Wanted: 1, Created: time.Now(), Minority: both[1].maker(), Extent: core.Extent{
			ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: r.queue(1, 1), Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: r.input.Run, Replicas: []core.HostID{"s0"},
		}}
		for _, stage := range stages[:2] {
			r.ok(stage(r.t.Context(), both[1].deps.Meta, e))
		}
		r.reads(both[0], 0, 0, func() {
			for _, c := range both {
				c.meet(catalog.Extent{ExtentRecord: e, State: core.ExtentOpen, Home: e.Home})
			}
			both[1].minority.made()
			r.eventually("the other one knows that it is released", reloadOften+15*time.Second, func() bool {
				x, _ := both[0].extents.Get(e.ID)
				return x.Minority == (metadata.Maker{})
			})
		})
	})
}
