package cluster

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
)

// nemesis does to a cluster what a schedule says. One goroutine uses it.
type nemesis struct {
	*trial
	random  *rand.Rand
	began   time.Time
	todo    []step // in the order of their time
	started int    // steps so far, for the order of those at one time
	broken  chan core.HostID
	ends    map[int]func() // of what goes on, by number
	down    map[core.HostID]time.Time
	damaged core.HostID
	doomed  *event // a disk that is to be lost once everything is on another one too
}

// step is a thing to do at a time.
type step struct {
	at time.Time
	n  int
	do func()
}

func newNemesis(t *trial) *nemesis {
	return &nemesis{
		trial: t, random: rand.New(rand.NewPCG(t.plan.seed, 2)), began: time.Now(), broken: make(chan core.HostID, 16),
		ends: make(map[int]func()), down: make(map[core.HostID]time.Time),
	}
}

func (n *nemesis) at(at time.Time, do func()) {
	n.started++
	n.todo = append(n.todo, step{at, n.started, do})
	slices.SortStableFunc(n.todo, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.n, b.n)) })
}

// run plays the schedule to its end, then heals everything.
func (n *nemesis) run(events []event) {
	for _, e := range events {
		n.at(n.began.Add(e.at), func() { n.begin(e) })
	}
	n.until(n.began.Add(events[len(events)-1].at + 2*time.Second))
	n.heal()
}

// until does what is to do up to a time.
func (n *nemesis) until(end time.Time) {
	timer := time.NewTimer(time.Hour) // one that begins at 0 races with the clock of synctest
	defer timer.Stop()
	for {
		next := end
		if len(n.todo) > 0 && n.todo[0].at.Before(end) {
			next = n.todo[0].at
		}
		if left := time.Until(next); left > 0 {
			timer.Reset(left)
			select {
			case id := <-n.broken:
				n.breaks(id)
				continue
			case <-timer.C:
			}
		}
		if len(n.todo) == 0 || n.todo[0].at.After(time.Now()) {
			return
		}
		s := n.todo[0]
		n.todo = n.todo[1:]
		s.do()
	}
}

// lasting notes a fault that ends by itself after a while.
func (n *nemesis) lasting(e event, end func()) {
	from := time.Now()
	n.started++
	number := n.started
	once := func() {
		if n.ends[number] != nil {
			delete(n.ends, number)
			end()
			n.crashed(string(e.kind)+" "+string(e.a), from, time.Now())
		}
	}
	n.ends[number] = once
	n.at(time.Now().Add(e.lasts), once)
}

func (n *nemesis) begin(e event) {
	n.say("%s", e)
	h := n.hosts[e.a]
	switch e.kind {
	case kindCrash:
		n.kill(e.a, (*memdisk.Disk).Crash, e.lasts)
	case kindPower:
		n.kill(e.a, (*memdisk.Disk).Cut, e.lasts)
	case kindAllStores:
		for i := range n.plan.stores {
			n.kill(Store(i), (*memdisk.Disk).Cut, e.lasts)
		}
	case kindRestart:
		n.restart(e.a)
	case kindPause:
		n.lasting(e, n.Hold(e.a))
	case kindIsolate:
		n.lasting(e, n.separate([]core.HostID{e.a}))
	case kindSplit:
		n.lasting(e, n.separate(e.side))
	case kindOneWay:
		n.lasting(e, n.net.drop(path{h.addr, n.hosts[e.b].addr}))
	case kindCut:
		n.lasting(e, n.net.drop(path{h.addr, n.hosts[e.b].addr}, path{n.hosts[e.b].addr, h.addr}))
	case kindNoMeta:
		n.lasting(e, n.net.drop(path{h.addr, metaAddr}))
	case kindAllMeta:
		n.lasting(e, n.separate([]core.HostID{"metadata-0"}))
	case kindNoAnswers:
		n.lasting(e, n.net.drop(path{metaAddr, h.addr}))
	case kindBadMeta:
		n.badMeta(e)
	case kindLateWrites:
		n.lateWrites(e)
	case kindSlowHost:
		n.lasting(e, n.net.slow(h.addr, time.Duration(100+e.n%900)*time.Millisecond))
	case kindReset:
		n.Cut(e.a, e.b)
		n.crashed("reset", time.Now(), time.Now())
	case kindSlow:
		h.disk.Slow(time.Duration(50+e.n%1000) * time.Millisecond)
		n.lasting(e, func() { h.disk.Slow(0) })
	case kindBroken:
		if h.process != nil {
			h.disk.FailAt(1+int(e.n%50), func() { n.broken <- e.a })
		}
	case kindWipe, kindDamage:
		n.doomed = &e
		n.destroy()
	case kindClock:
		n.load.skewed(time.Duration(e.n%240-120) * time.Second)
		h.skew.Store(int64(time.Duration(e.n%240-120) * time.Second))
		n.crashed("clock", time.Now(), time.Now())
	case kindSuspect:
		n.must(n.roster.suspect(e.b, e.a, 1))
		n.lasting(e, func() { n.must(n.roster.suspect(e.b, e.a, -1)) })
	}
}

