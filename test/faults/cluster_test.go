package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// TestClusterSurvivesKillsInTurn is `columba publish` and `columba consume` while a store, an input host and an output
// host are killed and started again, one after another.
func TestClusterSurvivesKillsInTurn(t *testing.T) {
	byCommands(t)
	const count = 20_000
	c := process.StartCluster(t, process.Layout{})
	r := newRun(t, c.Controller, "one", "two")
	consumers := r.consumers(2)
	publisher := r.publish(count, "--rate", "2500")
	victims := []*process.Server{c.Stores[0], c.Inputs[0], c.Outputs[0]}
	for i, s := range victims {
		process.EventuallyOr(t, process.Patience, func() bool { return r.acknowledged() >= (i+1)*count/(len(victims)+2) }, func() string {
			return fmt.Sprintf("the publisher goes on before %s is killed: %d acknowledged", s.Name, r.acknowledged())
		})
		from := time.Now()
		s.Kill()
		if !publisher.Running() { // it may end before all hosts are up again
			t.Errorf("the publisher had ended before %s was killed; slow it down", s.Name)
		}
		s.Start()
		c.AwaitHosts()
		r.down(s.Name, from)
	}
	if code := publisher.Wait(); code != 0 {
		t.Errorf("publish ended with %d: it has to try again by itself; it said %s", code, publisher.Stderr())
	}
	r.drain()
	interrupt(t, consumers)
	r.check()
	t.Log(r.explained())
	r.row("store, input host, output host killed in turn", "")
}

// fault stops a process in some way and brings it back.
type fault struct {
	name string
	do   func(s *process.Server)
	undo func(s *process.Server)
	note func(r *run, what string, from time.Time)
}

var (
	kill  = fault{"kill -9", (*process.Server).Kill, (*process.Server).Start, (*run).down}
	pause = fault{"SIGSTOP", (*process.Server).Pause, (*process.Server).Continue, (*run).away}
)

// strike brings a fault about for as long as lasting says, and waits until the process is back.
func (l *load) strike(f fault, s *process.Server, lasting time.Duration) {
	l.t.Helper()
	from := time.Now()
	f.do(s)
	<-time.After(lasting)
	f.undo(s)
	process.Eventually(l.t, s.Name+" is ready again", s.Ready)
	f.note(l.run, f.name+" "+s.Name, from)
}

// TestClusterEachKind kills, and pauses, a process of each kind under load.
func TestClusterEachKind(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{})
	l := newLoad(t, c.Controller, 700)
	l.start(2, 2)
	for _, f := range []fault{kill, pause} {
		for _, s := range []*process.Server{c.Stores[1], c.Inputs[0], c.Outputs[1], c.Inputs[1], c.Outputs[0], c.Stores[2]} {
			l.goesOn(1000)
			l.strike(f, s, 3*time.Second)
			c.AwaitHosts()
		}
	}
	l.goesOn(1000)
	l.finish()
	l.row("each kind killed and paused for 3 s, in turn", "")
}

// TestClusterAllStoresAtOnce kills every store within 100 ms, again and again.
func TestClusterAllStoresAtOnce(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{})
	l := newLoad(t, c.Controller, 1500)
	l.start(3, 2)
	slowest := time.Duration(0)
	for range scaled(t, 10) {
		l.goesOn(3000)
		from := time.Now()
		slowest = max(slowest, process.KillAll(c.Stores...))
		for _, s := range c.Stores {
			s.Begin()
		}
		for _, s := range c.Stores {
			s.Await()
		}
		c.AwaitHosts()
		l.down("all stores", from)
	}
	if slowest > 100*time.Millisecond {
		t.Errorf("it took %s to kill all stores, want at most 100 ms", slowest)
	}
	l.goesOn(3000)
	l.finish()
	l.row("all stores killed within 100 ms", fmt.Sprintf("killed within %s", slowest.Round(time.Millisecond)))
}

