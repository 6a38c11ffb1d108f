package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/clocks"
)

// TestClocks_WrongHostsGetNoWork: while the clock of a store is an hour wrong, it gets no extents, and its open timer
// extents are sealed. An output host with such a clock gets no groups.
func TestClocks_WrongHostsGetNoWork(t *testing.T) {
	bubble(t, harnessOptions{stores: 4, outputs: 3, edit: calm}, func(r *harness) {
		queue := r.queue(3, 2)
		timers := r.wish(queue)
		timers.kind, timers.ahead = core.KindTimer, core.HorizonHour
		var held []core.Extent
		for range 4 { // each store is in some
			e, err := r.ctl.createExtent(r.t.Context(), timers)
			r.ok(err)
			held = append(held, e)
		}
		r.ahead("s0", time.Hour)
		r.ahead("o0", -time.Hour)
		open := func(id core.ExtentID) bool {
			return slices.ContainsFunc(r.ctl.extents.OpenOf(queue), func(e catalog.Extent) bool { return e.ID == id })
		}
		wrong := func(ids ...core.HostID) func() bool {
			return func() bool {
				return !slices.ContainsFunc(ids, func(id core.HostID) bool { return !r.ctl.skewed.wrong(id) })
			}
		}
		r.eventually("both clocks are wrong", 2*clocks.Every, wrong("s0", "o0"))
		for range 20 {
			e, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
			r.ok(err)
			if len(e.Replicas) != 3 || slices.Contains(e.Replicas, "s0") {
				t.Errorf("replicas %v, want the three whose clocks are right", e.Replicas)
			}
		}
		if outputs, _ := r.ctl.candidates("outputhost"); len(outputs) != 2 || slices.ContainsFunc(outputs, func(c placement.Candidate) bool { return c.ID == "o0" }) {
			t.Errorf("owners may be %v, want o1 and o2", outputs)
		}
		for _, e := range held {
			if is := open(e.ID); slices.Contains(e.Replicas, "s0") && is {
				r.eventually("extent of timers on s0 is sealed", time.Minute, func() bool { return !open(e.ID) })
			} else if !slices.Contains(e.Replicas, "s0") && !is {
				t.Errorf("extent %s of timers on %v was sealed", e.ID, e.Replicas)
			}
		}
		if n := r.value(r.ctl.metrics.skew.WithLabelValues("s0")); n < 3598 || n > 3602 {
			t.Errorf("the metric says that s0 is ahead by %v s", n)
		}
		if !strings.Contains(r.log.text(), `the clock of a host is wrong`) || !strings.Contains(r.log.text(), "host=o0 ahead=-1h0m") {
			t.Error("the log does not name the hosts")
		}

		if _, err := r.ctl.ensureExtent(r.t.Context(), timers); err != nil {
			t.Errorf("an input host whose clock is right: %v", err)
		}

		r.ahead("s0", 0)
		r.eventually("the clocks are right again", 2*clocks.Every, func() bool { return !r.ctl.skewed.wrong("s0") })
		_, err := r.ctl.ensureExtent(r.t.Context(), timers)
		r.ok(err)

		late := &fakeStore{
			r: r, id: "s9", free: 90, disk: core.DiskID{ID: core.NewID(time.Now())}, run: newRun(),
			replicas: make(map[core.ExtentID]*fakeReplica), removed: make(map[core.ExtentID]removal), calls: make(map[string]int),
		}
		r.ahead("s9", 2*time.Hour)
		r.up(late)
		r.join(membership.Host{ID: late.id, Roles: []string{"storehost"}, Address: "s9:1", Run: late.run})
		r.eventually("a host that joins with a wrong clock is found out", time.Second, wrong("s9"))
	})
}

// hostsWithSkew is of how many hosts the metric has a value.
func (r *harness) hostsWithSkew() int {
	r.t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(r.ctl.metrics.skew)
	families, err := reg.Gather()
	r.ok(err)
	return len(families[0].Metric)
}

// TestClocks_Silent: a host whose clock is wrong and that does not say its time for a while gets no work meanwhile.
// When it is gone, so is its metric.
func TestClocks_Silent(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		r.ahead("s0", -time.Hour)
		r.eventually("the clock is wrong", 2*clocks.Every, func() bool { return r.ctl.skewed.wrong("s0") })
		r.kill("s0")
		for range 4 * clocks.Every / time.Second {
			if r.sleep(time.Second); !r.ctl.skewed.wrong("s0") {
				t.Fatal("the clock is right since nobody can read it")
			}
		}
		if n := r.hostsWithSkew(); n != 5 {
			t.Errorf("the metric has %d hosts, want all 5", n)
		}
		r.leave("s0")
		r.eventually("the metric has only hosts that are there", time.Second, func() bool { return r.hostsWithSkew() == 4 })
	})
}

// TestClocks_TwoHosts: of two hosts that differ nobody is refused: nobody can tell whose clock is wrong.
func TestClocks_TwoHosts(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		r.leave("in")
		r.ahead("s0", time.Hour)
		r.eventually("both are named", 2*clocks.Every, func() bool { return strings.Count(r.log.text(), "differs from the others'") == 2 })
		if r.ctl.skewed.wrong("s0") || r.ctl.skewed.wrong("ctl") {
			t.Error("one of two hosts is refused")
		}
	})
}

// TestClocks_OnlyStore: when there is no other store, one with a wrong clock takes extents: late is better than never.
func TestClocks_OnlyStore(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		r.ahead("s0", time.Hour)
		r.eventually("its clock is wrong", 2*clocks.Every, func() bool { return r.ctl.skewed.wrong("s0") })
		if _, err := r.ctl.createExtent(r.t.Context(), r.wish(r.queue(1, 1))); err != nil {
			t.Error(err)
		}
	})
}
