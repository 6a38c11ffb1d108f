package cluster

import (
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
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

// aimAtControllers turns half of the faults of hosts to controllers, and a half of these to faults that they alone have. Those
// about two hosts are about two controllers in one of three cases.
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

// calmLead is for how long nothing happens before faults of which controllers are to be calm.
const calmLead = 2 * time.Minute

// becalm has controllers be calm soon, in half of the schedules, and the faults begin when they are.
func (s *schedule) becalm(random *rand.Rand) {
	if random.IntN(2) == 0 {
		return
	}
	s.calmAfter = 40 * time.Second
	for i := range s.events {
		s.events[i].at += calmLead
	}
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
