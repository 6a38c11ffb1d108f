package cluster

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/tools/verify"
)

// trial is one run of a schedule against a cluster under load.
type trial struct {
	*Cluster
	t    *testing.T
	plan *schedule
	load *load
	calm chan struct{} // closed when the faults are over

	quiet   time.Time // from then on no fault explains anything; set before calm is closed
	witness *witness
	keys    deliverytoken.Keys
	dead    map[string][]client.DeadLetter // by group, in the end

	mu struct {
		sync.Mutex
		random *rand.Rand
		diary  bytes.Buffer
	}
}

// slack is how long before a fault an acknowledgement may be forgotten, and how long after one its effects are seen.
const slack = 5 * time.Second

// try runs a schedule against the plain load and judges what came of it.
func try(t *testing.T, s *schedule) { tryLoad(t, s, newLoad(s)) }

func tryLoad(t *testing.T, s *schedule, l *load) {
	synctest.Test(t, func(t *testing.T) {
		r := &trial{t: t, plan: s, load: l, calm: make(chan struct{})}
		r.mu.random = rand.New(rand.NewPCG(s.seed, 3))
		r.Cluster = Start(t, Options{
			Stores: s.stores, Controllers: s.controllers, Inputs: 2, Outputs: 2, Replicas: 3, Gossip: r.gossip, Logs: r.keep, Divergence: divergence(s.seed),
			Meta: r.watched, Controller: s.controller,
			Input: func(c *inputhost.Config) { c.RollBytes, c.IdleAfter = s.roll, 10*time.Second },
		})
		defer r.Close()
		defer r.report()
		r.witness.looksAt(r.Meta)
		r.net.delays(s.latency, rand.New(rand.NewPCG(s.seed, 4)))
		r.run()
	})
}

// watched puts a witness before the metadata.
func (t *trial) watched(behind metadata.Store) metadata.Store {
	t.witness = newWitness(behind)
	return t.witness
}

// createQueues makes the queues of the load.
func (t *trial) createQueues() {
	for _, q := range t.load.queues {
		_, err := t.Client.Admin().CreateQueue(t.t.Context(), q)
		t.must(err)
	}
}

// createGroups makes the groups of the load.
func (t *trial) createGroups() {
	for _, g := range t.load.groups {
		_, err := t.Client.Admin().CreateGroup(t.t.Context(), g)
		t.must(err)
	}
}

func (t *trial) run() {
	t.createQueues()
	for _, g := range t.load.groups {
		asked := time.Now()
		made, err := t.Client.Admin().CreateGroup(t.t.Context(), g)
		t.must(err)
		if h := t.load.habits[g.Name]; h != nil && h.dies {
			t.load.mu.births = append(t.load.mu.births, birth{id: made.ID, asked: asked, made: time.Now(), start: g.Start.Mode})
		}
		if g.Delivery == core.AtMostOnce {
			t.witness.claims(made.ID)
		}
	}
	defer t.watchDuties()()
	var publishers, consumers, chores sync.WaitGroup
	stopPublishers, stopConsumers := make(chan struct{}), make(chan struct{})
	keys, err := metadata.TokenKeys(t.t.Context(), t.Meta, time.Now())
	t.must(err)
	t.keys = keys
	seeds := rand.New(rand.NewPCG(t.plan.seed, 5))
	for _, q := range t.load.queues {
		for i := range 2 {
			random := rand.New(rand.NewPCG(seeds.Uint64(), 0))
			publishers.Go(func() { t.publish(t.Client, q.Path, fmt.Sprintf("p%d", i), random, stopPublishers) })
		}
	}
	for _, g := range t.load.groups {
		for i := range t.load.consumers(g.Name) {
			random := rand.New(rand.NewPCG(seeds.Uint64(), 0))
			consumers.Go(func() { t.consume(g, fmt.Sprintf("%s%d", g.Name, i), random, stopConsumers) })
		}
	}
	for _, do := range t.load.chores {
		random := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		chores.Go(func() { do(t, random) })
	}
	newNemesis(t).run(t.plan.events)
	t.say("calm")
	t.quiet = time.Now().Add(2 * slack)
	close(t.calm)
	close(stopPublishers)
	publishers.Wait()
	chores.Wait()
	t.drain()
	close(stopConsumers)
	consumers.Wait()
	t.judge()
	t.judgeHabits()
	t.compareAll()
	t.judgeWitness()
}

