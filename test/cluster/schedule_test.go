package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
)

// schedule is one run's choices: all come from its seed.
type schedule struct {
	seed        uint64
	flag        string // that runs the seed alone; empty: -seed
	stores      int
	controllers int
	single      bool // there is a queue without replication
	destroy     bool // a disk loses what it had, or some of it
	latency     time.Duration
	gossip      time.Duration // most that news of a host take
	roll        uint64        // bytes of an extent
	calmAfter   time.Duration // of controllers: they no longer read all rows before the faults begin; 0: as they do by default
	events      []event
}

// event is one thing that goes wrong, and when it ends.
type event struct {
	at, lasts time.Duration
	kind      kind
	a, b      core.HostID // b of those that are about two hosts
	side      []core.HostID
	n         int64 // how much, or a seed
}

type kind string

const (
	kindCrash     kind = "crash"      // killed, and started again
	kindRestart   kind = "restart"    // gracefully
	kindPower     kind = "power cut"  // of a store
	kindAllStores kind = "all stores" // a power cut of all stores
	kindPause     kind = "pause"      // the process stands still
	kindIsolate   kind = "isolate"    // from everybody
	kindSplit     kind = "split"      // side from the rest
	kindOneWay    kind = "one way"    // packets from a to b are lost
	kindCut       kind = "cut"        // packets between a and b are lost
	kindNoMeta    kind = "no metadata"
	kindAllMeta   kind = "no metadata for all"
	kindBadMeta   kind = "bad metadata" // answers are lost and late
	kindReset     kind = "reset"        // connections between a and b break
	kindSlow      kind = "slow disk"
	kindBroken    kind = "broken disk" // fails in the middle of a sync, with the process
	kindWipe      kind = "wipe"        // another disk under the same name
	kindDamage    kind = "damage"      // a bit flipped or an end cut off on the disk
	kindClock     kind = "clock"       // jumps
	kindSuspect   kind = "suspect"     // a is missing from b's view, wrongly
)

// weights are how often which kind is drawn.
var weights = []struct {
	kind   kind
	weight int
}{
	{kindCrash, 6}, {kindRestart, 2}, {kindPower, 3}, {kindAllStores, 1}, {kindPause, 5}, {kindIsolate, 3}, {kindSplit, 3}, {kindOneWay, 4}, {kindCut, 4},
	{kindNoMeta, 2}, {kindAllMeta, 1}, {kindBadMeta, 2}, {kindReset, 3}, {kindSlow, 2}, {kindBroken, 2}, {kindWipe, 1}, {kindDamage, 1}, {kindClock, 1}, {kindSuspect, 3},
}

// draw makes the schedule of a seed with that many events, for a cluster with that many controllers.
func draw(seed uint64, steps, controllers int) *schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &schedule{seed: seed, stores: 3 + r.IntN(3), controllers: controllers}
	s.latency = []time.Duration{0, 200 * time.Microsecond, 5 * time.Millisecond}[r.IntN(3)]
	s.gossip = []time.Duration{time.Millisecond, time.Second, 4 * time.Second}[r.IntN(3)]
	s.roll = []uint64{2_000, 5_000, 1 << 30}[r.IntN(3)]
	hosts := s.hosts()
	var stores []core.HostID
	for i := range s.stores {
		stores = append(stores, Store(i))
	}
	one := func(from []core.HostID) core.HostID { return from[r.IntN(len(from))] }
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	destroyed := false
	at := time.Duration(0)
	for range steps {
		at += time.Duration(r.IntN(3000)) * time.Millisecond
		e := event{at: at, lasts: time.Duration(100+r.ExpFloat64()*4000) * time.Millisecond, n: r.Int64()}
		pick := r.IntN(total)
		for _, w := range weights {
			if pick -= w.weight; pick < 0 {
				e.kind = w.kind
				break
			}
		}
		e.lasts = min(e.lasts, 20*time.Second)
		switch e.kind {
		case kindPower, kindSlow, kindBroken, kindWipe, kindDamage:
			e.a = one(stores)
		default:
			e.a = one(hosts)
		}
		for e.b = one(hosts); e.b == e.a; e.b = one(hosts) {
		}
		switch e.kind {
		case kindSplit:
			for _, h := range append(slices.Clone(hosts), "metadata-0") {
				if r.IntN(2) == 0 {
					e.side = append(e.side, h)
				}
			}
		case kindWipe, kindDamage:
			if destroyed { // more than one lost copy is more than the replicas are for
				e.kind = kindPower
			}
			destroyed = true
		}
		s.events = append(s.events, e)
	}
	s.single = !destroyed && r.IntN(2) == 0
	s.destroy = destroyed
	if controllers > 1 {
		s.aimAtControllers(rand.New(rand.NewPCG(seed, 9)))
		s.becalm()
	}
	return s
}

// copies is how few an extent may have: what has one may be lost when a disk is.
func (s *schedule) copies() int {
	if s.destroy {
		return 2
	}
	return 1
}

func (s *schedule) hosts() []core.HostID {
	out := []core.HostID{Controller, Frontend, InputOf(0), InputOf(1), OutputOf(0), OutputOf(1)}
	for i := range s.stores {
		out = append(out, Store(i))
	}
	return append(out, s.controllerHosts()[1:]...)
}

func (e event) String() string {
	text := fmt.Sprintf("%8s +%-8s %s %s", e.at, e.lasts.Round(time.Millisecond), e.kind, e.a)
	switch e.kind {
	case kindOneWay, kindCut, kindReset, kindSuspect:
		text += " " + string(e.b)
	case kindSplit:
		text = strings.TrimSuffix(text, string(e.a)) + fmt.Sprint(e.side)
	}
	return text
}

func (s *schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "-%s=%d -steps=%d -controllers=%d: %d stores, latency up to %s, gossip up to %s, extents of %d bytes, single %t, calm after %s\n",
		cmp.Or(s.flag, "seed"), s.seed, len(s.events), s.controllers, s.stores, s.latency, s.gossip, s.roll, s.single, s.calmAfter)
	for _, e := range s.events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}
