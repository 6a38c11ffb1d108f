package cluster

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/tools/verify"
)

var (
	churnSeed  = flag.Uint64("churnseed", 0, "run the churn of this seed alone, in full length")
	churnSeeds = flag.Int("churnseeds", 0, "seeds of churn to run in full length; 0: three that are short")
)

const (
	churnFor   = 5 * time.Minute
	churnShort = 30 * time.Second
	churnRoll  = 1200 // bytes of an extent: some dozen messages
)

// TestChurn rolls the extents of CP and AP queues all the time, while a tenth of the compare-and-sets of each
// controller time out, half of which are done, and stores and controllers die. At no time a CP queue has two open
// heads, and no extent is lost.
//
//	go test ./test/cluster -run Churn -churnseed=N
//	go test ./test/cluster -run Churn -churnseeds=100 -timeout 6h
func TestChurn(t *testing.T) {
	if *churnSeed > 0 {
		tryChurn(t, *churnSeed, churnFor)
		return
	}
	many, lasts := 3, churnShort
	if *churnSeeds > 0 {
		many, lasts = *churnSeeds, churnFor
	}
	for i := range many {
		seed := *firstFlag + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			underrace.One(t, i == 0)
			tryChurn(t, seed, lasts)
		})
	}
}

// churn is the schedule of a seed.
func churn(seed uint64, lasts time.Duration) *schedule {
	r := rand.New(rand.NewPCG(seed, 20))
	s := &schedule{
		seed: seed, flag: "churnseed", stores: 4, controllers: 2 + r.IntN(2), roll: churnRoll,
		latency: []time.Duration{0, 200 * time.Microsecond, 5 * time.Millisecond}[r.IntN(3)],
		gossip:  []time.Duration{time.Millisecond, time.Second, 4 * time.Second}[r.IntN(3)],
	}
	for at := time.Duration(0); ; {
		at += 3*time.Second + millis(r, 24*time.Second)
		if at >= lasts {
			break
		}
		e := event{at: at, lasts: 100*time.Millisecond + millis(r, 8*time.Second), kind: []kind{kindCrash, kindPower}[r.IntN(2)], a: Store(r.IntN(s.stores)), n: r.Int64()}
		if r.IntN(4) == 0 {
			e.kind, e.a = []kind{kindCrash, kindPause}[r.IntN(2)], ControllerOf(r.IntN(s.controllers))
		}
		s.events = append(s.events, e)
	}
	s.events = append(s.events, event{at: lasts, lasts: time.Second, kind: kindCrash, a: Store(0)})
	return s
}

func tryChurn(t *testing.T, seed uint64, lasts time.Duration) {
	s := churn(seed, lasts)
	synctest.Test(t, func(t *testing.T) {
		r := &trial{t: t, plan: s, load: newChurnLoad(), calm: make(chan struct{})}
		r.mu.random = rand.New(rand.NewPCG(s.seed, 3))
		heads, doubt := (*oneHead)(nil), &doubtful{seed: seed}
		r.Cluster = Start(t, Options{
			Stores: s.stores, Controllers: s.controllers, Inputs: 2, Outputs: 2, Replicas: 3, Gossip: r.gossip, Logs: r.keep,
			Meta: func(behind metadata.Store) metadata.Store {
				heads = newOneHead(behind)
				return r.watched(heads)
			},
			MetaOf: doubt.of,
			Input:  func(c *inputhost.Config) { c.RollBytes, c.IdleAfter = s.roll, 5*time.Second },
		})
		defer doubt.wait()
		defer r.Close()
		defer r.report()
		r.witness.looksAt(r.Meta)
		r.net.delays(s.latency, rand.New(rand.NewPCG(s.seed, 4)))
		r.runChurn(doubt)
		wrong, moves := heads.findings()
		for _, w := range wrong {
			t.Error(w)
		}
		timedOut, sets := doubt.timedOut()
		r.say("heads moved %d times, %d of %d compare-and-sets timed out", moves, timedOut, sets)
		// How many time out is left to chance; how many may is not.
		if least := int(lasts / (2 * time.Second)); moves < least || sets < 10*least || timedOut == 0 {
			t.Errorf("heads moved %d times, and %d of %d compare-and-sets timed out, want %d moves at least and one of %d sets", moves, timedOut, sets, least, 10*least)
		}
	})
}

// doubtful has a tenth of the compare-and-sets of controllers time out, of each run by another seed.
type doubtful struct {
	seed uint64
	mu   sync.Mutex
	all  []*faulty.Store
	ways []*switched // to all
	over bool
}

func (d *doubtful) of(id core.HostID, behind metadata.Store) metadata.Store {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains([]core.HostID{ControllerOf(0), ControllerOf(1), ControllerOf(2)}, id) {
		return behind
	}
	s := faulty.New(open{behind}, faulty.Faults{Seed: d.seed<<8 + uint64(len(d.all)), CAS: 0.1, Timeout: 2 * time.Second})
	way := &switched{Store: behind, faulty: s}
	way.on.Store(!d.over)
	d.all, d.ways = append(d.all, s), append(d.ways, way)
	return way
}

