package repair

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/controller/repair/backlog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// harness is an owner of one extent and the stores that have it. A replica is good, or it is damaged.
type harness struct {
	Replicas // the calls that a test does not expect
	stores   *catalog.Stores
	extents  *catalog.Extents
	damaged  map[core.HostID]bool
	absent   bool // no store that is asked has it
	removed  []core.HostID
	id       core.ExtentID
}

func (c *harness) extent() catalog.Extent {
	e, _ := c.extents.Get(c.id)
	return e
}

func (c *harness) place(id core.HostID) core.Place {
	st, _ := c.stores.Get(id)
	return st.Place()
}

func (c *harness) Moved(core.Extent)                           {}
func (c *harness) Gained(context.Context, metadata.SealRecord) {}

func (c *harness) Rank(_ core.ExtentID, _ []string, among []core.HostID) []core.HostID {
	return slices.Sorted(slices.Values(among))
}

func (c *harness) Verify(_ context.Context, _ metadata.SealRecord, at core.Place) error {
	if c.damaged[at.Store] {
		return core.Errorf(core.CodeCorrupt, "it is damaged")
	}
	return nil
}

func (c *harness) Get(_ context.Context, _ core.ExtentID, at core.Place) (*pb.Replica, error) {
	if c.absent {
		return nil, core.Errorf(core.CodeNotFound, "it is not here")
	}
	return nil, core.Errorf(core.CodeUnavailable, "it cannot be told")
}

func (c *harness) Remove(_ context.Context, _ metadata.SealRecord, at core.Place) error {
	c.removed = append(c.removed, at.Store)
	return nil
}

// newRunner is of an extent with a copy on each of four stores, of which three are wanted.
func newRunner(t *testing.T) (*Runner, *harness) {
	t.Helper()
	gauge, counter := prometheus.NewGauge(prometheus.GaugeOpts{}), prometheus.NewCounter(prometheus.CounterOpts{})
	c := &harness{stores: catalog.NewStores(), extents: catalog.NewExtents(), damaged: make(map[core.HostID]bool)}
	row := metadata.SealRecord{Extent: core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}}, State: core.ExtentSealed, L: 3, Version: 1}
	for _, id := range []core.HostID{"s0", "s1", "s2", "s3"} {
		c.stores.Adopt([]membership.Host{{ID: id}}, time.Now())
		c.stores.Answered(id, core.StoreIdentity{Store: id, Disk: core.DiskID{ID: core.NewID(time.Now())}}, placement.Load{}, false, time.Now())
		row.SetPlaces(append(row.Places(), c.place(id)))
	}
	row.Extent.Replicas = row.Holders[:3]
	c.id = row.Extent.ID
	c.extents.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: row.Extent, Wanted: 3}}.Took(row))
	meta := memory.New()
	if err := metadata.Create(t.Context(), meta, metadata.Seals, metadata.SealKey(row.Extent.ID), row); err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Responsible: all, Meta: meta, Extents: c.extents, Stores: c.stores, Now: time.Now, Log: slog.New(slog.DiscardHandler), Blink: time.Second, GoneAfter: time.Minute, AtOnce: 1, PerSecond: 1,
		Metrics: Metrics{Below: gauge, Short: gauge, Lost: gauge, Made: counter, Quarantined: counter},
	}, c, c), c
}

func TestRepair_DropsTheSurplus(t *testing.T) {
	r, c := newRunner(t)
	if err := r.repair(t.Context(), c.id, false); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.removed, []core.HostID{"s3"}) || len(c.extent().Holders) != 3 || c.extent().Holds("s3") {
		t.Errorf("removed from %v, holders %v; want the one that was not among the first replicas", c.removed, c.extent().Holders)
	}
	if err := r.repair(t.Context(), c.id, false); err != nil || len(c.removed) != 1 {
		t.Errorf("once more: %v, removed from %v", err, c.removed)
	}
}

// TestRepair_SurplusOnlyBesideVerifiedCopies: a copy looks like one too many, but another one is damaged and nobody has
// said so yet.
func TestRepair_SurplusOnlyBesideVerifiedCopies(t *testing.T) {
	r, c := newRunner(t)
	c.damaged["s1"] = true
	if err := r.repair(t.Context(), c.id, false); err != nil {
		t.Fatal(err)
	}
	if len(c.removed) > 0 || len(c.extent().Holders) != 4 {
		t.Errorf("removed from %v, holders %v: one of three good copies was dropped", c.removed, c.extent().Holders)
	}
	r.Doubt(t.Context(), c.id, c.place("s1"))
	if len(c.extent().Holders) != 3 || c.extent().Holds("s1") {
		t.Errorf("holders %v, want all but the damaged one", c.extent().Holders)
	}
}

// TestRemoveSurplus_HolderWithoutItsCopy: a holder lost its copy, and another store has one too many. The looks at both
// are asked for at the same time, again and again, and the one at the surplus is always the first.
func TestRemoveSurplus_HolderWithoutItsCopy(t *testing.T) {
	r, c := newRunner(t)
	if err := r.repair(t.Context(), c.id, false); err != nil { // s3 is no holder from now on
		t.Fatal(err)
	}
	c.damaged["s1"] = true
	r.RemoveSurplus(t.Context(), c.id, c.place("s3"))
	if len(c.removed) != 1 || c.extent().Holds("s1") {
		t.Errorf("removed from %v, holders %v; want the surplus kept, and a holder dropped that has nothing", c.removed, c.extent().Holders)
	}
}