// judgeWitness reports the decisions that were changed.
func (t *trial) judgeWitness() {
	for _, w := range t.witness.findings() {
		t.t.Error(w)
	}
}

// drain waits until every group has everything.
func (t *trial) drain() {
	deadline, look := time.Now().Add(10*time.Minute), 2*time.Second
	if len(t.load.habits) > 0 { // there are long waits, by clocks that may be wrong
		deadline, look = deadline.Add(10*time.Minute), 10*time.Second
	}
	for {
		missing, left := t.load.missing(), t.left()
		if missing == 0 && left == "" {
			break
		}
		if time.Now().After(deadline) {
			t.t.Errorf("stuck: %d deliveries of acknowledged messages are missing; %s%s", missing, left, t.why())
			return
		}
		time.Sleep(look)
	}
	time.Sleep(5 * time.Second) // to be wrong in
}

// left says which groups have messages left by the servers' count.
func (t *trial) left() string {
	var out []string
	for _, g := range t.load.groups {
		if u, _, err := t.depth(g); err != nil || u > 0 {
			out = append(out, fmt.Sprintf("%s %s has %d left (%v)", g.Queue, g.Name, u, err))
		}
	}
	return strings.Join(out, ", ")
}

// why says what holds up the groups that have something left, as the servers see it.
func (t *trial) why() string {
	var b strings.Builder
	for _, g := range t.load.groups {
		d, err := t.Client.Admin().Depth(t.t.Context(), g.Queue, g.Name)
		fmt.Fprintf(&b, "\n%s %s: depth %+v, %v", g.Queue, g.Name, d, err)
		reasons, err := t.Client.Admin().WhyStuck(t.t.Context(), g.Queue, g.Name)
		fmt.Fprintf(&b, "\n\tstuck: %+v, %v", reasons, err)
	}
	return b.String()
}

func (t *trial) depth(g core.GroupSpec) (undone, dead uint64, err error) {
	d, err := t.Client.Admin().Depth(t.t.Context(), g.Queue, g.Name)
	if err != nil || len(d) != 1 {
		return 0, 0, fmt.Errorf("depth of %s %s: %d rows, %w", g.Queue, g.Name, len(d), err)
	}
	if n := d[0].UnknownExtents; n > 0 {
		return 0, 0, fmt.Errorf("depth of %s %s: %d extents are not counted", g.Queue, g.Name, n)
	}
	return d[0].Ready + d[0].InFlight + d[0].Delayed, d[0].Dead, nil
}

// fullDepth waits until all extents are counted: a copy or an assignment may be under way. While messages are left, the
// trial counts again for as long as copies of the metadata may be late. By late copies a share has no owner, and an
// older checkpoint.
func (t *trial) fullDepth(g core.GroupSpec) (undone, dead uint64) {
	t.t.Helper()
	var late time.Duration
	if d := divergence(t.plan.seed); d != nil {
		late = d.Delay
	}
	undone, dead, err := t.depth(g)
	for began := time.Now(); err != nil && time.Since(began) < 2*time.Minute || undone > 0 && time.Since(began) <= late; {
		time.Sleep(2 * time.Second)
		undone, dead, err = t.depth(g)
	}
	t.must(err)
	return undone, dead
}

// judge is the verdict of the oracle.
func (t *trial) judge() {
	h := &t.load.mu.history
	t.dead = make(map[string][]client.DeadLetter)
	for _, g := range t.load.groups {
		undone, dead := t.fullDepth(g)
		t.dead[g.Name] = t.letters(g, int(dead))
		if t.load.habits[g.Name].apart() {
			continue
		}
		h.Groups = append(h.Groups, verify.Left{Queue: g.Queue, Group: g.Name, Undone: undone, Dead: dead})
		h.Received = append(h.Received, t.asReceived(g, t.dead[g.Name])...)
	}
	report := t.check(h)
	if !report.OK() {
		t.t.Errorf("the history is wrong:\n%s%s", report, t.lives(report.Findings))
	}
	outcomes := make(map[verify.Outcome]int)
	for _, p := range h.Published {
		outcomes[p.Outcome]++
	}
	t.say("%v %v", outcomes, report.Counts)
}

