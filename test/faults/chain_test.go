package faults

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// TestClusterKeepsChainOrder kills and pauses input hosts and output hosts of a CP queue, and rolls its extents, under
// publishers and a group with one consumer: the chain has each publisher's messages in their order, and first
// deliveries are in the order of the chain. TestChains does it in virtual time, with faults of all kinds.
func TestClusterKeepsChainOrder(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{})
	c.Controller.Must("", "create", "queue", queue, "--consistency", "cp")
	l := newLoadOf(t, c.Controller, 300, []string{"calm"}, "--lock-timeout", "5s")
	l.stay = func() time.Duration { return time.Hour }
	l.start(3, 1)
	victims := []*process.Server{c.Inputs[0], c.Outputs[0], c.Inputs[1], c.Outputs[1]}
	rounds, rolls := scaled(t, 24), 0
	for i := range rounds {
		l.goesOn(500)
		for _, e := range l.extents() { // a roll without a fault
			if e.State == core.ExtentOpen && c.Controller.Run("", "seal", queue, e.Extent).Code == 0 {
				rolls++
			}
		}
		l.goesOn(500)
		f := []fault{kill, pause}[i/len(victims)%2]
		l.strike(f, victims[i%len(victims)], 2*time.Second)
		c.AwaitHosts()
	}
	l.goesOn(1000)
	chain := verify.Chain{Queue: queue}
	l.stopPublishing()
	type link struct {
		Extent string
		Chain  uint64
	}
	links := process.Decode[link](t, c.Controller.Ask("list", "extents", queue, "-o", "json"))
	slices.SortFunc(links, func(a, b link) int { return cmp.Compare(a.Chain, b.Chain) })
	for i, x := range links {
		if x.Chain != uint64(i+1) {
			t.Errorf("extent %s has place %d of the chain, want %d", x.Extent, x.Chain, i+1)
		}
		r, err := client.ParseReceipt(x.Extent + ":1")
		if err != nil {
			t.Fatal(err)
		}
		chain.Extents = append(chain.Extents, r.Extent)
	}
	l.mu.Lock()
	l.history.Chains = append(l.history.Chains, chain)
	l.mu.Unlock()
	report := l.finish()
	if n := len(report.Of(verify.Disordered)); n > 0 {
		t.Errorf("%d messages are out of order", n)
	}
	if rolls < rounds/2 {
		t.Errorf("%d rolls in %d rounds", rolls, rounds)
	}
	l.row("cp queue: input and output hosts killed and paused, extents rolled", fmt.Sprintf("a chain of %d extents, %d out of order", len(links), len(report.Of(verify.Disordered))))
}
