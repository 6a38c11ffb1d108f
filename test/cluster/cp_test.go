package cluster

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/tools/verify"
)

var (
	chainSeed  = flag.Uint64("chainseed", 0, "run the schedule of this seed alone against cp queues")
	chainSeeds = flag.Int("chainseeds", seeds(30), "seeds to run against cp queues")
)

// TestChains runs random schedules of faults against CP queues, whose publishers lose their connections and their
// patience as well.
//
//	go test ./test/cluster -run Chains -chainseed=N
func TestChains(t *testing.T) {
	if *chainSeed > 0 {
		tryChains(t, *chainSeed)
		return
	}
	seeds := []uint64{1279} // has failed: the disk of an only holder was lost
	for i := range underrace.Of(1, *chainSeeds) {
		seeds = append(seeds, *firstFlag+uint64(i))
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			tryChains(t, seed)
		})
	}
}

func tryChains(t *testing.T, seed uint64) {
	s := draw(seed, steps(8), *ctlFlag)
	s.single, s.flag = false, "chainseed"
	random := rand.New(rand.NewPCG(seed, 7))
	aimAtInputs(s, random)
	patience := []time.Duration{2 * time.Second, 30 * time.Second}
	publish, wait := patience[random.IntN(2)], patience[random.IntN(2)]
	synctest.Test(t, func(t *testing.T) {
		r := &trial{t: t, plan: s, load: newChains(s), calm: make(chan struct{})}
		r.mu.random = rand.New(rand.NewPCG(s.seed, 3))
		r.Cluster = Start(t, Options{
			Stores: s.stores, Controllers: s.controllers, Inputs: 2, Outputs: 2, Replicas: 3, Gossip: r.gossip, Logs: r.keep, Divergence: divergence(s.seed),
			Meta: r.watched, Controller: s.controller,
			Input: func(c *inputhost.Config) { c.RollBytes, c.PublishDeadline, c.IdleAfter = s.roll, wait, 5*time.Second },
		})
		defer r.Close()
		defer r.report()
		r.witness.looksAt(r.Meta)
		r.net.delays(s.latency, rand.New(rand.NewPCG(s.seed, 4)))
		r.runChains(random, publish)
	})
}

// aimAtInputs turns half of the faults of hosts to those that write.
func aimAtInputs(s *schedule, random *rand.Rand) {
	for i := range s.events {
		e := &s.events[i]
		switch e.kind {
		case kindCrash, kindRestart, kindPause, kindIsolate, kindOneWay, kindCut, kindNoMeta, kindReset, kindSuspect:
			if random.IntN(2) == 0 {
				e.a = InputOf(random.IntN(2))
			}
			for hosts := s.hosts(); e.a == e.b; {
				e.b = hosts[random.IntN(len(hosts))]
			}
		}
	}
}

// newChains is the load of two queues, each with a group that consumes at once and one that consumes when all is over.
func newChains(s *schedule) *load {
	l := &load{queues: []core.QueueSpec{
		{Path: "/s/strict", Consistency: core.CP, Replicas: 3, MinReplicas: 2},
		{Path: "/s/loose", Consistency: core.CP, Replicas: 3, MinReplicas: s.copies()},
	}}
	l.mu.receipts = make(map[verify.Key]core.Receipt)
	l.mu.got = make(map[string]map[verify.Key]bool)
	for _, q := range l.queues {
		for _, name := range []string{"calm", "late"} {
			l.groups = append(l.groups, group(q.Path, name))
			l.mu.got[q.Path+" "+name] = make(map[verify.Key]bool)
		}
	}
	return l
}

