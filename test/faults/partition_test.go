package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// Where the processes of a cluster are, in the order in which it starts them.
var (
	controllerNet = []int{0}
	storeNets     = []int{1, 2, 3}
	inputNets     = []int{4, 5}
	outputNets    = []int{6, 7}
)

// TestClusterPartitions cuts processes off from each other, both ways and one way, and resets their connections, under
// load.
func TestClusterPartitions(t *testing.T) {
	long(t)
	nets := process.NewNetworks(t, 8)
	c := process.StartCluster(t, process.Layout{Place: nets.Net, Flags: []string{"--insecure"}})
	l := newLoad(t, c.Controller, 500)
	l.start(3, 2)
	everybody := []int{0, 1, 2, 3, 4, 5, 6, 7}
	but := func(out ...int) (rest []int) {
		for _, i := range everybody {
			in := true
			for _, o := range out {
				in = in && i != o
			}
			if in {
				rest = append(rest, i)
			}
		}
		return rest
	}
	minority := []int{1, 4, 6} // a store, an input host, an output host
	slowest := time.Duration(0)
	cuts := []struct {
		name string
		cut  func()
	}{
		{"a store from everybody", func() { nets.Cut(storeNets[:1], but(storeNets[0])) }},
		{"an input host from one store", func() { nets.Cut(inputNets[:1], storeNets[1:2]) }},
		{"one way: a store hears an input host that does not hear it", func() { nets.Drop(storeNets[2:], inputNets[:1]) }},
		{"one way: an input host hears a store that does not hear it", func() { nets.Drop(inputNets[1:], storeNets[:1]) }},
		{"an input host from the controller", func() { nets.Cut(inputNets[:1], controllerNet) }},
		{"an output host from the stores", func() { nets.Cut(outputNets[:1], storeNets) }},
		{"an output host from the controller", func() { nets.Cut(outputNets[1:], controllerNet) }},
		{"one way: the controller does not hear a store", func() { nets.Drop(storeNets[1:2], controllerNet) }},
		{"a store, an input host and an output host from the others", func() { nets.Cut(minority, but(minority...)) }},
		{"the input hosts from the stores", func() { nets.Cut(inputNets, storeNets) }},
		{"resets between input hosts and stores", func() { nets.Reset(inputNets, storeNets) }},
		{"resets between output hosts and stores", func() { nets.Reset(outputNets, storeNets) }},
	}
	some := scaled(t, len(cuts))
	for i, x := range cuts {
		if l.random(len(cuts)-i) >= some {
			continue
		}
		some--
		l.goesOn(1000)
		from := time.Now()
		x.cut()
		<-time.After(cutFor)
		if nets.Heal() == 0 {
			t.Errorf("cut: %s: no packet was lost", x.name)
		}
		healed := time.Now()
		c.AwaitHosts()
		l.goesOn(1000)
		l.away(x.name, from)
		t.Logf("cut: %s: whole and publishing %s after the heal", x.name, time.Since(healed).Round(time.Millisecond))
		slowest = max(slowest, time.Since(healed))
	}
	for _, n := range l.finish().Counts {
		if share(n) > 0.01 {
			t.Errorf("group %s: %d duplicates of %d messages, want at most 1 %%", n.Group, n.Duplicates, n.Received)
		}
		if n.Recounted > 0 {
			t.Errorf("group %s: %d later attempts were counted by two owners", n.Group, n.Recounted)
		}
	}
	l.row(fmt.Sprintf("partitions and resets of 8 s, %d kinds", len(l.history.Crashes)), fmt.Sprintf("whole and publishing again within %s", slowest.Round(100*time.Millisecond)))
}

