package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/serf/serf"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/membershiptest"
)

const patience = 30 * time.Second

func host(id core.HostID, roles ...string) membership.Host {
	return membership.Host{ID: id, Roles: roles, Address: string(id) + ":1", Run: core.RunID{ID: core.NewID(time.Now())}}
}

// logbook is a log that tests read.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// agent is a started Monitor on a free port of loopback.
type agent struct {
	*Monitor
	t   *testing.T
	log *logbook
}

// start runs a member until the test ends; change may set what else it needs.
func start(t *testing.T, self membership.Host, join []string, change ...func(*Monitor)) *agent {
	t.Helper()
	a := &agent{t: t, log: &logbook{}}
	cfg := Config{Self: self, Bind: "127.0.0.1:0", Join: join, Log: slog.New(slog.NewTextHandler(a.log, nil))}
	var err error
	if a.Monitor, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(a.Monitor)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// crash ends a member without a word to the others.
func (a *agent) crash() {
	a.t.Helper()
	if err := a.agent.Shutdown(); err != nil {
		a.t.Fatal(err)
	}
	a.tasks.Stop(context.Canceled)
}

// await waits until the view satisfies done.
func (a *agent) await(what string, done func([]membership.Host) bool) {
	a.t.Helper()
	changed := make(chan struct{}, 1)
	defer a.Changed(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	deadline := time.After(patience)
	for !done(a.Hosts("")) {
		select {
		case <-changed:
		case <-deadline:
			a.t.Fatalf("%s sees %v after %s, want %s\n%s", a.cfg.Self.ID, ids(a.Hosts("")), patience, what, a.log.text.String())
		}
	}
}

// awaitIDs waits for exactly these hosts.
func (a *agent) awaitIDs(want ...core.HostID) {
	a.t.Helper()
	a.await("exactly the hosts wanted", func(hosts []membership.Host) bool { return slices.Equal(ids(hosts), want) })
}

// awaitRun waits until a host is seen in a run.
func (a *agent) awaitRun(h membership.Host) {
	a.t.Helper()
	a.await("run "+h.Run.String(), func([]membership.Host) bool {
		got, ok := membership.Find(a, h.ID)
		return ok && got.Run == h.Run
	})
}

// eventually waits for what no change of a view tells.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not %s after %s", what, patience)
		}
	}
}

func ids(hosts []membership.Host) []core.HostID {
	var out []core.HostID
	for _, h := range hosts {
		out = append(out, h.ID)
	}
	return out
}

func TestMonitor_Conformance(t *testing.T) {
	t.Parallel()
	membershiptest.Run(t, func(t *testing.T, self membership.Host, others ...membership.Host) membershiptest.Cluster {
		a := start(t, self, nil)
		c := &cluster{t: t, a: a, others: make(map[core.HostID]*agent)}
		for _, h := range others {
			c.Add(h)
		}
		return c
	})
}

// cluster lets the conformance suite change who is there.
type cluster struct {
	t      *testing.T
	a      *agent
	others map[core.HostID]*agent
}

func (c *cluster) Monitor() membership.Monitor { return c.a }

func (c *cluster) Add(h membership.Host) {
	h.Run = core.RunID{ID: core.NewID(time.Now())}
	c.others[h.ID] = start(c.t, h, []string{c.a.Address()})
	c.a.awaitRun(h)
	<-c.others[h.ID].Tried()            // the library announces a join when it is done, which would take back that the host leaves
	c.others[h.ID].awaitRun(c.a.Self()) // a host that knows nobody tells nobody that it leaves
}

