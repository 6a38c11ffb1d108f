package controller

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/test/scale"
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
			r.ok(r.meta.Remove(t.Context(), metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), time.Now(), metadata.One))
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
			r.ok(r.ctl.writeExtent(t.Context(), metadata.ExtentRecord{Extent: e, Wanted: 1, Created: time.Now()}, time.Now()))
		}
		reads := &countedReads{Store: r.meta}
		h, err := New(DefaultConfig(), Deps{Log: r.ctl.log, Metrics: prometheus.NewRegistry(), Meta: reads, Peers: r.ctl.pool, Members: r.members})
		r.ok(err)
		r.ok(h.firstLoad(r.t.Context()))
		if n := len(h.extents.Of(queue)); n != extents || reads.gets != 0 || reads.calls != 3 {
			t.Errorf("%d of %d extents are known after %d reads of rows and %d of up to %d; want 0 and 3", n, extents, reads.gets, reads.calls, sealRowsAtOnce)
		}
	})
}

// reads counts what a controller reads of tables in a time.
func (m *meter) reads(f func(), tables ...metadata.Table) (requests int) {
	m.take()
	f()
	for key, u := range m.take() {
		for _, t := range tables {
			if strings.HasPrefix(key, t.Name+" ") {
				requests += u.requests
			}
		}
	}
	return requests
}

// TestLoad_IdleControllersReadLittle: of two controllers with which nothing happens, neither reads all hints and seal rows
// every half minute.
func TestLoad_IdleControllersReadLittle(t *testing.T) {
	const queues, each = 60, 10
	bubble(t, harnessOptions{stores: 1, outputs: 2, edit: beside}, func(r *harness) {
		r.ctl.end()
		r.populate(scale.Size{Queues: queues, Extents: each, Behind: 1})
		plain, meters := r.meta, [2]*meter{newMeter(r.meta, 0), newMeter(r.meta, 0)}
		r.use(meters[0])
		r.ctl = r.startController(beside)
		r.answer(r.ctl)
		r.renews(0, 1)
		r.use(meters[1])
		other := r.beside("ctl2")
		defer other.end()
		r.use(plain)
		r.sleep(3 * time.Minute)
		for i, m := range meters {
			if n := m.reads(func() { r.sleep(reloadEvery) }, metadata.Seals); n > 2*queues*each {
				t.Errorf("controller %d has read %d seal rows in %s, of %d extents", i, n, reloadEvery, queues*each)
			}
		}
	})
}

// TestLoad_LearnsByNotes: a controller learns within half a minute of what another one did: an extent that was made and of
// which it was not told, a seal, and a change of a sealed extent.
func TestLoad_LearnsByNotes(t *testing.T) {
	two(t, harnessOptions{stores: 3}, func(r *harness, both [2]*running) {
		r.sleep(2 * reloadOften)
		e := r.extentOf(both, 1, 0, 5)
		if e.Queue.IsZero() || of(both, e.Queue) != 1 {
			t.Fatal("the extent is of a queue of the other controller")
		}
		known := func() catalog.Extent {
			x, _ := both[0].extents.Get(e.ID)
			return x
		}
		within := func(what string, f func() bool) {
			t.Helper()
			r.eventually(what, reloadOften+noteEvery+time.Second, f)
		}
		within("it knows the extent", func() bool { return known().ID == e.ID })
		_, err := r.sealBy(both[1], e, 5)
		r.ok(err)
		within("it knows the end", func() bool { return known().State == core.ExtentSealed && known().L == 5 && known().Told })
		_, err = metadata.Change(r.t.Context(), both[1].deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
			row.Rate, row.Version = 7, row.Version+1
			return nil
		})
		r.ok(err)
		within("it knows the rate", func() bool { return known().Rate == 7 })
	})
}

// lostNotes are metadata that take no notes of changes.
type lostNotes struct {
	metadata.Store
	lost atomic.Bool
}

func (s *lostNotes) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if s.lost.Load() && t == metadata.Work && strings.HasPrefix(k.Partition, "changes/") {
		return core.Errorf(core.CodeInternal, "no note")
	}
	return s.Store.Put(ctx, t, k, value, at, ttl, c)
}

// TestLoad_LearnsWithoutNotes: another controller whose notes do not come, or that leaves none since it is of an earlier
// version, hides no change.
func TestLoad_LearnsWithoutNotes(t *testing.T) {
	lost := &lostNotes{Store: memory.New()}
	bubble(t, harnessOptions{stores: 3, edit: beside, meta: lost}, func(r *harness) {
		r.answer(r.ctl)
		r.use(lost.Store)
		other := r.beside("ctl2")
		defer other.end()
		both := [2]*running{r.ctl, other}
		r.eventually("each has queues", time.Minute, func() bool { return of(both, r.queue(1, 1)) == 1 })
		r.eventually("each has queues", time.Minute, func() bool { return of(both, r.queue(1, 1)) == 0 })
		r.sleep(2 * reloadOften)
		lost.lost.Store(true)
		e := r.extentOf(both, 0, 1, 5)
		_, err := r.sealBy(both[0], e, 5)
		r.ok(err)
		r.eventually("the other one knows the end", 2*reloadOften, func() bool {
			x, _ := other.extents.Get(e.ID)
			return x.State == core.ExtentSealed && x.L == 5
		})
	})
}
