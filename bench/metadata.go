package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/bench/measure"
)

// nodesEnv names the Cassandra nodes, as test/cassandra/cassandra.sh does for the command that it runs:
// IP:PORT,IP:PORT…
const nodesEnv = "CASSANDRA_NODES"

// metadataRounds are measured of each cluster of a pair.
const metadataRounds = 2

// metadataMessages are the sizes of messages, in bytes, and how many of them are drained at once: for seconds, as
// freshRound. builds has the same.
var metadataMessages = [...]struct {
	size  int
	count float64
}{{messageSize, freshRound}, {100, 4 * freshRound}}

// metadataLoads is what one cluster did with messages of one size, in all rounds: published as fast as it goes,
// consumed as fast as it goes, and both at the steady rate.
type metadataLoads struct{ published, consumed, steady phase }

// metadataSide is a cluster with its loads by size.
type metadataSide struct {
	cluster *cluster
	loads   [len(metadataMessages)]metadataLoads
}

// metadataPair is one repetition.
type metadataPair struct{ embedded, cassandra metadataSide }

// metadata compares a cluster whose metadata are on Cassandra nodes with one that has embedded metadata.
func (r *rig) metadata() error {
	nodes := os.Getenv(nodesEnv)
	if nodes == "" {
		return fmt.Errorf("no Cassandra nodes in %s; make bench-metadata starts three", nodesEnv)
	}
	r.report.say("in parentheses: µs of CPU time a message, of all servers: of the input host, the stores, the output host and the controller")
	var pairs []metadataPair
	for i := range r.pairs {
		p, err := r.metadataPair(i, nodes)
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
		for j, m := range metadataMessages {
			r.report.say("repetition %d, %d bytes, embedded: %v", i+1, m.size, p.embedded.loads[j])
			r.report.say("repetition %d, %d bytes, Cassandra: %v", i+1, m.size, p.cassandra.loads[j])
		}
	}
	r.reportMetadata(pairs)
	return nil
}

func (l metadataLoads) String() string {
	return fmt.Sprintf("publish %v, consume %v, %d/s %v", l.published, l.consumed, steadyRate, l.steady.serversEach())
}

// reportMetadata judges the medians of the pairs' ratios.
func (r *rig) reportMetadata(pairs []metadataPair) {
	for i, m := range metadataMessages {
		ratio := func(of func(metadataLoads) float64) float64 {
			var v []float64
			for _, p := range pairs {
				v = append(v, of(p.cassandra.loads[i])/of(p.embedded.loads[i]))
			}
			return median(v)
		}
		name := func(what string) string { return fmt.Sprintf("%d bytes, %s, Cassandra ÷ embedded", m.size, what) }
		r.report.atLeast(name("published"), ratio(func(l metadataLoads) float64 { return l.published.rate() }), 0.75, "×")
		r.report.atLeast(name("consumed"), ratio(func(l metadataLoads) float64 { return l.consumed.rate() }), 0.75, "×")
		r.report.atMost(name(fmt.Sprintf("CPU at %d/s", steadyRate)), ratio(func(l metadataLoads) float64 { return l.steady.serversEach().sum() }), 1.05, "×")
		r.report.info(name("CPU of publishing"), ratio(func(l metadataLoads) float64 { return l.published.serversEach().sum() }), "×", "as fast as it goes")
		r.report.info(name("CPU of consuming"), ratio(func(l metadataLoads) float64 { return l.consumed.serversEach().sum() }), "×", "as fast as it goes")
	}
}

// metadataPair measures two clusters that live at once and take turns, so that the idle Cassandra nodes, and the
// machine's moods, are the same for both. The order changes with each round and each repetition.
func (r *rig) metadataPair(i int, nodes string) (p metadataPair, err error) {
	url := fmt.Sprintf("cassandra://%s/%s_%d", nodes, strings.ReplaceAll(filepath.Base(r.dir), "-", "_"), i) // a keyspace of its own
	if err := r.applySchema(url); err != nil {
		return p, err
	}
	if err := r.fillPageCache(); err != nil {
		return p, err
	}
	if p.embedded.cluster, err = r.metadataCluster(fmt.Sprint("embedded", i)); err != nil {
		return p, err
	}
	defer p.embedded.cluster.remove()
	if p.cassandra.cluster, err = r.metadataCluster(fmt.Sprint("cassandra", i), "--metadata", url); err != nil {
		return p, err
	}
	defer p.cassandra.cluster.remove()
	turns := []*metadataSide{&p.embedded, &p.cassandra}
	if i%2 == 1 {
		slices.Reverse(turns)
	}
	for range metadataRounds {
		for j := range metadataMessages {
			for _, s := range turns {
				if err := r.metadataRound(s.cluster, j, &s.loads[j]); err != nil {
					return p, err
				}
			}
		}
		slices.Reverse(turns)
	}
	return p, nil
}

func (r *rig) applySchema(url string) error {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	if _, err := machine.Command(ctx, r.columba, "schema", "apply", url).Output(); err != nil {
		return fmt.Errorf("schema apply %s: %w", url, machine.WithStderr(err))
	}
	return nil
}

func (r *rig) metadataCluster(name string, flags ...string) (*cluster, error) {
	c, err := r.cluster(name, true, flags...)
	if err != nil {
		return nil, err
	}
	if err = c.createQueue(r, queuePath); err == nil {
		err = r.createGroup(c.controller, defaultLock)
	}
	if err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// metadataRound has messages of one of the sizes go through the cluster, and adds what was done.
func (r *rig) metadataRound(c *cluster, which int, l *metadataLoads) error {
	m := metadataMessages[which]
	stored, err := r.store(c, m.count, m.size)
	if err != nil {
		return err
	}
	l.published.add(stored)
	if err := c.during(&l.consumed, func() (measure.Outcome, error) { return r.ackAll(c, int64(stored.messages)) }); err != nil {
		return err
	}
	return c.during(&l.steady, func() (measure.Outcome, error) { return r.flowAlong(c, m.size, 2*r.slice) })
}
