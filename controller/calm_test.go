package controller

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// countedLists is metadata that counts listings of hints.
type countedLists struct {
	metadata.Store
	live atomic.Int64
}

func (s *countedLists) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Work && strings.HasPrefix(partition, string(metadata.HintLive)+"/") {
		s.live.Add(1)
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// readAll is how often a controller has read the rows of all extents, since it started.
func (r *harness) readAll(c *running) int {
	r.t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c.metrics.readAll)
	families, err := reg.Gather()
	r.ok(err)
	return int(families[0].Metric[0].GetHistogram().GetSampleCount())
}

// becalmed has two controllers that are calm after some minutes, and have been so for a while.
func becalmed(t *testing.T, after time.Duration, f func(r *harness, both [2]*running)) {
	t.Helper()
	two(t, harnessOptions{stores: 3, edit: func(c *Config) {
		seldom(c)
		c.CalmAfter = after
	}}, func(r *harness, both [2]*running) {
		r.sleep(max(after, namedFor) + 2*time.Minute)
		f(r, both)
	})
}

// reads checks how often a controller reads all rows while f runs.
func (r *harness) reads(c *running, least, most int, f func()) {
	r.t.Helper()
	before := r.readAll(c)
	f()
	if n := r.readAll(c) - before; n < least || n > most {
		r.t.Errorf("controller %s has read all rows %d times, want %d to %d", c.deps.Members.Self().ID, n, least, most)
	}
}

// TestCalm_AllRowsAreReadSeldom: two controllers that nothing happens to read all rows every half a minute for ten
// minutes, and then every ten minutes.
func TestCalm_AllRowsAreReadSeldom(t *testing.T) {
	lists := &countedLists{}
	edit := func(c *Config) {
		if seldom(c); lists.Store == nil { // it is made in the bubble
			lists.Store = memory.New()
		}
	}
	two(t, harnessOptions{stores: 1, edit: edit, meta: lists}, func(r *harness, both [2]*running) {
		r.sealed(r.queue(1, 1), 3)
		for _, c := range both {
			r.reads(c, 4, 6, func() { r.sleep(2*time.Minute + 15*time.Second) })
		}
		r.sleep(7 * time.Minute)
		before := lists.live.Load()
		r.sleep(7 * time.Minute)
		if n := lists.live.Load() - before; n != 0 {
			t.Errorf("hints were listed %d times though nothing happened", n)
		}
		r.sleep(4 * time.Minute)
		if n := lists.live.Load() - before; n != 2*metadata.HintShards {
			t.Errorf("hints were listed %d times, want each shard once by each controller", n)
		}
	})
}

// TestCalm_OneController: one without others reads all rows after ten minutes, then after twenty and then every forty.
// Every ten minutes it reads which extents there are. When it finds one it reads all rows after ten minutes again.
func TestCalm_OneController(t *testing.T) {
	bubble(t, harnessOptions{edit: beside}, func(r *harness) {
		r.sleep(time.Minute) // it has read all rows since it became responsible for the queues
		reads := func(pauses ...time.Duration) {
			for _, pause := range pauses {
				r.reads(r.ctl, 0, 0, func() { r.sleep(pause - time.Minute) })
				r.reads(r.ctl, 1, 1, func() { r.sleep(time.Minute) })
			}
		}
		reads(reloadEvery, 2*reloadEvery, reloadSeldom, reloadSeldom)
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: r.queue(1, 1), Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: r.input.Run, Replicas: []core.HostID{"s0"}}
		r.ok(r.idle().writeExtent(r.t.Context(), metadata.ExtentRecord{Extent: e, Wanted: 1, Created: time.Now()}, time.Now()))
		r.reads(r.ctl, 0, 0, func() { r.sleep(reloadEvery) })
		if _, known := r.ctl.extents.Get(e.ID); !known {
			t.Error("an extent is not known after ten minutes")
		}
		reads(reloadEvery, 2*reloadEvery)
	})
}

// TestCalm_LearnsWhatOthersDid: a new extent, its end, that all holders know it, and its retirement, each within half a
// minute.
func TestCalm_LearnsWhatOthersDid(t *testing.T) {
	becalmed(t, time.Minute, func(r *harness, both [2]*running) {
		r.reads(both[1], 0, 0, func() {
			e := r.extentOf(both, 0, 0, 5)
			within := reloadOften + 5*time.Second
			r.eventually("the extent is known", within, func() bool { _, known := both[1].extents.Get(e.ID); return known })
			_, err := r.sealBy(both[0], e, 5)
			r.ok(err)
			r.eventually("its end is known", within, func() bool {
				is, _ := both[1].extents.Get(e.ID)
				return is.State == core.ExtentSealed && is.L == 5 && is.Told
			})
			_, err = metadata.Change(r.t.Context(), both[0].deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
				row.State, row.Version = core.ExtentRetired, row.Version+1
				return nil
			})
			r.ok(err)
			r.ok(both[0].deps.Meta.Remove(r.t.Context(), metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), time.Now(), metadata.One))
			r.eventually("it is forgotten", within, func() bool { _, known := both[1].extents.Get(e.ID); return !known })
		})
		if n := r.value(both[1].metrics.learned); n == 0 {
			t.Error("no extent was learned from the other one")
		}
	})
}