// letters are a group's dead letters, once all that the server counts can be read, or after a while.
func (t *trial) letters(g core.GroupSpec, count int) (out []client.DeadLetter) {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Second) {
		out = nil
		var failed error
		for d, err := range t.Client.Admin().DeadLetters(t.t.Context(), g.Queue, g.Name) {
			if err != nil {
				failed = err
				break
			}
			out = append(out, d)
		}
		switch {
		case core.CodeOf(failed) == core.CodeNotFound, failed == nil && len(out) >= count:
			return out
		case time.Now().After(deadline):
			t.say("%d of %d dead letters of %s %s can be read: %v", len(out), count, g.Queue, g.Name, failed)
			return out
		case failed == nil:
			t.say("only %d of %d dead letters of %s %s are listed", len(out), count, g.Queue, g.Name)
		}
	}
}

// asReceived are dead letters as a history has them.
func (t *trial) asReceived(g core.GroupSpec, letters []client.DeadLetter) (out []verify.Received) {
	for _, d := range letters {
		out = append(out, verify.Received{
			Key: keyOf(g.Queue, d.Message.Body), Group: g.Name, CRC: crc32.Checksum(d.Message.Body, castagnoli), Receipt: d.Origin, Attempt: d.Attempts,
			Settled: verify.Dead, At: d.DeadSince.Add(t.load.skew()),
		})
	}
	return out
}

// check is what the oracle finds in a history, but for what groups need not get. Of a message that was stored twice
// a dead letter may be of either copy.
func (t *trial) check(h *verify.History) *verify.Report {
	report := verify.Check(h, slack)
	report.Findings = slices.DeleteFunc(report.Findings, func(f verify.Finding) bool {
		i := slices.IndexFunc(t.load.groups, func(g core.GroupSpec) bool { return g.Name == f.Group && g.Queue == f.Key.Queue })
		return f.Kind == verify.Lost && i >= 0 && (t.load.excused(t.load.groups[i], f.Key) || t.buried(t.load.groups[i], f.Key))
	})
	return report
}

// lives tells what became of the first messages of which something is wrong.
func (t *trial) lives(findings []verify.Finding) string {
	var b strings.Builder
	for _, f := range findings[:min(len(findings), 3)] {
		fmt.Fprintf(&b, "%s was stored as %s\n", f.Key, t.load.mu.receipts[f.Key])
		received := t.load.mu.history.Received
		if t.load.habits[f.Group].apart() {
			received = nil
			for _, w := range t.load.mu.taken[f.Group] {
				received = append(received, w.Received)
			}
		}
		for _, r := range received {
			if r.Key == f.Key && r.Group == f.Group {
				fmt.Fprintf(&b, "\t%s %s: %s attempt %d, %s\n", r.At.Format("04:05.000"), r.Consumer, r.Receipt, r.Attempt, r.Settled)
			}
		}
	}
	return b.String()
}

// gossip is how long one piece of news takes.
func (t *trial) gossip() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Duration(t.mu.random.Int64N(int64(t.plan.gossip)))
}

// crashed notes a fault, which may explain duplicates. All but those of a consumer may leave two output hosts that
// serve one share.
func (t *trial) crashed(what string, from, to time.Time) {
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	t.load.mu.history.Crashes = append(t.load.mu.history.Crashes, verify.Crash{What: what, From: from, To: to, Split: !strings.HasPrefix(what, "consumer")})
}

// say writes into the diary, which a failure shows.
func (t *trial) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.mu.diary, "%s "+format+"\n", append([]any{time.Now().Format("04:05.000")}, args...)...)
}

func (t *trial) report() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.t.Failed() || testing.Verbose() {
		t.t.Logf("%s\nwhat happened:\n%s", t.plan, t.mu.diary.String())
	}
}

// keep writes down what the hosts of a failed run said, where COLUMBA_SEED_LOGS says.
func (t *trial) keep(text string) {
	dir := os.Getenv("COLUMBA_SEED_LOGS")
	if dir == "" {
		t.t.Logf("set COLUMBA_SEED_LOGS to a directory to get the logs of the hosts")
		return
	}
	name := filepath.Join(dir, fmt.Sprintf("seed-%d.log", t.plan.seed))
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.t.Error(err)
	}
	t.t.Logf("the logs of the hosts are in %s", name)
}

func (t *trial) must(err error) {
	t.t.Helper()
	if err != nil {
		t.t.Fatal(err)
	}
}
