package faults

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// answersWithin is how long a command may take while Cassandra is away. A machine that does much else is slow.
const answersWithin = 5 * time.Second

// stopAll stops every Cassandra node, and returns what starts them again.
func stopAll(t *testing.T) (back func()) {
	t.Helper()
	for _, n := range nodes.Start(t) {
		n.Stop(t)
	}
	return func() { nodes.ReviveAll(t) }
}

// TestCassandraIsAway stops all of Cassandra under load, for five minutes. Open extents of an AP and of a CP queue take
// and deliver messages all the time, commands are refused soon and say why, no log is flooded, and nothing is lost.
// Afterwards the metadata catch up.
func TestCassandraIsAway(t *testing.T) {
	long(t)
	lasting := time.Duration(scaled(t, 300)) * time.Second
	c := process.StartCluster(t, process.Layout{Controllers: 2, Stores: 3, Inputs: 2, Outputs: 2, Metadata: onCassandra(t, "all")})
	at := anywhere(t, c)
	l := newLoad(t, at, 100)
	l.stay = func() time.Duration { return time.Hour }
	z := newZone("z", at)
	at.Must("", "create", "queue", cpQueue, "--consistency", "cp")
	at.Must("", "create", "group", cpQueue, "g", "--start", "earliest")
	at.Must("", "create", "group", cpQueue, "alone", "--start", "earliest")
	publisher, consumer, alone := z.publish(cpQueue, z.name), z.consume(cpQueue), z.consumeAlone()
	l.start(2, 2)
	l.goesOn(1000)
	process.Eventually(t, "messages of the CP queue are acknowledged", func() bool { return z.since(cpQueue, time.Time{}) > 100 })
	calm := usageOf(t, c)
	<-time.After(10 * time.Second)
	before := usageOf(t, c)

	away := time.Now()
	back := stopAll(t)
	from := time.Now()
	began, a, d, cp := usageOf(t, c), l.acknowledged(), l.delivered(), z.since(cpQueue, time.Time{})
	for i := 0; time.Since(from) < lasting; i++ {
		if i < 2 {
			refusals(t, at, i)
		}
		if i == 1 {
			says(t, at, "no majority: outage of the metadata", "list", "hosts")
			says(t, at, "outage of the metadata", "why-stuck", queue, "work")
		}
		<-time.After(min(10*time.Second, lasting-time.Since(from)))
	}
	until := time.Now()
	a, d, cp = l.acknowledged()-a, l.delivered()-d, z.since(cpQueue, time.Time{})-cp
	took := until.Sub(from).Round(time.Second)
	t.Logf("%s without Cassandra: %d acknowledged and %d delivered of the AP queue, %d acknowledged of the CP queue; longest gaps %s and %s", took, a, d, cp, l.longestGap(away, until), z.longestGap(cpQueue, away, until))
	grown(t, c, [4]usage{calm, before, began, usageOf(t, c)}, took)
	if gap := max(l.longestGap(away, until), z.longestGap(cpQueue, away, until)); gap > 10*time.Second {
		t.Errorf("a publisher was without an acknowledgement for %s", gap)
	}
	if s := took.Seconds(); float64(a) < 100*s || float64(d) < 100*s || float64(cp) < 10*s {
		t.Errorf("%d acknowledged and %d delivered of the AP queue, and %d acknowledged of the CP queue, in %s", a, d, cp, took)
	}

	back()
	l.away("Cassandra", away)
	returned := time.Now()
	process.EventuallyOr(t, 2*time.Minute, func() bool { return at.Run("", "create", "queue", "/t/new").Code == 0 }, func() string {
		return "a queue can be created: " + at.Run("", "create", "queue", "/t/new").Stderr
	})
	t.Logf("a queue is created %s after Cassandra is back", time.Since(returned).Round(100*time.Millisecond))
	sound(t, at)
	at.Must("one\n", "publish", "/t/new")
	for _, line := range [][]string{{"depth"}, {"why-stuck", queue, "work"}, {"why-stuck", cpQueue, "g"}} {
		at.Ask(line...)
	}
	t.Logf("commands answer %s after Cassandra is back", time.Since(returned).Round(100*time.Millisecond))
	killed := time.Now()
	c.Stores[0].Kill() // its extents are sealed, and others are opened
	l.goesOn(1000)
	n := z.since(cpQueue, killed)
	process.Eventually(t, "the CP queue goes on without a store", func() bool { return z.since(cpQueue, killed) > n+100 })
	c.Stores[0].Start()
	c.AwaitHosts()
	l.down("store1", killed)
	publisher.Interrupt()
	process.EventuallyOr(t, process.Patience, func() bool { return len(undelivered([]*zone{z}, cpQueue)) == 0 }, func() string {
		return fmt.Sprintf("%d acknowledged messages of the CP queue do not come", len(undelivered([]*zone{z}, cpQueue)))
	})
	consumer.Interrupt()
	alone.Interrupt()
	if at, ok := outOfOrder(z.ordered(), z.name); !ok {
		t.Errorf("the CP queue delivered out of order: %s", at)
	}
	t.Logf("the CP queue delivered %d duplicates", duplicates([]*zone{z}, cpQueue))
	l.finish()
	process.AwaitCheckpoints(t, c.Outputs...)
	for _, s := range c.Outputs {
		s.Restart()
	}
	c.AwaitHosts()
	for _, g := range l.groups { // what was acked while Cassandra was away is in the checkpoints, too
		process.Eventually(t, "nothing comes again for "+g, func() bool { undone, _ := l.undone(g); return undone == 0 })
	}
	if l.outcomes[verify.Failed] > 0 {
		t.Errorf("publishers were told of errors: %v", l.refusals)
	}
	l.row(fmt.Sprintf("all of Cassandra stopped for %s", took), fmt.Sprintf("%d acknowledged and %d delivered meanwhile", a, d))
}