// destroy takes the doomed disk away, or some of what is on it: now, or as soon as everything is on another one too.
func (n *nemesis) destroy() {
	e := n.doomed
	switch {
	case e == nil:
		return
	case n.hosts[e.a].process == nil, !n.onTwoDisks():
		n.at(time.Now().Add(100*time.Millisecond), n.destroy)
		return
	}
	n.doomed = nil
	n.say("now: %s", e)
	if e.kind == kindWipe {
		n.kill(e.a, (*memdisk.Disk).Wipe, e.lasts)
		return
	}
	n.damaged = e.a
	n.kill(e.a, n.damage, e.lasts)
}

func (n *nemesis) damage(d *memdisk.Disk) {
	d.Cut()
	what, err := d.Damage(n.random)
	n.must(err)
	n.say("damage: %s", what)
}

// kill ends a host that runs, and starts it again later.
func (n *nemesis) kill(id core.HostID, left func(*memdisk.Disk), lasts time.Duration) {
	h := n.hosts[id]
	if h.process == nil {
		return
	}
	if h.disk != nil {
		h.disk.FailAt(0, nil)
	}
	h.crash(left)
	n.down[id] = time.Now()
	n.at(time.Now().Add(lasts), func() { n.up(id) })
}

// breaks ends a host in the middle of a sync.
func (n *nemesis) breaks(id core.HostID) {
	n.say("the disk of %s breaks", id)
	n.kill(id, (*memdisk.Disk).Cut, 3*time.Second)
}

func (n *nemesis) restart(id core.HostID) {
	h := n.hosts[id]
	if h.disk != nil {
		h.disk.FailAt(0, nil)
		for len(n.broken) > 0 { // in the same moment; a host would wait for its sync until it is killed
			n.breaks(<-n.broken)
		}
	}
	if h.process == nil {
		return
	}
	n.down[id] = time.Now()
	h.stop()
	n.up(id)
}

// up starts a host, and tries again when it cannot start now. A store whose disk is beyond repair gets an empty one.
func (n *nemesis) up(id core.HostID) {
	h := n.hosts[id]
	if h.process != nil {
		return
	}
	h.run = newRun()
	err := h.start()
	switch {
	case err == nil:
		n.tell(id)
		n.crashed("down "+string(id), n.down[id], time.Now())
		return
	case n.damaged == id: // nothing on the disk can be used
		h.disk.Wipe()
	}
	n.say("%s does not start: %v", id, err)
	n.at(time.Now().Add(time.Second), func() { n.up(id) })
}

