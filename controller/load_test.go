package controller

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// besides is a second controller in the cluster of the first.
func (r *harness) besides() *running {
	r.join(membership.Host{ID: "ctl2", Roles: []string{"controller"}, Address: "ctl2:1", Run: newRun()})
	c := r.startController(nil)
	return c
}

// change changes the seal row of an extent behind the controllers.
func (r *harness) change(e core.Extent, f func(*metadata.SealRecord)) {
	r.t.Helper()
	_, err := metadata.Change(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
		f(row)
		return nil
	})
	r.ok(err)
}

// loads has a controller read the rows of all extents.
func (r *harness) loads(c *running) {
	r.t.Helper()
	_, err := c.load(r.t.Context(), time.Time{})
	r.ok(err)
}

// TestLoad_LearnsWhatOthersDid: a controller knows within half a minute what another one sealed, and retired. It
// forgets nothing for a hint that is lost.
func TestLoad_LearnsWhatOthersDid(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		made := func() core.Extent { return r.extent(r.queue(3, 2), 5) }
		sealed, retired, lost := made(), made(), made()
		other := r.besides()
		defer other.end()
		for _, e := range []core.Extent{sealed, retired} {
			_, err := r.seal(e, 3)
			r.ok(err)
		}
		r.change(sealed, func(row *metadata.SealRecord) { row.Rate = 7 })
		r.change(retired, func(row *metadata.SealRecord) { row.State = core.ExtentRetired })
		for _, e := range []core.Extent{retired, lost} {
			r.ok(r.meta.Remove(r.t.Context(), metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), time.Now(), metadata.One))
		}
		r.sleep(reloadOften + time.Second)
		if e, known := other.extents.Get(sealed.ID); !known || e.State != core.ExtentSealed || e.L != 5 || len(e.Holders) != 3 || e.Rate != 7 {
			t.Errorf("the extent that another controller sealed is known here: %t, as %+v", known, e)
		}
		if _, known := other.extents.Get(retired.ID); known {
			t.Error("what another controller retired is not forgotten")
		}
		if _, known := other.extents.Get(lost.ID); !known {
			t.Error("an extent is forgotten for its lost hint")
		}
	})
}

// countedReads is metadata that counts reads.
type countedReads struct {
	metadata.Store
	gets, calls int
}

func (s *countedReads) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	s.gets++
	return s.Store.Get(ctx, t, k, c)
}

func (s *countedReads) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	s.calls++
	return metadata.GetRows(ctx, s.Store, t, keys, c)
}

// TestLoad_ReadsInPages: a controller that starts asks for the seal rows of many extents in one call.
func TestLoad_ReadsInPages(t *testing.T) {
	const extents = 1200
	bubble(t, harnessOptions{}, func(r *harness) {
		queue := r.queue(1, 1)
		for range extents {
			e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: r.input.Run, Replicas: []core.HostID{"s0"}}
			r.ok(r.ctl.writeExtent(r.t.Context(), metadata.ExtentRecord{Extent: e, Wanted: 1, Created: time.Now()}, time.Now()))
		}
		reads := &countedReads{Store: r.meta}
		cfg := DefaultConfig()
		cfg.Alone = true
		h, err := New(cfg, Deps{Log: r.ctl.log, Metrics: prometheus.NewRegistry(), Meta: reads, Peers: r.ctl.pool, Members: r.members})
		r.ok(err)
		r.ok(h.Start(r.t.Context()))
		if n := len(h.extents.Of(queue)); n != extents || reads.gets != 0 || reads.calls != 3 {
			t.Errorf("%d of %d extents are known after %d reads of rows and %d of up to %d; want 0 and 3", n, extents, reads.gets, reads.calls, sealRowsAtOnce)
		}
	})
}

// TestLoad_ForgetsInPages: a controller asks for the seal rows of many extents that others have retired in few calls.
// Slow metadata would answer a call for each not within the time of a reading.
func TestLoad_ForgetsInPages(t *testing.T) {
	const extents = 1200
	bubble(t, harnessOptions{}, func(r *harness) {
		queue := r.queue(1, 1)
		h := r.idle()
		var all []core.Extent
		for range extents {
			e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: r.input.Run, Replicas: []core.HostID{"s0"}}
			r.ok(r.ctl.writeExtent(r.t.Context(), metadata.ExtentRecord{Extent: e, Wanted: 1, Created: time.Now()}, time.Now()))
			all = append(all, e)
		}
		found, err := h.load(r.t.Context(), time.Time{})
		r.ok(err)
		if n := len(h.extents.Of(queue)); n != extents || found != extents {
			t.Fatalf("%d extents are known, %d were found", n, found)
		}
		for _, e := range all {
			r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentRetired, Version: 1, Changed: time.Now()}))
			r.ok(r.meta.Remove(r.t.Context(), metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), time.Now(), metadata.One))
		}
		reads := &countedReads{Store: r.meta}
		h.deps.Meta = reads
		found, err = h.load(r.t.Context(), time.Time{})
		r.ok(err)
		if n := len(h.extents.Of(queue)); n != 0 || reads.gets != 0 || reads.calls != 3 {
			t.Errorf("%d extents are known after %d reads of rows and %d of up to %d; want none after 0 and 3", n, reads.gets, reads.calls, sealRowsAtOnce)
		}
		if again, err := h.load(r.t.Context(), time.Time{}); found != extents || again != 0 || err != nil {
			t.Errorf("%d changes were found, and %d when nothing had changed, %v", found, again, err)
		}
	})
}