// TestClusterWithoutController has publishing and delivery go on, on open extents, while the controller is away.
func TestClusterWithoutController(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{})
	l := newLoad(t, c.Controller, 700)
	l.stay = func() time.Duration { return time.Hour } // a new consumer asks the frontend where to go
	l.start(2, 2)
	var acked, delivered int
	for range scaled(t, 3) {
		l.goesOn(2000)
		from := time.Now()
		c.Controller.Kill()
		<-time.After(500 * time.Millisecond) // what was on its way is not counted
		a, d := l.acknowledged(), l.delivered()
		<-time.After(5 * time.Second)
		a, d = l.acknowledged()-a, l.delivered()-d
		if a < 1000 || d < 1000 {
			t.Errorf("%d messages acknowledged and %d delivered in 5 s without a controller", a, d)
		}
		acked, delivered = acked+a, delivered+d
		c.Controller.Start()
		c.AwaitHosts()
		l.down("controller", from)
	}
	l.goesOn(2000)
	l.finish()
	l.row("the controller killed, 5 s away", fmt.Sprintf("%d acknowledged and %d delivered meanwhile", acked, delivered))
}

// TestClusterStorm kills and pauses processes at random, now and then two at once, until a million messages are
// acknowledged.
func TestClusterStorm(t *testing.T) {
	long(t)
	faults, want := scaled(t, 200), scaled(t, 1_000_000)
	c := process.StartCluster(t, process.Layout{})
	l := newLoad(t, c.Controller, 300)
	l.start(3, 2)
	victims := c.All()[1:]
	for range faults {
		first := l.random(len(victims))
		struck := []*process.Server{victims[first]}
		if l.random(4) == 0 {
			struck = append(struck, victims[(first+1+l.random(len(victims)-1))%len(victims)])
		}
		l.storm(struck)
		before := l.acknowledged()
		l.goesOn(1)
		<-time.After(time.Duration(2000+l.random(4000)) * time.Millisecond)
		if l.acknowledged() == before {
			t.Error("nothing is acknowledged any more")
		}
	}
	c.AwaitHosts()
	process.EventuallyWithin(t, time.Hour, "enough messages", func() bool { return l.acknowledged() >= want })
	report := l.finish()
	for _, n := range report.Counts {
		if share(n) > 0.01 {
			t.Errorf("group %s: %d duplicates of %d messages, want at most 1 %%", n.Group, n.Duplicates, n.Received)
		}
	}
	l.row("random kills and pauses of any but the controller", "")
}

// storm strikes some processes at once, each in its own way.
func (l *load) storm(struck []*process.Server) {
	l.t.Helper()
	type strike struct {
		fault
		s    *process.Server
		from time.Time
	}
	var strikes []strike
	for _, s := range struck {
		f := []fault{kill, pause}[l.random(2)]
		strikes = append(strikes, strike{f, s, time.Now()})
		f.do(s)
	}
	<-time.After(time.Duration(l.random(6000)) * time.Millisecond)
	for _, k := range strikes {
		k.undo(k.s)
		process.Eventually(l.t, k.s.Name+" is ready again", k.s.Ready)
		k.note(l.run, k.name+" "+k.s.Name, k.from)
	}
}

// TestMakeCluster runs what `make cluster` runs, publishes and consumes there, and ends it by ^C.
func TestMakeCluster(t *testing.T) {
	long(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "cluster")
	if err := process.BuildPackage(program, "tools/cluster"); err != nil {
		t.Fatal(err)
	}
	port := process.FreePorts(t, 8, 1000)
	s := process.At(t, fmt.Sprintf("127.0.0.1:%d", port))
	cluster := s.LaunchProgram(program, nil, func([]byte) {}, "-program", process.Program, "-port", fmt.Sprint(port), "-data", filepath.Join(dir, "data"))
	process.Eventually(t, "the cluster is ready", func() bool { return cluster.Running() && s.Run("", "create", "queue", "/t/make").Code == 0 })
	s.Must("", "create", "group", "/t/make", "g", "--start", "earliest")
	s.Must(lines(1000), "publish", "/t/make")
	out := s.Must("", "consume", "/t/make", "g", "--count", "1000")
	if len(out) != len(lines(1000)) {
		t.Errorf("consumed %d bytes, want %d", len(out), len(lines(1000)))
	}
	if code := cluster.Interrupt(); code != 0 {
		t.Errorf("the cluster ended with %d: %s", code, cluster.Stderr())
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "store3.log")); err != nil {
		t.Error(err)
	}
}
