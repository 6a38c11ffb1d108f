package main

import (
	"fmt"
	"slices"

	"github.com/columbamq/columba/bench/measure"
)

// mostOfBefore is the part that the output host may need of an earlier build's CPU time for a consumed message.
const mostOfBefore = 0.9

// buildSide is the cluster of one build, with what a message consumed cost its output host in each round, in µs.
type buildSide struct {
	name    string
	rig     *rig
	cluster *cluster
	output  []float64
}

// builds compares the CPU time that the output host needs for a consumed message with that of an earlier build.
func (r *rig) builds() error {
	if r.before == "" {
		return fmt.Errorf("name the binary of the earlier build with -before")
	}
	earlier := *r
	earlier.columba = r.before
	for _, m := range metadataMessages {
		now, before := &buildSide{name: "now", rig: r}, &buildSide{name: "before", rig: &earlier}
		if err := r.buildsOf(now, before, m.size, m.count); err != nil {
			return err
		}
		var ratios []float64
		for i := range now.output {
			ratios = append(ratios, now.output[i]/before.output[i])
		}
		r.report.say("%d bytes, now ÷ before: %.3f", m.size, ratios)
		name := fmt.Sprintf("%d bytes, CPU time of the output host for a consumed message", m.size)
		r.report.info(name, median(now.output), "µs", fmt.Sprintf("%.2f µs before", median(before.output)))
		r.report.atMost(name+", now ÷ before", median(ratios), mostOfBefore, "×")
	}
	return nil
}

// buildsOf measures messages of one size. Both clusters live at once and take turns, as the machine is not the same
// from one minute to the next, and who begins changes with each round. The first round does not count. The client is
// that of this build on both sides.
func (r *rig) buildsOf(now, before *buildSide, size int, count float64) (err error) {
	turns := []*buildSide{now, before}
	for _, s := range turns {
		if s.cluster, err = s.rig.metadataCluster(fmt.Sprint(s.name, size)); err != nil {
			return err
		}
		defer s.cluster.remove()
	}
	for i := range r.pairs + 1 {
		for _, s := range turns {
			p, err := r.buildRound(s.cluster, size, count)
			if err != nil {
				return err
			}
			if i > 0 {
				s.output = append(s.output, p.serversEach().output)
			}
			r.report.say("round %d, %d bytes, %s: consume %v", i, size, s.name, p)
		}
		slices.Reverse(turns)
	}
	return nil
}

// buildRound publishes messages and has a group consume them: that is what it measures.
func (r *rig) buildRound(c *cluster, size int, count float64) (p phase, err error) {
	stored, err := r.store(c, count, size)
	if err != nil {
		return p, err
	}
	err = c.during(&p, func() (measure.Outcome, error) { return r.ackAll(c, int64(stored.messages)) })
	return p, err
}
