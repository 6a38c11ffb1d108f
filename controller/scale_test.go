package controller

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/test/scale"
)

var (
	scaleQueues  = flag.Int("scale", 0, "queues of TestScale, with ten extents each; 0: it is skipped")
	scaleLatency = flag.Duration("scalelatency", time.Millisecond, "of each request to the metadata in TestScale")
)

// meter is metadata that count what is read, as Cassandra would be asked: GetRows reads row by row, sixteen side by side.
// Each request takes a time.
type meter struct {
	metadata.Store
	latency time.Duration
	mu      sync.Mutex
	read    map[string]usage // by table, and how it was read
}

type usage struct{ requests, rows, bytes int }

func newMeter(to metadata.Store, latency time.Duration) *meter {
	return &meter{Store: to, latency: latency, read: make(map[string]usage)}
}

func (m *meter) note(t metadata.Table, how string, requests int, rows ...metadata.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := t.Name + " " + how
	u := m.read[key]
	u.requests += requests
	u.rows += len(rows)
	for _, r := range rows {
		u.bytes += len(r.Value)
	}
	m.read[key] = u
}

// take answers and forgets what was read.
func (m *meter) take() map[string]usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.read
	m.read = make(map[string]usage)
	return out
}

func (m *meter) wait(requests int) {
	if m.latency > 0 {
		<-time.After(m.latency * time.Duration(requests))
	}
}

func (m *meter) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	m.wait(1)
	row, err := m.Store.Get(ctx, t, k, c)
	if err == nil {
		m.note(t, "get", 1, row)
	} else {
		m.note(t, "get", 1)
	}
	return row, err
}

func (m *meter) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	const atOnce = 16
	m.wait((len(keys) + atOnce - 1) / atOnce)
	rows, err := metadata.GetRows(ctx, m.Store, t, keys, c)
	m.note(t, "rows", len(keys), rows...)
	return rows, err
}

func (m *meter) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	m.wait(1)
	rows, more, err := m.Store.List(ctx, t, partition, after, limit, c)
	m.note(t, "list", 1, rows...)
	return rows, more, err
}

func (m *meter) text() string {
	var b strings.Builder
	all := m.take()
	sum := usage{}
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(all[b].requests, all[a].requests) }) {
		u := all[key]
		fmt.Fprintf(&b, "\n%22s %8d requests %8d rows %10d bytes", key, u.requests, u.rows, u.bytes)
		sum = usage{sum.requests + u.requests, sum.rows + u.rows, sum.bytes + u.bytes}
	}
	fmt.Fprintf(&b, "\n%22s %8d requests %8d rows %10d bytes", "all", sum.requests, sum.rows, sum.bytes)
	return b.String()
}

// cpu is the time of processors that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// measured is the time of processors that f takes, by the fakes, too.
func measured(f func()) time.Duration {
	began := cpu()
	f()
	return cpu() - began
}

// populate writes a cluster whose shares the output hosts have, and gives the stores their replicas.
func (r *harness) populate(size scale.Size) scale.Cluster {
	r.t.Helper()
	var outputs []placement.Candidate
	runs := make(map[core.HostID]core.RunID)
	for _, o := range r.outputs {
		outputs = append(outputs, placement.Candidate{ID: o.id})
		runs[o.id] = o.run
	}
	one := batch(1, "1", 0)
	hosts := scale.Hosts{
		Controller: r.self.ID, Run: newRun(), Input: r.input.ID, InputRun: r.input.Run, Checksum: sumOf([][]byte{one}),
		Owner: func(g core.GroupID, e core.ExtentID) (core.HostID, core.RunID) {
			owner, _ := placement.Owner(g.String()+e.String(), outputs)
			return owner, runs[owner]
		},
	}
	for _, s := range r.stores {
		hosts.Stores = append(hosts.Stores, core.Place{Store: s.id, Disk: s.disk})
	}
	c, err := scale.Write(r.t.Context(), r.meta, size, hosts, time.Now())
	r.ok(err)
	for _, s := range r.stores {
		s.with(func() {
			for _, e := range c.Extents {
				x := &fakeReplica{tuple: e, opened: true, header: s.run, batches: [][]byte{one}}
				if !c.Open[e.ID] {
					x.fenced, x.sealed, x.l, x.version = true, true, scale.Records, 1
				}
				s.replicas[e.ID] = x
				s.changed(x)
			}
		})
	}
	return c
}

// lookedAt is how many queues rounds have looked at.
func (h *Host) lookedAt() int {
	h.shares.mu.Lock()
	defer h.shares.mu.Unlock()
	return len(h.shares.mu.looked)
}

// TestScale measures controllers of many queues in virtual time: their heap, what they read, and the processor that they and
// their fakes use.
func TestScale(t *testing.T) {
	if *scaleQueues == 0 {
		t.Skip("run it with -scale=10000")
	}
	bubble(t, harnessOptions{stores: 3, outputs: 2, edit: beside}, func(r *harness) {
		r.ctl.end()
		c := r.populate(scale.Size{Queues: *scaleQueues, Extents: 10, Behind: 2})
		t.Logf("%d queues, %d extents, %s for each request", len(c.Queues), len(c.Extents), *scaleLatency)
		plain := r.meta
		before := heap()
		var both [2]*running
		meters := [2]*meter{newMeter(plain, *scaleLatency), newMeter(plain, *scaleLatency)}
		start := func(i int, f func() *running) {
			began := time.Now()
			used := measured(func() {
				r.use(meters[i])
				both[i] = f()
				t.Logf("controller %d has started after %s", i, time.Since(began))
				r.use(plain)
			})
			t.Logf("controller %d: %s of processor, heap %d MB%s", i, used, (heap()-before)>>20, meters[i].text())
		}
		began := time.Now()
		start(0, func() *running { return r.startController(beside) })
		r.ctl = both[0]
		r.answer(r.ctl)
		r.renews(0, 1)
		used := measured(func() {
			r.eventually("it has looked at all queues", 30*time.Minute, func() bool { return both[0].lookedAt() == len(c.Queues) })
		})
		t.Logf("controller 0 is ready after %s, %s of processor%s", time.Since(began), used, meters[0].text())
		r.sleep(2 * time.Minute)
		one := heap()
		t.Logf("heap of one controller, with the lists of the output hosts: %d MB", (one-before)>>20)
		idle := func(name string, n int) {
			for i := range n {
				meters[i].take()
			}
			used := measured(func() { r.sleep(time.Minute) })
			t.Logf("%s minute of %d controllers: %s of processor", name, n, used)
			for i := range n {
				t.Logf("controller %d has read%s", i, meters[i].text())
			}
		}
		idle("idle1", 1)
		start(1, func() *running { return r.beside("ctl2") })
		r.sleep(3 * time.Minute)
		t.Logf("heap of two controllers: %d MB", (heap()-before)>>20)
		idle("idle2", 2)
		both[0].end()
		both[1].end()
		r.ctl = nil
	})
}
