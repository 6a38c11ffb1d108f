package node

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/gossip"
	"github.com/columbamq/columba/metadata"
)

var probes = metadata.Table{Name: "probe", Rule: metadata.RuleCAS}

func probe(row string) metadata.Key { return metadata.Key{Partition: "p", Row: row} }

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

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// member is a Node with the roles of its configuration.
type member struct {
	*process
	log *logbook
	at  Ready
	own *resources
}

// clusterConfig is of a process with some roles that joins others.
func clusterConfig(t *testing.T, roles string, join ...string) Config {
	t.Helper()
	cfg := testConfig(t)
	cfg.Gossip, cfg.Join = "127.0.0.1:0", join
	if err := (*rolesValue)(&cfg.Roles).Set(roles); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// begin runs a process until the test ends.
func begin(t *testing.T, cfg Config) *member {
	t.Helper()
	m := &member{log: &logbook{}, process: &process{
		t: t, data: cfg.Data, res: make(chan *resources, 1), ready: make(chan Ready, 1), ended: make(chan error, 1),
	}}
	n, err := New(cfg, Options{Log: slog.New(slog.NewTextHandler(m.log, nil)), Version: "v1", Ready: func(r Ready) { m.ready <- r }})
	if err != nil {
		t.Fatal(err)
	}
	n.build = func(res *resources) ([]namedRole, error) {
		m.res <- res
		return n.buildRoles(res)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	var wg sync.WaitGroup
	wg.Go(func() { m.ended <- n.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	return m
}

// serveMember runs a process and waits until it is ready.
func serveMember(t *testing.T, cfg Config) *member {
	t.Helper()
	m := begin(t, cfg)
	m.at = receive(t, "ready", m.ready)
	m.own = receive(t, "open resources", m.res)
	m.address = m.at.Addr
	return m
}

// hosts are those that a frontend lists, as addr=roles; one that is gone is addr=roles and its state.
func (m *member) hosts() []string {
	m.t.Helper()
	admin := columbav1connect.NewAdminServiceClient(http.DefaultClient, "http://"+m.at.Addr)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := admin.ListHosts(ctx, connect.NewRequest(&pb.ListHostsRequest{}))
	if err != nil {
		m.t.Fatal(err)
	}
	var out []string
	for _, h := range list.Msg.Hosts {
		text := h.Addr + "=" + strings.Join(h.Roles, ",")
		if h.GetSince() != nil {
			text += " " + h.GetState()
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func (m *member) awaitHosts(want ...string) {
	m.t.Helper()
	want = slices.Sorted(slices.Values(want))
	waitUntil(m.t, "listing "+strings.Join(want, " "), func() bool { return slices.Equal(m.hosts(), want) })
}

func TestCluster_ProcessesFindEachOther(t *testing.T) {
	ctl := serveMember(t, clusterConfig(t, "controller,frontend"))
	if !strings.HasSuffix(ctl.at.Line(), " gossip="+ctl.at.Gossip) {
		t.Errorf("ready line: got %q, want the gossip address at its end", ctl.at.Line())
	}
	want := []string{ctl.at.Addr + "=controller,frontend"}
	var last *member
	for _, role := range []string{RoleStore, RoleInput, RoleOutput} {
		last = serveMember(t, clusterConfig(t, role, ctl.at.Gossip))
		want = append(want, last.at.Addr+"="+role)
	}
	ctl.awaitHosts(want...)
	if err := last.own.meta.Insert(t.Context(), probes, probe("a"), []byte("{}")); err != nil {
		t.Fatalf("insert through the other process: %v", err)
	}
	if row, err := ctl.own.meta.Get(t.Context(), probes, probe("a"), metadata.Serial); err != nil || row.Version == 0 {
		t.Errorf("the row where the metadata are: %+v, %v", row, err)
	}
	if err := last.end(); err != nil {
		t.Error(err)
	}
	ctl.awaitHosts(append(want[:3], want[3]+" left")...) // listed for an hour
}

func TestCluster_SecondControllerIsRefused(t *testing.T) {
	first := serveMember(t, clusterConfig(t, "controller,frontend"))
	cfg := clusterConfig(t, allRoles, first.at.Gossip)
	err := receive(t, "end of the second", begin(t, cfg).ended)
	wantCode(t, "a second controller", err, core.CodeConflict, "Cassandra")
	if !strings.Contains(err.Error(), first.at.Addr) {
		t.Errorf("the refusal does not say who holds the metadata: %v", err)
	}
	wantFree(t, cfg.Data)
	first.want("/readyz", 200, "ready")
}

// bridge makes one of the clusters that gossip at addresses. It belongs to none of them.
func bridge(t *testing.T, addresses ...string) {
	t.Helper()
	m, err := gossip.New(gossip.Config{
		Self: membership.Host{ID: "host-bridge", Address: "127.0.0.1:1", Run: core.RunID{ID: core.NewID(time.Now())}},
		Bind: "127.0.0.1:0", Join: addresses, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Two that did not know of each other are made one cluster by a third.
func TestCluster_NewerOfTwoControllersEnds(t *testing.T) {
	older := serveMember(t, clusterConfig(t, "controller,frontend"))
	newer := serveMember(t, clusterConfig(t, "controller,frontend"))
	bridge(t, older.at.Gossip, newer.at.Gossip)
	wantCode(t, "the newer one", receive(t, "end of the newer one", newer.ended), core.CodeConflict, "Cassandra")
	older.want("/readyz", 200, "ready")
	if err := older.end(); err != nil {
		t.Errorf("the older one: %v", err)
	}
}

// TestCluster_ControllerInUseDoesNotEnd: a host that joins an older cluster by mistake must not end a newer one that
// serves.
func TestCluster_ControllerInUseDoesNotEnd(t *testing.T) {
	for name, use := range map[string]func(*testing.T, *member){
		"a host has joined": func(t *testing.T, m *member) {
			serveMember(t, clusterConfig(t, RoleStore, m.at.Gossip))
			waitUntil(t, "a store of the cluster", m.own.joined)
		},
		"a queue is there": func(t *testing.T, m *member) {
			record := metadata.NameRecord{Queue: core.QueueID{ID: core.NewID(time.Now())}, Spec: core.QueueSpec{Path: "/t/q"}}
			if err := metadata.Create(t.Context(), m.own.meta, metadata.Names, metadata.NameKey(record.Spec.Path), record); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			older := serveMember(t, clusterConfig(t, "controller,frontend"))
			newer := serveMember(t, clusterConfig(t, "controller,frontend"))
			use(t, newer)
			bridge(t, older.at.Gossip, newer.at.Gossip)
			waitUntil(t, "that it goes on", func() bool {
				if len(newer.ended) > 0 {
					t.Fatalf("the newer one ended: %v", <-newer.ended)
				}
				return strings.Contains(newer.log.String(), "this one goes on")
			})
			newer.want("/readyz", 200, "ready")
			older.want("/readyz", 200, "ready")
		})
	}
}

func TestCluster_WaitsForTheMetadata(t *testing.T) {
	output := begin(t, clusterConfig(t, RoleOutput))
	output.own = receive(t, "open resources", output.res)
	output.address = output.own.self.Address
	waitUntil(t, "said in the log", func() bool {
		return strings.Contains(output.log.String(), "waiting for the host that holds the cluster's metadata")
	})
	output.want("/healthz", 200, "ok")
	output.want("/readyz", 503, "starting")
	serveMember(t, clusterConfig(t, "controller,frontend", output.own.gossip.Address()))
	receive(t, "ready", output.ready)
}

func TestCluster_WaitEndsWithTheProcess(t *testing.T) {
	output := begin(t, clusterConfig(t, RoleOutput))
	receive(t, "open resources", output.res)
	if err := output.end(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// The metadata go away and come back elsewhere, in the same directory.
func TestCluster_MetadataMove(t *testing.T) {
	cfg := clusterConfig(t, "controller,frontend")
	ctl := serveMember(t, cfg)
	output := serveMember(t, clusterConfig(t, RoleOutput, ctl.at.Gossip))
	meta := output.own.meta
	if err := meta.Insert(t.Context(), probes, probe("a"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{}, 1)
	watching, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		_ = meta.Watch(watching, probes, "p", func() { // ends with the test
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	})
	receive(t, "first call of the watch", changes)
	if err := ctl.end(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "known to be away", func() bool { return len(output.own.members.Hosts(membership.RoleMetadata)) == 0 })
	began := time.Now()
	wantCode(t, "an insert while they are away", meta.Insert(t.Context(), probes, probe("b"), []byte("{}")), core.CodeUnavailable, RoleController)
	if took := time.Since(began); took > metadata.DefaultDeadline/2 {
		t.Errorf("the refusal took %s", took)
	}
	output.want("/readyz", 200, "ready")
	cfg.Join = []string{output.at.Gossip}
	again := serveMember(t, cfg)
	if again.at.Addr == ctl.at.Addr {
		t.Logf("the port is the same by chance: %s", again.at.Addr)
	}
	waitUntil(t, "read again", func() bool {
		_, err := meta.Get(t.Context(), probes, probe("a"), metadata.Serial)
		return err == nil
	})
	receive(t, "call of the watch after the move", changes)
}

func TestNode_StoresInOneProcess(t *testing.T) {
	cfg := testConfig(t)
	cfg.Stores = 3
	var before []core.HostID
	for run := range 2 {
		m := serveMember(t, cfg)
		var stores []core.HostID
		addresses := make(map[string]bool)
		for _, h := range m.own.members.Hosts(RoleStore) {
			stores = append(stores, h.ID)
			addresses[h.Address] = true
		}
		if len(stores) != 3 || len(addresses) != 3 {
			t.Fatalf("run %d: store hosts: got %v at %v, want three", run, stores, addresses)
		}
		if before != nil && !slices.Equal(before, stores) {
			t.Errorf("run %d: store hosts: got %v, were %v", run, stores, before)
		}
		before = stores
		for addr := range addresses {
			p := &process{t: t, address: addr}
			if status, text := p.get(http.DefaultClient, "/metrics"); status != 200 || !strings.Contains(text, "\ncolumba_storehost_") {
				t.Errorf("%s/metrics: got %d %.300q", addr, status, text)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		if err := m.end(); err != nil {
			t.Errorf("run %d: end: %v", run, err)
		}
	}
	cfg.Stores = 1
	m := serveMember(t, cfg)
	if !strings.Contains(m.log.String(), "a store of an earlier run is not served") {
		t.Errorf("fewer stores than before: the log does not say so:\n%s", m.log)
	}
}

func TestCluster_StoresOfOneProcessAreHosts(t *testing.T) {
	ctl := serveMember(t, clusterConfig(t, "controller,frontend"))
	cfg := clusterConfig(t, RoleStore, ctl.at.Gossip)
	cfg.Stores = 2
	stores := serveMember(t, cfg)
	waitUntil(t, "seeing two stores", func() bool { return len(ctl.own.members.Hosts(RoleStore)) == 2 })
	if err := stores.end(); err != nil {
		t.Error(err)
	}
	waitUntil(t, "seeing no store", func() bool { return len(ctl.own.members.Hosts(RoleStore)) == 0 })
}