func (t *trial) runChains(random *rand.Rand, timeout time.Duration) {
	t.createQueues()
	t.createGroups()
	defer t.watchDuties()()
	var publishers, consumers sync.WaitGroup
	stopPublishers, stopConsumers := make(chan struct{}), make(chan struct{})
	for _, q := range t.load.queues {
		for i := range 2 {
			random := rand.New(rand.NewPCG(random.Uint64(), 0))
			publishers.Go(func() { t.publishInOrder(q.Path, fmt.Sprintf("p%d", i), random, timeout, stopPublishers) })
		}
	}
	for _, g := range t.load.groups {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		consumers.Go(func() {
			if g.Name == "late" {
				<-t.calm
				time.Sleep(2 * slack) // nothing explains what it gets in another order
			}
			t.consume(g, g.Name, random, stopConsumers)
		})
	}
	newNemesis(t).run(t.plan.events)
	t.say("calm")
	close(t.calm)
	close(stopPublishers)
	publishers.Wait()
	t.drain()
	close(stopConsumers)
	consumers.Wait()
	for _, q := range t.load.queues {
		t.load.mu.history.Chains = append(t.load.mu.history.Chains, t.chain(q.Path))
	}
	t.judge()
	t.judgeWitness()
}

// publishInOrder publishes through a network port of its own, whose connections break now and then.
func (t *trial) publishInOrder(queue, name string, random *rand.Rand, timeout time.Duration, stop <-chan struct{}) {
	var p *client.Publisher
	port := t.net.attach("client")
	cl, err := t.dial(port)
	for err == nil && p == nil {
		if p, err = cl.Publisher(t.t.Context(), queue, client.PublishTimeout(timeout)); err != nil {
			t.say("publisher %s: %v", name, err)
			time.Sleep(time.Second)
			err = nil
		}
	}
	t.must(err)
	for seq := uint64(1); !closed(stop); seq++ {
		key := verify.Key{Queue: queue, Publisher: name, Seq: seq}
		body := fmt.Appendf(nil, "%s/%d/%s", name, seq, bytes.Repeat([]byte("x"), random.IntN(100)))
		crc := crc32.Checksum(body, castagnoli)
		err := p.PublishAsync(t.t.Context(), client.Message{Body: body}, func(r client.Receipt, err error) { t.outcome(key, crc, r, err) })
		if err != nil {
			t.t.Errorf("publisher %s: %v", name, err)
			break
		}
		switch random.IntN(40) {
		case 0:
			t.crashed("connection of "+name, time.Now(), time.Now())
			host := InputOf(random.IntN(2))
			t.say("%s %s loses %s", queue, name, host)
			t.CutClients(host)
		case 1: // long enough for the queue to become idle
			select {
			case <-stop:
			case <-time.After(8 * time.Second):
			}
		}
		if random.IntN(4) > 0 { // else a burst
			select {
			case <-stop:
			case <-time.After(time.Duration(random.ExpFloat64() * float64(200*time.Millisecond))):
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.t.Errorf("close publisher %s: %v", name, err)
	}
	if err := cl.Close(); err != nil {
		t.t.Errorf("close the client of %s: %v", name, err)
	}
	port.kill()
}

// chain is the extents of a CP queue; their places are 1, 2, 3 … and each was sealed before the next was made.
func (t *trial) chain(queue string) verify.Chain {
	q, err := t.Client.Admin().GetQueue(t.t.Context(), queue)
	t.must(err)
	var all []core.Extent
	for r, err := range metadata.All[metadata.ExtentRecord](t.t.Context(), t.Meta, metadata.Extents, q.ID.String(), metadata.One) {
		t.must(err)
		all = append(all, r.Value.Extent)
	}
	slices.SortFunc(all, func(a, b core.Extent) int { return int(a.Chain) - int(b.Chain) })
	out := verify.Chain{Queue: queue}
	var places []string
	for i, e := range all {
		if e.Chain != uint64(i+1) {
			t.t.Errorf("queue %s: extent %s has place %d, want %d", queue, e.ID, e.Chain, i+1)
		}
		row, _, err := metadata.Read[metadata.SealRecord](t.t.Context(), t.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
		if i < len(all)-1 && (err != nil || !row.State.HasEnd()) {
			t.t.Errorf("queue %s: place %d is %q (%v) and has a successor", queue, e.Chain, row.State, err)
		}
		out.Extents = append(out.Extents, e.ID)
		places = append(places, fmt.Sprintf("%s:%d", e.Input, row.L))
	}
	t.say("%s: %s", queue, strings.Join(places, " "))
	return out
}