func all(core.ID) bool { return true }

// TestRepair_LeavesTheQueuesOfOtherControllers: nothing of them is looked for, nor done when it was found before.
func TestRepair_LeavesTheQueuesOfOtherControllers(t *testing.T) {
	r, c := newRunner(t)
	r.sweep()
	r.cfg.Responsible = func(core.ID) bool { return false }
	if err := r.repair(t.Context(), c.id, false); err != nil || len(c.removed) > 0 {
		t.Errorf("removed from %v, %v", c.removed, err)
	}
	other, _ := newRunner(t)
	other.cfg.Responsible = func(core.ID) bool { return false }
	other.sweep()
	if id, ok := other.backlog.Next(false, time.Now(), func(error) {}); ok {
		t.Errorf("extent %s of another controller's queue is to be repaired", id)
	}
	r.cfg.Responsible = all
	if id, ok := r.backlog.Next(false, time.Now(), func(error) {}); !ok || id != c.id {
		t.Error("the extent of an own queue is not to be repaired")
	}
}

// TestSweep_OneLineOfFailures: without stores the repair of every extent fails. The log has one line of all for each
// sweep.
func TestSweep_OneLineOfFailures(t *testing.T) {
	r, _ := newRunner(t)
	var log bytes.Buffer
	r.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 10_000 {
		r.failed(core.ExtentID{ID: core.NewID(time.Now())}, core.Errorf(core.CodeUnavailable, "no store is there"))
	}
	r.sweep()
	r.sweep()
	text := log.String()
	if n := strings.Count(text, "stay as they are"); n != 1 || !strings.Contains(text, "tries=10000") || !strings.Contains(text, "no store is there") || len(text) > 1000 {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// TestSweep_WaitsForStores: while no store answers no extent is looked at. If the holders of one are away, and the
// others do not have it, it is looked at once. A store that comes starts another look.
func TestSweep_WaitsForStores(t *testing.T) {
	r, c := newRunner(t)
	now := time.Now().Add(time.Hour)
	r.cfg.Now = func() time.Time { return now }
	away := func(ids ...core.HostID) {
		for _, id := range ids {
			for range 3 {
				c.stores.Failed(id, core.Errorf(core.CodeUnavailable, "away"))
			}
		}
	}
	next := func(what string, want bool) {
		t.Helper()
		r.sweep()
		if _, is := r.backlog.Next(true, now, func(error) {}); is != want {
			t.Errorf("%s: an extent is to be looked at: %t, want %t", what, is, want)
		}
	}
	away("s0", "s1", "s2", "s3")
	next("no store answers", false)
	c.stores.Adopt([]membership.Host{{ID: "s4"}}, now)
	c.stores.Answered("s4", core.StoreIdentity{Store: "s4", Disk: core.DiskID{ID: core.NewID(now)}}, placement.Load{}, false, now)
	for _, mute := range []bool{true, false} {
		next("one that may have it answers", true)
		c.absent = !mute
		err := r.repair(t.Context(), c.id, true)
		if core.CodeOf(err) != core.CodeUnavailable || errors.Is(err, backlog.ErrAway) == mute {
			t.Errorf("it cannot tell %t: %v", mute, err)
		}
		r.backlog.Ended(c.id, err, now)
		now = now.Add(time.Minute)
	}
	next("it does not have it", false)
	r.Sweep()
	next("another store comes", true)
}

// TestRepair_RestsWhileNothingChanges: all extents are judged again at once when one got other holders, or a holder is
// doubted, and each minute at least. While a store is away, or there is something to do, time alone may change what is
// to be done.
func TestRepair_RestsWhileNothingChanges(t *testing.T) {
	r, c := newRunner(t)
	now := time.Now()
	r.cfg.Now = func() time.Time { return now }
	rests := func(what string, want bool) {
		t.Helper()
		if is := r.rests(now); is != want {
			t.Errorf("%s: it rests: %t, want %t", what, is, want)
		}
	}
	holders := func(n int) {
		c.extents.Change(c.id, func(e *catalog.Extent) {
			e.Holders, e.Version = e.Holders[:n], e.Version+1
		})
	}
	rests("before the first sweep", false)
	r.sweep()
	rests("with a copy too many", false)
	holders(3)
	r.sweep()
	rests("with all copies", true)
	now = now.Add(calmEvery)
	rests("after a minute", false)
	r.sweep()
	rests("with all copies", true)
	holders(2)
	rests("with other holders", false)
	r.sweep()
	rests("with a copy too few", false)
	c.extents.Change(c.id, func(e *catalog.Extent) { e.Holders, e.Version = append(e.Holders, c.place("s2")), e.Version+1 })
	r.sweep()
	rests("with all copies", true)
	r.distrust(c.id, c.place("s2"))
	rests("with a doubt", false)
	r.sweep()
	rests("with a doubt", false)
	r.trust(c.id)
	r.sweep()
	rests("with all copies", true)
	for range 3 {
		c.stores.Failed("s1", core.Errorf(core.CodeUnavailable, "away"))
	}
	r.sweep()
	rests("with a store that is away", false)
	for _, id := range []core.HostID{"s0", "s2", "s3"} {
		for range 3 {
			c.stores.Failed(id, core.Errorf(core.CodeUnavailable, "away"))
		}
	}
	now = now.Add(2 * r.cfg.GoneAfter)
	r.sweep()
	rests("with all stores gone", true)
}
