package controller

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/majority"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata/memory"
)

// verdict is the state of a controller with its text. The metric has the same state.
func (c *running) verdict(t *testing.T) string {
	t.Helper()
	v, _ := c.lacksMajority()
	for _, s := range majority.States() {
		if is := gaugeOf(t, c.metrics.majority.WithLabelValues(string(s))); (is == 1) != (s == v.State) {
			t.Errorf("the state is %s, and the metric of %s is %v", v.State, s, is)
		}
	}
	return strings.TrimSpace(string(v.State) + " " + v.Text())
}

// TestMajority_ReadsThatHang: a controller notices within seconds that no majority answers, and at once that one does
// again.
func TestMajority_ReadsThatHang(t *testing.T) {
	meta := &hanging{Store: memory.New()}
	bubble(t, harnessOptions{edit: beside, meta: meta}, func(r *harness) {
		r.sleep(time.Minute)
		meta.hangs.Store(true)
		r.eventually("the controller is in an outage", 4*time.Second, func() bool { return r.ctl.verdict(t) == "outage outage of the metadata" })
		err := r.ctl.noMajority(core.QueueID{})
		if text := err.Error(); !strings.Contains(text, "no majority here (outage of the metadata)") || !strings.Contains(text, "; start") {
			t.Errorf("a CP queue says %q", text)
		}
		r.ctl.watch.mu.Lock()
		since := r.ctl.watch.mu.since
		r.ctl.watch.mu.Unlock()
		if time.Since(since) < 2*time.Second || time.Since(since) > 5*time.Second {
			t.Errorf("the outage counts since %s ago", time.Since(since))
		}
		r.sleep(time.Minute)
		meta.hangs.Store(false)
		r.eventually("a majority answers", 3*time.Second, func() bool { return r.ctl.verdict(t) == "majority" })
	})
}

// TestMajority_OneFailedRead of the leases is no lack of a majority: nobody is asked, and nothing logged.
func TestMajority_OneFailedRead(t *testing.T) {
	meta := &refusing{Store: memory.New()}
	two(t, harnessOptions{meta: meta}, func(r *harness, both [2]*running) {
		asked := r.countAsked(both[1])
		r.sleep(time.Minute)
		for range 5 {
			before := lackingOf(both[0])
			meta.on.Store(true)
			r.eventually("a read fails", 2*time.Second, func() bool { return lackingOf(both[0]) != before })
			meta.on.Store(false)
			r.sleep(5 * time.Second)
		}
		if is := both[0].verdict(t); is != "majority" || asked.Load() > 0 || strings.Contains(r.log.text(), "no majority of the metadata answers") {
			t.Errorf("the controller is in the state %s, and has asked another one %d times", is, asked.Load())
		}
	})
}

func lackingOf(c *running) time.Time {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	return c.watch.mu.lacking
}

// countAsked counts the questions that a controller gets about its majority.
func (r *harness) countAsked(c *running) *atomic.Int64 {
	var n atomic.Int64
	_, handler := columbav1connect.NewControllerServiceHandler(&service{c.Host})
	self := c.deps.Members.Self()
	r.kill(self.ID)
	r.serve(self.Address, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/DescribeMajority") {
			n.Add(1)
		}
		handler.ServeHTTP(w, req)
	}))
	return &n
}

// TestMajority_AsksOnceASecond, and only while no majority answers.
func TestMajority_AsksOnceASecond(t *testing.T) {
	meta := &refusing{Store: memory.New()}
	two(t, harnessOptions{meta: meta}, func(r *harness, both [2]*running) {
		asked := r.countAsked(both[1])
		r.sleep(time.Minute)
		if n := asked.Load(); n > 0 {
			t.Errorf("a controller with a majority has asked the other one %d times", n)
		}
		meta.on.Store(true)
		r.sleep(time.Minute)
		if n := asked.Load(); n < 50 || n > 60 {
			t.Errorf("a controller without a majority has asked the other one %d times in a minute", n)
		}
		for _, c := range both {
			if is := c.verdict(t); is != "outage outage of the metadata" {
				t.Errorf("a controller is in the state %s", is)
			}
		}
		meta.on.Store(false)
		r.sleep(3 * time.Second)
		before := asked.Load()
		r.sleep(time.Minute)
		if n := asked.Load(); n != before {
			t.Errorf("a controller with a majority has asked the other one %d times", n-before)
		}
	})
}

// TestMajority_KnowsOthersForMinutes: a controller that died some minutes before may be on the other side of a cut. One
// that is gone for longer does not count; none is forgotten in a cut.
func TestMajority_KnowsOthersForMinutes(t *testing.T) {
	meta := &refusing{Store: memory.New()}
	two(t, harnessOptions{meta: meta}, func(r *harness, both [2]*running) {
		first := both[0]
		r.cut.on.Store(true) // the second one loses its lease
		r.kill("ctl2")
		without := slices.DeleteFunc(slices.Clone(r.members.Hosts("")), func(m membership.Host) bool { return m.ID == "ctl2" })
		r.ok(r.members.Set(without))
		r.sleep(2 * time.Minute)
		meta.on.Store(true)
		r.sleep(10 * time.Second)
		for range 2 {
			if is := first.verdict(t); is != "cut cut off from ctl2" {
				t.Errorf("the controller is in the state %s", is)
			}
			r.sleep(otherKnownFor)
		}
		meta.on.Store(false)
		r.sleep(otherKnownFor + 10*time.Second)
		meta.on.Store(true)
		r.sleep(10 * time.Second)
		if is := first.verdict(t); is != "outage outage of the metadata" {
			t.Errorf("the controller is in the state %s, and knows nobody else", is)
		}
		meta.on.Store(false)
	})
}

// TestMajority_AfterACrash: the session lease of a controller's former run does not make the controller a silent one
// beside itself.
func TestMajority_AfterACrash(t *testing.T) {
	meta := &refusing{Store: memory.New()}
	two(t, harnessOptions{meta: meta}, func(r *harness, both [2]*running) {
		r.crash(both[1])
		again := r.beside("ctl2")
		defer again.end()
		r.eventually("it sees the lease of its former run", 5*time.Second, func() bool { return slices.Contains(again.duties.Others(), "ctl2") })
		r.sleep(time.Minute)
		meta.on.Store(true)
		r.sleep(10 * time.Second)
		if is := again.verdict(t); is != "outage outage of the metadata" {
			t.Errorf("the controller that was started again is in the state %s", is)
		}
		meta.on.Store(false)
	})
}

// TestMajority_OtherErrorsSayNothing of a majority.
func TestMajority_OtherErrorsSayNothing(t *testing.T) {
	bubble(t, harnessOptions{edit: beside}, func(r *harness) {
		for range 5 {
			r.ctl.heardMajority(time.Now(), core.Errorf(core.CodeCorrupt, "injected"))
			r.sleep(time.Second)
		}
		if is := r.ctl.verdict(t); is != "majority" {
			t.Errorf("the controller is in the state %s", is)
		}
	})
}