// refusals runs commands that need the metadata. Each answers soon; one that fails is unavailable, or says that no
// majority answers.
func refusals(t *testing.T, at *process.Server, i int) {
	t.Helper()
	for _, line := range [][]string{
		{"create", "queue", "/t/away" + strconv.Itoa(i)}, {"list", "queues"}, {"depth"}, {"depth", queue, "work"}, {"why-stuck", queue, "work"}, {"why-stuck", cpQueue, "g"},
		{"show", "queue", queue}, {"list", "hosts"}, {"list", "extents", queue},
	} {
		began := time.Now()
		r := at.Run("", line...)
		took := time.Since(began).Round(100 * time.Millisecond)
		t.Logf("without Cassandra: columba %s: exit code %d after %s: %.300s", strings.Join(line, " "), r.Code, took, r.Stderr)
		if r.Code != 0 && (r.Code != core.ExitUnavailable || !strings.Contains(r.Stderr, "(unavailable)") && !strings.Contains(r.Stderr, "(no_majority)")) || took > answersWithin {
			t.Errorf("columba %s: exit code %d after %s: %s%s", strings.Join(line, " "), r.Code, took, r.Stdout, r.Stderr)
		}
	}
	if r := at.Run("", "list", "queues"); r.Code == 0 && !strings.Contains(r.Stdout, queue) {
		t.Errorf("list queues succeeds without the queue: %s", r.Stdout)
	}
}

// longestGap is the longest time between two acks of the zone in a period.
func (z *zone) longestGap(queue string, from, to time.Time) (longest time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var acks []time.Time
	for _, at := range z.acked[queue] {
		acks = append(acks, at)
	}
	slices.SortFunc(acks, time.Time.Compare)
	for i := 1; i < len(acks); i++ {
		if acks[i].After(from) && acks[i-1].Before(to) {
			longest = max(longest, acks[i].Sub(acks[i-1]))
		}
	}
	return longest
}

// usage is what the processes of a cluster have used, by name.
type usage struct {
	at     time.Time
	cpu    map[string]time.Duration
	memory map[string]int // resident, MiB
	lines  map[string]int // of the log
}

func usageOf(t *testing.T, c *process.Cluster) usage {
	t.Helper()
	u := usage{time.Now(), make(map[string]time.Duration), make(map[string]int), make(map[string]int)}
	for _, s := range c.All() {
		u.cpu[s.Name] = time.Duration(s.Metric("process_cpu_seconds_total") * float64(time.Second))
		u.memory[s.Name] = int(s.Metric("process_resident_memory_bytes")) >> 20
		u.lines[s.Name] = strings.Count(s.Log(), "\n")
	}
	return u
}

// grown compares what each process used in a calm time, from looks[0] to looks[1], and in the outage, from looks[2] to
// looks[3].
func grown(t *testing.T, c *process.Cluster, looks [4]usage, lasting time.Duration) {
	t.Helper()
	rate := func(name string, from, to usage) float64 {
		return (to.cpu[name] - from.cpu[name]).Seconds() / to.at.Sub(from.at).Seconds()
	}
	for _, s := range c.All() {
		was, is := rate(s.Name, looks[0], looks[1]), rate(s.Name, looks[2], looks[3])
		lines := looks[3].lines[s.Name] - looks[2].lines[s.Name]
		t.Logf("%s: %.2f CPUs before, %.2f without Cassandra; %d MiB before, %d MiB after; %d lines of log", s.Name, was, is, looks[2].memory[s.Name], looks[3].memory[s.Name], lines)
		if is > 2*was+0.1 {
			t.Errorf("%s used %.2f CPUs without Cassandra, and %.2f before", s.Name, is, was)
		}
		if looks[3].memory[s.Name] > 2*looks[2].memory[s.Name]+64 {
			t.Errorf("%s grew from %d to %d MiB", s.Name, looks[2].memory[s.Name], looks[3].memory[s.Name])
		}
		if float64(lines) > 20+lasting.Seconds()/2 {
			log := strings.Split(s.Log(), "\n")
			t.Errorf("%s wrote %d lines of log in %s, such as\n%s", s.Name, lines, lasting, strings.Join(log[max(0, len(log)-20):], "\n"))
		}
		if dir := os.Getenv("COLUMBA_FAULTS_LOGS"); dir != "" {
			_ = os.WriteFile(dir+"/"+s.Name+".log", []byte(s.Log()), 0o644)
		}
	}
}
