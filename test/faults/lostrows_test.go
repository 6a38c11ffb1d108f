package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	meta "github.com/columbamq/columba/metadata/cassandra"
	"github.com/columbamq/columba/test/cassandra"
	"github.com/columbamq/columba/test/process"
)

// foundWithin is the time within which an extent without a create row and without hints is delivered again: metadata
// must lack it for five minutes, and a store and then the controller of the queue hear of it within half a minute each.
const foundWithin = 5*time.Minute + 2*30*time.Second

// TestRowsAreLost deletes the create rows and hints of open and sealed extents of an AP and of a CP queue in Cassandra,
// by hand, while all controllers are dead. When they have started again, consumers get everything, that of the CP queue
// in its order. TestLostRows does it in virtual time.
func TestRowsAreLost(t *testing.T) {
	long(t)
	url := onCassandra(t, "all")
	c := process.StartCluster(t, process.Layout{Controllers: 2, Stores: 3, Inputs: 1, Outputs: 1, Metadata: url})
	at := anywhere(t, c)
	const ap, cp = "/t/ap", "/t/cp"
	at.Must("", "create", "queue", ap)
	at.Must("", "create", "queue", cp, "--consistency", "cp")
	var want [2][]string
	lost := make(map[core.ExtentID]core.QueueID)
	for i, path := range []string{ap, cp} {
		at.Must("", "create", "group", path, "g", "--start", "earliest")
		for range 4 {
			var b strings.Builder
			for range 50 {
				line := fmt.Sprintf("%06d", len(want[i]))
				want[i] = append(want[i], line)
				fmt.Fprintln(&b, line)
			}
			at.Must(b.String(), "publish", path)
			if len(want[i]) == 200 {
				break
			}
			for _, e := range extentsOf(t, at, path) {
				if e.State == string(core.ExtentOpen) {
					at.Must("", "seal", path, e.Extent)
				}
			}
		}
		for _, e := range toLose(t, extentsOf(t, at, path)) {
			lost[e] = queueOf(t, at, path)
		}
	}
	for _, s := range slices.Concat(c.Controllers, c.Inputs, c.Outputs) { // nobody remembers the extents
		s.Kill()
	}
	forget(t, url, lost)
	for _, s := range slices.Concat(c.Controllers, c.Inputs, c.Outputs) {
		s.Start()
	}
	c.AwaitHosts()
	began := time.Now()
	cl := at.Client()
	got := [2]*bodies{consumeLines(t, cl, ap), consumeLines(t, cl, cp)}
	process.EventuallyOr(t, foundWithin, func() bool { return got[0].count() >= len(want[0]) && got[1].count() >= len(want[1]) }, func() string {
		return fmt.Sprintf("all of %d and %d messages came: %d and %d did", len(want[0]), len(want[1]), got[0].count(), got[1].count())
	})
	t.Logf("all came %s after the start", time.Since(began).Round(time.Second))
	if all := got[0].sorted(); !slices.Equal(all, want[0]) {
		t.Errorf("of the AP queue came %v", all)
	}
	if all := got[1].inOrder(); !slices.Equal(all, want[1]) {
		t.Errorf("of the CP queue came, in this order, %v", all)
	}
}

// listedExtent is an extent as `columba list extents` has it.
type listedExtent struct {
	Extent, State string
	Chain         uint64
}

func extentsOf(t *testing.T, at *process.Server, path string) []listedExtent {
	t.Helper()
	return process.Decode[listedExtent](t, at.Ask("list", "extents", path, "-o", "json"))
}

func queueOf(t *testing.T, at *process.Server, path string) core.QueueID {
	t.Helper()
	q, err := at.Client().Admin().GetQueue(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return q.ID
}

// toLose are the open extents, and one that is sealed: the second place of a chain, or the first of others.
func toLose(t *testing.T, all []listedExtent) (out []core.ExtentID) {
	t.Helper()
	open, sealed := 0, 0
	for _, e := range all {
		isOpen := e.State == string(core.ExtentOpen)
		if !isOpen && (sealed > 0 || e.Chain > 0 && e.Chain != 2) {
			continue
		}
		id, err := core.ParseID(e.Extent)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, core.ExtentID{ID: id})
		if isOpen {
			open++
		} else {
			sealed++
		}
	}
	if open == 0 || sealed == 0 {
		t.Fatalf("there are %d open extents to lose, and %d sealed ones, of %v", open, sealed, all)
	}
	return out
}

// forget deletes the create rows and the hints of extents, with CQL.
func forget(t *testing.T, url string, lost map[core.ExtentID]core.QueueID) {
	t.Helper()
	hosts, keyspace, _ := strings.Cut(strings.TrimPrefix(url, meta.Scheme), "/")
	rows := cassandra.NewRows(t, strings.Split(hosts, ","), keyspace)
	for id, queue := range lost {
		if n := rows.DeletePut("put_row", metadata.Extents.Name, queue.String(), id.String()); n != 1 {
			t.Fatalf("extent %s has %d create rows, want one to delete", id, n)
		}
		if n := rows.DeletePut("put_hint", metadata.Work.Name, metadata.HintLive.Partition(id), id.String()); n != 1 {
			t.Fatalf("extent %s has %d live hints, want one to delete", id, n)
		}
		rows.DeletePut("put_hint", metadata.Work.Name, metadata.HintOpen.Partition(id), id.String()) // which one that is sealed has not
	}
}

// bodies are the different bodies that a consumer got, in the order in which they came first.
type bodies struct {
	mu    sync.Mutex
	known map[string]bool
	all   []string
}

func (l *bodies) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *bodies) inOrder() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *bodies) sorted() []string { return slices.Sorted(slices.Values(l.inOrder())) }

// consumeLines acks what comes until the test ends.
func consumeLines(t *testing.T, cl *client.Client, path string) *bodies {
	t.Helper()
	l := &bodies{known: make(map[string]bool)}
	ackAll(t, cl, path, func(d *client.Delivery) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if body := string(d.Body); !l.known[body] {
			l.known[body] = true
			l.all = append(l.all, body)
		}
	})
	return l
}