func (c *cluster) Remove(id core.HostID) {
	if err := c.others[id].Stop(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	c.a.await("host removed", func([]membership.Host) bool { _, ok := membership.Find(c.a, id); return !ok })
	ctx, cancel := context.WithTimeout(c.t.Context(), slowest)
	defer cancel()
	for left := false; !left; {
		left = slices.ContainsFunc(c.a.Gone(), func(g membership.Gone) bool { return g.ID == id && g.Left })
		if ctx.Err() != nil {
			c.t.Fatalf("%s stopped in good order; remembered %+v", id, c.a.Gone())
		}
		c.a.refreshNow(ctx)
	}
}

func TestMonitor_EverybodyIsToldOfEverybody(t *testing.T) {
	t.Parallel()
	full := membership.Host{ID: "c", Roles: []string{"storehost", "frontend"}, Address: "[::1]:4922", Zone: "z1", Run: core.RunID{ID: core.NewID(time.Now())}}
	a := start(t, host("a"), nil)
	b := start(t, host("b"), []string{a.Address()})
	c := start(t, full, []string{b.Address()})
	for _, m := range []*agent{a, b, c} {
		m.awaitIDs("a", "b", "c")
	}
	want := full
	want.Roles = []string{"frontend", "storehost"}
	if diff := cmp.Diff([]membership.Host{want}, a.Hosts("storehost")); diff != "" {
		t.Errorf("what a knows of c (-want +got):\n%s", diff)
	}
}

func TestMonitor_TriesOnUntilTheOtherIsThere(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	address := a.Address()
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := start(t, host("b"), []string{address})
	<-b.Tried()
	if !b.log.has("an address to join is not reachable") || !b.log.has(address) {
		t.Errorf("the log does not say who is not reachable:\n%s", b.log.text.String())
	}
	start(t, host("a"), nil, func(m *Monitor) { m.cfg.Bind = address })
	b.awaitIDs("a", "b")
}

func TestMonitor_TriedSeesWhoAnswered(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	b := start(t, host("b"), []string{a.Address()})
	<-b.Tried()
	if _, ok := membership.Find(b, "a"); !ok {
		t.Errorf("hosts after the first round: got %v, want a among them", ids(b.Hosts("")))
	}
}

func TestMonitor_LeaverIsGoneAtOnce(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	b := start(t, host("b"), []string{a.Address()})
	a.awaitIDs("a", "b")
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.awaitIDs("a")
	if a.log.has("failed") {
		t.Errorf("a host that left was taken for dead:\n%s", a.log.text.String())
	}
}

func TestMonitor_RestartAfterACrash(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	c := start(t, host("c"), []string{a.Address()})
	first := start(t, host("b"), []string{a.Address()})
	for _, m := range []*agent{a, c} {
		m.awaitRun(first.Self())
	}
	first.crash()
	second := start(t, host("b"), []string{a.Address()})
	for _, m := range []*agent{a, c, second} {
		m.awaitRun(second.Self())
	}
	// The crash is found out later; the run that died must not take the live one away.
	died := func(m *agent) bool {
		return slices.ContainsFunc(m.agent.Members(), func(s serf.Member) bool { return s.Name == first.name && s.Status != serf.StatusAlive })
	}
	eventually(t, "the end of the first run", func() bool { return died(a) })
	a.refreshNow(t.Context())
	if got, ok := membership.Find(a, "b"); !ok || got.Run != second.Self().Run {
		t.Errorf("b after its first run was found dead: got %+v, %v, want the second run", got, ok)
	}
	if a.log.has("two live processes") {
		t.Errorf("a restart was taken for a copy:\n%s", a.log.text.String())
	}
}

func TestMonitor_NewerOfTwoThatClaimOneID(t *testing.T) {
	t.Parallel()
	soon := func(m *Monitor) { m.doubleGrace = 0 }
	a := start(t, host("a"), nil, soon)
	old := start(t, host("b"), []string{a.Address()}, soon)
	a.awaitRun(old.Self())
	copied := host("b")
	copied.Address = "elsewhere:1"
	copied.Run = core.RunID{ID: core.NewID(old.Self().Run.Time().Add(time.Second))}
	twin := start(t, copied, []string{a.Address()}, soon)
	for _, m := range []*agent{a, old, twin} {
		m.await("the newer run, of two hosts", func(hosts []membership.Host) bool {
			got, ok := membership.Find(m, copied.ID)
			return ok && got.Run == copied.Run && len(hosts) == 2
		})
		eventually(t, "said in the log", func() bool { return m.log.has("two live processes claim one host id") })
	}
	if got := old.Self().Run; got == copied.Run {
		t.Errorf("the older one takes itself for the newer: %s", got)
	}
	if err := twin.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.awaitRun(old.Self())
}

func TestMonitor_TakenAddress(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil)
	m, err := New(Config{Self: host("b"), Bind: a.Address(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); core.CodeOf(err) != core.CodeConflict || !strings.Contains(err.Error(), "--gossip") {
		t.Errorf("got %v, want a conflict that names --gossip", err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Errorf("stop of what did not start: %v", err)
	}
}

func TestMonitor_AdvertisesAnotherAddress(t *testing.T) {
	t.Parallel()
	a := start(t, host("a"), nil, func(m *Monitor) { m.cfg.Bind, m.cfg.Advertise = "0.0.0.0:0", "localhost:0" })
	if !strings.HasPrefix(a.Address(), "127.0.0.1:") || strings.HasSuffix(a.Address(), ":0") {
		t.Fatalf("address: got %s, want 127.0.0.1 with the port bound to", a.Address())
	}
	b := start(t, host("b"), []string{a.Address()})
	a.awaitIDs("a", "b")
	b.awaitIDs("a", "b")
}
