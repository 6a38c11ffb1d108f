package cluster

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Faults that controllers alone have, where there are several.
const (
	kindNoAnswers  kind = "no answers"  // of the metadata: calls are done, and their answers are lost
	kindLateWrites kind = "late writes" // to the metadata: they are done when the fault ends, whoever still waits for them
	kindSlowHost   kind = "slow"
)

// controllerHosts are the ids of the controllers.
func (s *schedule) controllerHosts() (out []core.HostID) {
	for i := range s.controllers {
		out = append(out, ControllerOf(i))
	}
	return out
}

// aimAtControllers turns half of the faults of hosts to controllers, and a half of these to faults that they alone
// have. Those about two hosts are about two controllers in one of three cases.
func (s *schedule) aimAtControllers(random *rand.Rand) {
	controllers, all := s.controllerHosts(), s.hosts()
	for i := range s.events {
		e := &s.events[i]
		switch e.kind {
		case kindCrash, kindRestart, kindPause, kindIsolate, kindOneWay, kindCut, kindNoMeta, kindBadMeta, kindReset, kindClock, kindSuspect:
		default:
			continue
		}
		if random.IntN(2) == 0 {
			continue
		}
		e.a = controllers[random.IntN(len(controllers))]
		others := all
		if random.IntN(3) == 0 {
			others = controllers
		}
		for e.b = e.a; e.b == e.a; {
			e.b = others[random.IntN(len(others))]
		}
		switch own := []kind{kindNoAnswers, kindLateWrites, kindSlowHost}; {
		case random.IntN(2) == 0:
			e.kind = own[random.IntN(len(own))]
		case (e.kind == kindOneWay || e.kind == kindSuspect) && random.IntN(2) == 0:
			e.a, e.b = e.b, e.a
		}
	}
}

const (
	// calmIn is one of how many seeds has calm controllers: a cluster under load costs as much in calmLead as under all of
	// its faults.
	calmIn = 4
	// calmAfter is less than the pause between two readings of all rows: controllers are calm from the third round on.
	calmAfter = 20 * time.Second
	// calmLead is for how long nothing happens before faults of which controllers are to be calm.
	calmLead = 95 * time.Second
)

// becalm has controllers be calm soon, in the schedules of some seeds, and the faults begin when they are.
func (s *schedule) becalm() {
	if s.seed%calmIn > 0 {
		return
	}
	s.calmAfter = calmAfter
	for i := range s.events {
		s.events[i].at += calmLead
	}
}

// TestBecalm_FaultsMeetCalmControllers: under load, controllers no longer read all rows when the faults of such a
// schedule begin.
func TestBecalm_FaultsMeetCalmControllers(t *testing.T) {
	s := draw(calmIn, 6, 2)
	bubble(t, Options{Controllers: 2, Inputs: 2, Outputs: 2, Controller: s.controller, Input: rollAt(1_000)}, func(w *world) {
		stop := w.load(1)
		lists := new(atomic.Int64)
		count := func(_ context.Context, op Op) error {
			if op.Name == "List" && op.Table == metadata.Work.Name && strings.HasPrefix(op.Key.Partition, string(metadata.HintLive)+"/") {
				lists.Add(1)
			}
			return nil
		}
		for _, id := range s.controllerHosts() {
			w.OnMeta(id, count)
		}
		sleep(time.Minute)
		if lists.Load() == 0 {
			t.Error("no controller reads all rows in the first minute")
		}
		sleep(s.events[0].at - time.Minute)
		lists.Store(0)
		sleep(40 * time.Second)
		if n := lists.Load(); n > 0 {
			t.Errorf("after %s hints were listed %d times in 40 s", s.events[0].at, n)
		}
		stop()
	})
}

// controller edits the configuration of controllers.
func (s *schedule) controller(c *controller.Config) {
	if s.calmAfter > 0 {
		c.CalmAfter = s.calmAfter
	}
}

// lateWrites has a process's writes to the metadata arrive when the fault ends.
func (n *nemesis) lateWrites(e event) {
	h := n.hosts[e.a]
	if h.process == nil {
		return
	}
	gate := h.process.meta
	late := &delayed{arrive: make(chan struct{}), carry: n.wg.Go}
	gate.late.Store(late)
	n.lasting(e, func() {
		gate.late.CompareAndSwap(late, nil)
		close(late.arrive)
	})
}