// TestClusterCutOffOwner cuts an output host off, with a store and an input host, while there is a backlog that its
// consumers, who reach it, work through slowly.
func TestClusterCutOffOwner(t *testing.T) {
	long(t)
	nets := process.NewNetworks(t, 8)
	c := process.StartCluster(t, process.Layout{Place: nets.Net, Flags: []string{"--insecure"}})
	l := newLoad(t, c.Controller, 2000)
	l.start(4, 0)
	process.Eventually(t, "a backlog", func() bool { return l.acknowledged() >= 24_000 })
	l.stopPublishing()
	consuming, cancel := context.WithCancel(t.Context())
	var consumers sync.WaitGroup
	stop := func() { cancel(); consumers.Wait() }
	t.Cleanup(stop)
	for _, g := range l.groups {
		for i := range 2 {
			consumers.Go(func() { l.slowConsumer(consuming, g, fmt.Sprintf("%s-%d", g, i)) })
		}
	}
	process.Eventually(t, "deliveries", func() bool { return l.delivered() >= 2000 })
	from := time.Now()
	nets.Cut([]int{storeNets[0], inputNets[0], outputNets[0]}, []int{0, 2, 3, 5, 7})
	before := l.delivered()
	<-time.After(cutFor)
	if n := l.delivered() - before; n < 1000 {
		t.Errorf("%d deliveries in the cut", n)
	}
	if nets.Heal() == 0 {
		t.Error("no packet was lost")
	}
	c.AwaitHosts()
	l.away("an output host cut off, with a backlog", from)
	report := l.finish()
	stop()
	for _, n := range report.Counts {
		if n.Recounted > 0 {
			t.Errorf("group %s: %d later attempts were counted by two owners", n.Group, n.Recounted)
		}
	}
	l.row("an output host cut off for 8 s, with a backlog", fmt.Sprintf("%d duplicates of what was acknowledged before its lease had ended", l.checkCut(from)))
}

// slowConsumer consumes some hundred messages a second until ctx ends.
func (l *load) slowConsumer(ctx context.Context, group, name string) {
	con, err := l.client.Consumer(ctx, queue, group, client.Prefetch(100))
	if err != nil {
		l.t.Errorf("consumer %s: %v", name, err)
		return
	}
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			l.t.Errorf("consumer %s: %v", name, err)
			break
		}
		<-time.After(2 * time.Millisecond)
		l.take(group, name, d)
	}
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = con.Close(end) // the server may be stopping
}

// ownsFor is how long after a cut an output host that was cut off may be seen to hand out: its lease, and as much again
// for a machine that is busy.
const ownsFor = 2 * dispatch.OwnerLease

// checkCut has no message delivered twice because two owners had it for the length of a cut: what was acknowledged in
// it after the leases of before had ended does not come again. It counts what was acknowledged before and did, which is
// no more than was delivered from a second before the cut, the time between checkpoints, until then.
func (l *load) checkCut(from time.Time) (early int) {
	l.t.Helper()
	type copyOf struct {
		group   string
		receipt core.Receipt
	}
	done := make(map[copyOf]time.Time) // when it was acknowledged first
	late, around := 0, 0
	for _, r := range slices.SortedStableFunc(slices.Values(l.history.Received), func(a, b verify.Received) int { return a.At.Compare(b.At) }) {
		x := copyOf{r.Group, r.Receipt}
		first, again := done[x]
		if !again && r.At.After(from.Add(-time.Second)) && r.At.Before(from.Add(ownsFor)) {
			around++
		}
		switch {
		case !again && r.Settled == verify.Done:
			done[x] = r.At
		case !again || r.Settled == verify.Dead:
		case first.After(from.Add(ownsFor)) && first.Before(from.Add(cutFor-time.Second)):
			late++
		case first.Before(from.Add(cutFor)):
			early++
		}
	}
	if late > 0 {
		l.t.Errorf("%d messages that were acknowledged %s and more after the beginning of the cut came again", late, ownsFor)
	}
	if early > around {
		l.t.Errorf("%d messages came again, and %d were delivered around the beginning of the cut", early, around)
	}
	return early
}

// cutFor is how long a cut lasts.
const cutFor = 8 * time.Second
