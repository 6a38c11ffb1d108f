package faults

import (
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	meta "github.com/columbamq/columba/metadata/cassandra"
	"github.com/columbamq/columba/test/process"
)

// calls asks the nodes for what a change of the cluster needs, and for nothing else. The time of a change on a machine
// is judged by the time of these calls on the same machine in the same minute.
type calls struct {
	t     *testing.T
	store *meta.Store
	value []byte // about as large as a row of an extent
}

// startCalls makes them in a keyspace of their own.
func startCalls(t *testing.T) calls {
	t.Helper()
	url := onCassandra(t, "calls")
	cfg, err := meta.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := meta.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	value := make([]byte, 600)
	rand.Read(value)
	return calls{t, s, value}
}

func (c calls) ok(err error) {
	if err != nil {
		c.t.Errorf("a call on the nodes: %v", err)
	}
}

// puts writes two rows side by side.
func (c calls) puts() {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			now := time.Now()
			c.ok(c.store.Put(c.t.Context(), metadata.Extents, someExtent(), c.value, now, 0, metadata.Quorum))
		})
	}
	wg.Wait()
}

func someExtent() metadata.Key {
	now := time.Now()
	return metadata.ExtentKey(core.QueueID{ID: core.NewID(now)}, core.ExtentID{ID: core.NewID(now)})
}

// get reads a row that is not there.
func (c calls) get() {
	_, err := c.store.Get(c.t.Context(), metadata.Extents, someExtent(), metadata.Quorum)
	if core.CodeOf(err) != core.CodeNotFound {
		c.t.Errorf("a row that was never written: %v", err)
	}
}

// insert is one lightweight transaction.
func (c calls) insert() (metadata.Key, metadata.Version) {
	k := metadata.SealKey(core.ExtentID{ID: core.NewID(time.Now())})
	v, err := c.store.InsertVersion(c.t.Context(), metadata.Seals, k, c.value)
	c.ok(err)
	return k, v
}

// swapTwice is two of them, of one row.
func (c calls) swapTwice() {
	k, v := c.insert()
	c.ok(c.store.Update(c.t.Context(), metadata.Seals, k, v, c.value, 0))
}

// costs are the calls of each change that wait for one another; TestRoundTrips_OfExtents of controller counts them.
var costs = []struct {
	change string
	do     func(calls)
}{
	{"ap created", func(c calls) { c.puts(); c.get() }},
	{"cp created", func(c calls) { c.get(); c.insert(); c.puts(); c.get() }},
	{"sealed", calls.swapTwice},
}

// samples are times of the calls for each change.
type samples map[string][]time.Duration

// take measures each once.
func (s samples) take(c calls) {
	for _, cost := range costs {
		began := time.Now()
		cost.do(c)
		s[cost.change] = append(s[cost.change], time.Since(began))
	}
}

// median in seconds.
func (s samples) median(change string) float64 {
	all := slices.Sorted(slices.Values(s[change]))
	return all[len(all)/2].Seconds()
}

// callSlack is how much longer than its calls a change may take. It also asks hosts, and these write to their disks.
// Two extents of an AP queue are made side by side.
const callSlack = 1.75

// judge fails if a change is slower than its goal, unless the nodes are: then it may take as long as its calls, with
// callSlack.
func (s samples) judge(t *testing.T, change, of string, goal float64, took process.Histogram) {
	t.Helper()
	calls, median := s.median(change), took.Median()
	t.Logf("%d extents, %s: median %.1f ms, goal %.1f ms; the calls alone: %.1f ms", took.Count(), of, 1e3*median, 1e3*goal, 1e3*calls)
	if median > max(goal, callSlack*calls) {
		t.Errorf("%s: median %.1f ms, want %.1f ms, or %.1f times the %.1f ms of the calls alone", of, 1e3*median, 1e3*goal, callSlack, 1e3*calls)
	}
}