// end has all of them answered from now on: a lease that could not be renewed leaves queues without a controller for
// some seconds.
func (d *doubtful) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	for _, way := range d.ways {
		way.on.Store(false)
	}
}

func (d *doubtful) timedOut() (n, of int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.all {
		missed, sets := s.TimedOut()
		n, of = n+missed, of+sets
	}
	return n, of
}

// wait ends what is done late.
func (d *doubtful) wait() {
	for _, s := range d.all {
		s.Close()
	}
}

// newChurnLoad is that of CP queues and AP queues, all of which roll.
func newChurnLoad() *load {
	l := &load{}
	l.mu.receipts = make(map[verify.Key]core.Receipt)
	l.mu.got = make(map[string]map[verify.Key]bool)
	for i := range 4 {
		q := core.QueueSpec{Path: fmt.Sprintf("/s/cp%d", i), Consistency: core.CP, Replicas: 3, MinReplicas: 2}
		if i >= 2 {
			q.Path, q.Consistency = fmt.Sprintf("/s/ap%d", i-2), core.AP
		}
		l.queues = append(l.queues, q)
		l.groups = append(l.groups, group(q.Path, "calm"))
		l.mu.got[q.Path+" calm"] = make(map[verify.Key]bool)
	}
	return l
}

func (t *trial) runChurn(doubt *doubtful) {
	t.createQueues()
	t.createGroups()
	defer t.watchDuties()()
	random := rand.New(rand.NewPCG(t.plan.seed, 5))
	var publishers, consumers sync.WaitGroup
	stopPublishers, stopConsumers := make(chan struct{}), make(chan struct{})
	for _, q := range t.load.queues {
		for i := range 2 {
			random := rand.New(rand.NewPCG(random.Uint64(), 0))
			publishers.Go(func() {
				if q.Consistency == core.CP {
					t.publishInOrder(q.Path, fmt.Sprintf("p%d", i), random, 30*time.Second, stopPublishers)
				} else {
					t.publish(t.Client, q.Path, fmt.Sprintf("p%d", i), random, stopPublishers)
				}
			})
		}
	}
	for _, g := range t.load.groups {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		consumers.Go(func() { t.consume(g, g.Name, random, stopConsumers) })
	}
	newNemesis(t).run(t.plan.events)
	t.say("calm")
	doubt.end()
	t.quiet = time.Now().Add(2 * slack)
	close(t.calm)
	close(stopPublishers)
	publishers.Wait()
	t.drain()
	close(stopConsumers)
	consumers.Wait()
	for _, q := range t.load.queues {
		if q.Consistency == core.CP {
			t.load.mu.history.Chains = append(t.load.mu.history.Chains, t.chain(q.Path))
		}
	}
	t.judge()
	t.judgeWitness()
	t.judgeExtents()
}

// judgeExtents sees to it that each extent in which a message was acknowledged has its rows, and that none lost any.
func (t *trial) judgeExtents() {
	extents, seals := make(map[core.ExtentID]bool), make(map[core.ExtentID]metadata.SealRecord)
	for _, q := range t.load.queues {
		made, err := t.Client.Admin().GetQueue(t.t.Context(), q.Path)
		t.must(err)
		for r, err := range metadata.All[metadata.ExtentRecord](t.t.Context(), t.Meta, metadata.Extents, made.ID.String(), metadata.Serial) {
			t.must(err)
			extents[r.Value.ID] = true
		}
		head, err := metadata.ReadHead(t.t.Context(), t.Meta, made.ID, metadata.Serial)
		t.must(err)
		if q.Consistency == core.CP && !extents[head.Extent.ID] {
			t.t.Errorf("the head of %s, place %d, has no create row", q.Path, head.Extent.Chain)
		}
	}
	for r, err := range metadata.All[metadata.SealRecord](t.t.Context(), t.Meta, metadata.Seals, metadata.PartitionID, metadata.Serial) {
		t.must(err)
		s := r.Value
		if seals[s.Extent.ID] = s; s.Forced || s.Lost > 0 || s.LostFrom > 0 || s.State == core.ExtentRetired {
			t.t.Errorf("extent %s is %s, forced %t, lost %d, lost from %d", s.Extent.ID, s.State, s.Forced, s.Lost, s.LostFrom)
		}
	}
	for key, receipt := range t.load.mu.receipts {
		s, sealed := seals[receipt.Extent]
		if !extents[receipt.Extent] && !sealed {
			t.t.Errorf("%s was acknowledged as %s, an extent without rows", key, receipt)
		}
		if sealed && s.State.HasEnd() && receipt.Seq > s.L {
			t.t.Errorf("%s was acknowledged as %s, and its extent ends at %d", key, receipt, s.L)
		}
	}
	t.say("%d extents, %d seal rows", len(extents), len(seals))
}
