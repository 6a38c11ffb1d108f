package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// TestGapOfMachineOnCassandra kills a Cassandra node together with the controller that uses it first and a store, as if
// their machine was lost, and measures for how long a publisher waits.
func TestGapOfMachineOnCassandra(t *testing.T) {
	long(t)
	all := nodes.Three(t)
	url := onCassandra(t, "all")
	local := func(i int) string { return "?local=" + all[i%3].Address() }
	c := process.StartCluster(t, process.Layout{
		Controllers: 3, Stores: 3, Inputs: 2, Outputs: 2,
		FlagsOf: func(i int) []string { return []string{"--metadata", url + local(i)} }, // stores and input hosts have no use for it
	})
	l := newLoad(t, anywhere(t, c), 200)
	l.start(4, 1)
	const away = 10 * time.Second
	var gaps []time.Duration
	for i := range scaled(t, 6) {
		l.goesOn(1000)
		at := time.Now()
		all[i%3].Kill(t)
		c.Controllers[i%3].Kill()
		c.Stores[i%3].Kill()
		<-time.After(away)
		gaps = append(gaps, l.longestGap(at, at.Add(away)))
		all[i%3].Revive(t)
		c.Controllers[i%3].Start()
		c.Stores[i%3].Start()
		c.AwaitHosts()
		l.down(fmt.Sprint("machine ", i%3), at)
	}
	l.finish()
	slices.Sort(gaps)
	longest := gaps[len(gaps)-1]
	t.Logf("gaps: %v", gaps)
	if longest > 5*time.Second {
		t.Errorf("a publisher was without an acknowledgement for %s, want 5s at most", longest)
	}
	l.row("a machine killed under load: a Cassandra node, a controller and a store", fmt.Sprintf("longest gap of a publisher: %s", longest.Round(time.Millisecond)))
}
