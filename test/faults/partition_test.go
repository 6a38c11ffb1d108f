package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// Where the processes of a cluster are, in the order in which it starts them.
var (
	controllerNet = []int{0}
	storeNets     = []int{1, 2, 3}
	inputNets     = []int{4, 5}
	outputNets    = []int{6, 7}
)

// TestClusterPartitions cuts processes off from each other, both ways and one way, and resets their connections, under load.
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
		<-time.After(8 * time.Second)
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
	l.finish()
	l.row(fmt.Sprintf("partitions and resets of 8 s, %d kinds", len(l.history.Crashes)), fmt.Sprintf("whole and publishing again within %s", slowest.Round(100*time.Millisecond)))
}