// separate loses all packets between the hosts of a side and the others; clients are with the others. Membership
// follows.
func (n *nemesis) separate(side []core.HostID) (heal func()) {
	addr := func(id core.HostID) string { return string(id) + ":1" }
	all := append(slices.Clone(n.order), "metadata-0")
	var paths []path
	var news []func()
	for _, in := range side {
		paths = append(paths, path{addr(in), "client"}, path{"client", addr(in)})
		for _, out := range all {
			if slices.Contains(side, out) {
				continue
			}
			paths = append(paths, path{addr(in), addr(out)}, path{addr(out), addr(in)})
			if n.hosts[in] != nil && n.hosts[out] != nil {
				news = append(news, n.estrange(in, out), n.estrange(out, in))
			}
		}
	}
	through := n.net.drop(paths...)
	return func() {
		through()
		for _, f := range news {
			f()
		}
	}
}

// estrange makes an observer miss a host after a while, and find it again a while after the end.
func (n *nemesis) estrange(observer, subject core.HostID) (end func()) {
	var mu sync.Mutex
	over, missed := false, false
	n.later(2*time.Second+n.gossip(), func() {
		mu.Lock()
		defer mu.Unlock()
		if missed = !over; missed {
			n.must(n.roster.suspect(observer, subject, 1))
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if over = true; missed {
			n.later(n.gossip(), func() { n.must(n.roster.suspect(observer, subject, -1)) })
		}
	}
}

// badMeta loses answers of the metadata, does some calls late, and others never.
func (n *nemesis) badMeta(e event) {
	h := n.hosts[e.a]
	if h.process == nil {
		return
	}
	gate := h.process.meta
	bad := faulty.New(open{n.behind}, faulty.Faults{Seed: uint64(e.n), Before: 0.2, Lost: 0.2, Delay: 50 * time.Millisecond})
	store := metadata.Store(bad)
	gate.way.Store(&store)
	n.lasting(e, func() {
		gate.way.Store(nil)
		n.wg.Go(func() { bad.Close() })
	})
}

// open is a store that its user cannot close.
type open struct{ metadata.Store }

func (open) Close() error { return nil }

// heal ends all faults and starts everything.
func (n *nemesis) heal() {
	for len(n.ends) > 0 {
		for _, number := range sortedKeys(n.ends) {
			if end := n.ends[number]; end != nil {
				end()
			}
		}
	}
	for _, h := range n.hosts {
		if h.disk != nil {
			h.disk.FailAt(0, nil)
		}
	}
	n.todo = nil
	n.allUp()
	if e := n.doomed; e != nil {
		n.destroy()
		for range 60 {
			if n.doomed == nil {
				break
			}
			n.until(time.Now().Add(time.Second))
		}
		if n.doomed != nil {
			n.t.Errorf("a minute after all faults something is on one disk only")
		}
		n.until(time.Now().Add(e.lasts + time.Second))
		n.allUp()
	}
	n.until(time.Now().Add(n.trial.plan.gossip + time.Second)) // all news have spread
	n.must(n.roster.trustAll())
}

// onTwoDisks reports whether every extent that has an end is whole on more than one disk, if it ever was: what the seal
// row says of it does not matter. An extent without an end is on the disks of all stores that acknowledged it.
func (t *trial) onTwoDisks() bool {
	for r, err := range metadata.All[metadata.SealRecord](context.Background(), t.Meta, metadata.Seals, metadata.PartitionID, metadata.One) {
		t.must(err)
		s, whole := r.Value, 0
		for i := range t.plan.stores {
			if p := t.hosts[Store(i)].process; p != nil {
				state, err := p.log.State(s.Extent.ID)
				whole += boolInt(err == nil && !state.Damaged && (state.Last > s.L || state.Last == s.L && state.Checksum == s.Checksum))
			}
		}
		if s.State.HasEnd() && s.State != core.ExtentRetired && whole < min(2, len(s.Extent.Replicas)) {
			return false
		}
	}
	return true
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// allUp starts what is down.
func (n *nemesis) allUp() {
	for range 60 {
		n.until(time.Now().Add(time.Second))
		up := true
		for _, id := range n.order {
			if n.hosts[id].process == nil {
				up = false
				n.up(id)
			}
		}
		if up {
			break
		}
	}
}

func sortedKeys[V any](m map[int]V) []int {
	var out []int
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