// TestCalm_OneDoesNotAnswer: all rows are read while one does not answer, and no longer.
func TestCalm_OneDoesNotAnswer(t *testing.T) {
	becalmed(t, time.Minute, func(r *harness, both [2]*running) {
		r.kill("ctl2")
		r.reads(both[0], 2, 2, func() { r.sleep(2 * reloadOften) })
		r.answer(both[1])
		r.reads(both[0], 0, 0, func() { r.sleep(4 * reloadOften) })
	})
}

// TestCalm_OneStartsAgain: all rows are read for as long as a new run is new.
func TestCalm_OneStartsAgain(t *testing.T) {
	const after = 5 * time.Minute
	becalmed(t, after, func(r *harness, both [2]*running) {
		both[1].end()
		r.kill("ctl2")
		r.further = nil
		r.leave("ctl2")
		again := r.beside("ctl2")
		defer again.end()
		r.reads(both[0], 9, 12, func() { r.sleep(after - reloadOften) })
		r.sleep(3 * reloadOften)
		for _, c := range []*running{both[0], again} {
			r.reads(c, 0, 0, func() { r.sleep(2 * time.Minute) })
		}
	})
}

// TestCalm_OneIsNotShown: gossip loses the other controller, which goes on: it holds its session lease. All rows are
// read meanwhile, so what it does is known as soon as ever.
func TestCalm_OneIsNotShown(t *testing.T) {
	becalmed(t, time.Minute, func(r *harness, both [2]*running) {
		shown := r.members.Hosts("")
		r.ok(r.members.Set(slices.DeleteFunc(slices.Clone(shown), func(m membership.Host) bool { return m.ID == "ctl2" })))
		r.reads(both[0], 3, 5, func() { r.sleep(2*time.Minute + 5*time.Second) })
		if !both[0].duties.Holds() || !both[1].duties.Holds() {
			t.Error("one of them gave its lease back: the test shows nothing")
		}
		r.ok(r.members.Set(shown))
	})
}

// TestCalm_TooManyChanges: one that cannot name all that it changed has the other one read all rows, until nothing of
// it can come late.
func TestCalm_TooManyChanges(t *testing.T) {
	becalmed(t, namedFor, func(r *harness, both [2]*running) {
		for i := range mostChanges + 1 {
			both[1].changes.add(changed{id: numbered(i)})
		}
		r.reads(both[0], 5, 6, func() { r.sleep(namedFor + 2*reloadOften) })
		r.reads(both[0], 0, 0, func() { r.sleep(4 * reloadOften) })
	})
}

// TestCalm_LateWrites: an extent is known soon after its rows, though they come more than a minute after the change was
// named.
func TestCalm_LateWrites(t *testing.T) {
	for _, x := range []struct {
		name string
		by   int // whose change it is
		rows func(r *harness, e metadata.ExtentRecord)
	}{
		{"the create row", 1, func(r *harness, e metadata.ExtentRecord) {
			r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), e, time.Now(), 0, metadata.One))
		}},
		{"a hint", 1, func(r *harness, e metadata.ExtentRecord) {
			r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), e, time.Now(), 0, metadata.One))
		}},
		{"its own change", 0, func(r *harness, e metadata.ExtentRecord) {
			r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Work, metadata.HintKey(metadata.HintLive, e.ID), e, time.Now(), 0, metadata.One))
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			underrace.One(t, x.name == "a hint")
			becalmed(t, time.Minute, func(r *harness, both [2]*running) {
				queue := r.queue(1, 1)
				e := metadata.ExtentRecord{Wanted: 1, Created: time.Now().Add(-unopenedAfter), Extent: core.Extent{
					ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", InputRun: r.input.Run, Replicas: []core.HostID{"s0"},
				}}
				both[x.by].changes.wrote(metadata.Extents, metadata.ExtentKey(queue, e.ID))
				r.reads(both[0], 0, 0, func() {
					r.sleep(namedFor - 5*time.Second)
					x.rows(r, e)
					r.eventually("it is known", reloadOften+5*time.Second, func() bool { _, known := both[0].extents.Get(e.ID); return known })
				})
			})
		})
	}
}
