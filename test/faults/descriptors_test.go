package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// filesLimit has a process start with a limit of open files.
func filesLimit(n int) []string {
	return []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, n)}
}

// tablesOf counts the tables that a process has open.
func tablesOf(t *testing.T, s *process.Server) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.Pid())
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && strings.HasSuffix(name, ".sst") {
			n++
		}
	}
	return n
}

// many is queues of one replica, with what is in them.
type many struct {
	t      *testing.T
	client *client.Client
	queues []string
	mu     sync.Mutex
	acked  map[string]int
}

func newMany(t *testing.T, s *process.Server, n int) *many {
	t.Helper()
	m := &many{t: t, client: s.Client(), acked: make(map[string]int)}
	var specs []core.QueueSpec
	for i := range n {
		m.queues = append(m.queues, fmt.Sprintf("/t/many%d", i))
		specs = append(specs, core.QueueSpec{Path: m.queues[i], Replicas: 1, MinReplicas: 1})
	}
	results, err := m.client.Admin().CreateQueues(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return m
}

// all calls f for all queues, some at once, and returns how many were unavailable. Another error fails the test.
func (m *many) all(what string, f func(queue string) error) (unavailable int) {
	m.t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for _, q := range m.queues {
		g.Go(func() error {
			if err := f(q); err != nil {
				m.mu.Lock()
				defer m.mu.Unlock()
				if unavailable++; core.CodeOf(err).Class() == core.ClassFatal {
					m.t.Errorf("%s %s: %v, want that it is unavailable", what, q, err)
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	return unavailable
}

func (m *many) publish() (unavailable int) {
	m.t.Helper()
	return m.all("publish to", func(q string) error {
		p, err := m.client.Publisher(m.t.Context(), q)
		if err != nil {
			return err
		}
		defer p.Close(m.t.Context())
		if _, err := p.Publish(m.t.Context(), client.Message{Body: []byte(q)}); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.acked[q]++
		return nil
	})
}

// read reads all messages of all queues.
func (m *many) read() (unavailable int) {
	m.t.Helper()
	return m.all("read", func(q string) error {
		n := 0
		for x, err := range m.client.Admin().Peek(m.t.Context(), q) {
			if err != nil {
				return err
			}
			if n++; string(x.Message.Body) != q {
				m.t.Errorf("%s has %.50q", q, x.Message.Body)
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if n < m.acked[q] {
			m.t.Errorf("%s has %d messages, and %d were acknowledged", q, n, m.acked[q])
		}
		return nil
	})
}

// TestFewFileDescriptors: a store may have 128 files open and holds many extents in many tables, and somebody opens
// more connections to it than that. Some calls are refused as unavailable; nothing is damaged, nothing is lost, and the
// process goes on. With too few files to work it says so and ends.
func TestFewFileDescriptors(t *testing.T) {
	extents, starts := 60, 4
	if os.Getenv(longEnv) != "" {
		extents, starts = 500, 40
	}
	c := process.StartCluster(t, process.Layout{Stores: 1, Inputs: 1, Outputs: 1})
	store := c.Stores[0]
	m := newMany(t, c.Controller, extents)
	for range starts { // each makes tables of what was published before
		if n := m.publish(); n > 0 {
			t.Logf("%d publishes were refused", n)
		}
		store.Restart()
	}
	store.Kill()
	store.Under(filesLimit(64)...)
	store.Begin()
	if code, said := store.Ended(), store.Log(); code != core.ExitUnavailable || !strings.Contains(said, "the process may have 64 files open, and needs 88 (unavailable) – raise the limit") {
		t.Errorf("with 64 files the store ended with %d and said …%s", code, said[max(0, len(said)-500):])
	}
	store.Under(filesLimit(128)...)
	store.Start()
	c.AwaitHosts()
	pid := store.Pid()
	if !strings.Contains(store.Log(), "the limit of open files is low") || store.Metric("process_max_fds") != 128 {
		t.Errorf("the log does not say that the limit is low, %.0f", store.Metric("process_max_fds"))
	}
	process.Eventually(t, "all can be published to", func() bool { return m.publish() == 0 })
	// The output host hears of the store by itself, by gossip, and not by the exchange of all members, each 10 s.
	process.EventuallyWithin(t, 5*time.Second, "all can be read", func() bool { return m.read() == 0 })
	tables := tablesOf(t, store)
	if most := store.Metric("columba_server_tables_limit"); float64(tables) > most+8 {
		t.Errorf("%d tables are open, want %.0f and those that are being read", tables, most)
	}

	var flood []net.Conn
	defer func() {
		for _, x := range flood {
			x.Close()
		}
	}()
	for range 300 {
		if x, err := net.Dial("tcp", store.Addr); err == nil {
			flood = append(flood, x)
		}
	}
	refused := m.publish() + m.read()
	t.Logf("%d extents: %d tables open; of %d calls %d were refused while %d connections were open", extents, tables, 2*extents, refused, len(flood))
	for _, x := range flood {
		x.Close()
	}
	flood = nil
	process.Eventually(t, "all can be published to again", func() bool { return m.publish() == 0 })
	if store.Alive(); store.Pid() != pid {
		t.Error("the store was started again")
	}
	if n := store.Metric("columba_storehost_damaged_extents") + store.Metric("columba_storehost_quarantined_extents_total") + store.Metric("columba_storehost_log_failures_total"); n != 0 {
		t.Errorf("%.0f extents are damaged, or the log has failed", n)
	}
	if n := store.Metric("columba_server_connections_refused_total") + store.Metric("columba_server_connections_idle_closed_total"); n == 0 {
		t.Error("no connection was refused, or closed for another")
	}

	store.Kill()
	store.Under()
	store.Start()
	c.AwaitHosts()
	process.Eventually(t, "all can be published to with more files", func() bool { return m.publish() == 0 })
	process.Eventually(t, "all can be read with more files", func() bool { return m.read() == 0 })
}
