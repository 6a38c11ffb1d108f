package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// TestClusterGapOfStore measures for how long a publisher waits when a store is killed.
func TestClusterGapOfStore(t *testing.T) {
	long(t)
	next := 0
	gapsOfKills(t, "a store", 500*time.Millisecond, func(_ *load, c *process.Cluster) *process.Server {
		next++
		return c.Stores[next%len(c.Stores)]
	})
}

// TestClusterGapOfInput measures for how long a publisher waits when an input host that writes is killed.
func TestClusterGapOfInput(t *testing.T) {
	long(t)
	gapsOfKills(t, "an input host", time.Second, func(l *load, c *process.Cluster) *process.Server {
		s, _ := l.writer(c)
		return s
	})
}

// gapsOfKills kills one process after another and takes, of each kill, the longest time any publisher was without an
// acknowledgement.
func gapsOfKills(t *testing.T, what string, limit time.Duration, victim func(*load, *process.Cluster) *process.Server) {
	c := process.StartCluster(t, process.Layout{})
	l := newLoad(t, c.Controller, 500)
	l.start(4, 1)
	const away = time.Second
	var kills []time.Time
	for range scaled(t, 50) {
		l.goesOn(1000)
		s := victim(l, c)
		kills = append(kills, time.Now())
		l.strike(kill, s, away)
		c.AwaitHosts()
	}
	l.goesOn(1000)
	l.finish()
	var gaps []time.Duration
	for _, at := range kills {
		gaps = append(gaps, l.longestGap(at, at.Add(away)))
	}
	slices.Sort(gaps)
	p50, p99 := percentile(gaps, 50), percentile(gaps, 99)
	t.Logf("gaps of %d kills: %v", len(gaps), gaps)
	if p99 > limit {
		t.Errorf("the longest gap without an acknowledgement, of %d kills of %s: p99 %s, want at most %s", len(gaps), what, p99, limit)
	}
	l.row(what+" killed under load", fmt.Sprintf("longest gap of a publisher: p50 %s, p99 %s", p50.Round(time.Millisecond), p99.Round(time.Millisecond)))
}

// percentile is the least value that p percent of the sorted values do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// longestGap is the longest time between two acknowledgements of one publisher that touches a period.
func (l *load) longestGap(from, to time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := make(map[string][]time.Time)
	for _, p := range l.history.Published {
		if p.Outcome == verify.Acked {
			times[p.Publisher] = append(times[p.Publisher], p.At)
		}
	}
	for _, acks := range times {
		slices.SortFunc(acks, time.Time.Compare)
		for i := 1; i < len(acks); i++ {
			if acks[i].After(from) && acks[i-1].Before(to) {
				longest = max(longest, acks[i].Sub(acks[i-1]))
			}
		}
	}
	return longest
}

// TestPercentile keeps the figures honest: of 50 kills, p99 is the worst one.
func TestPercentile(t *testing.T) {
	var values []time.Duration
	for i := range 50 {
		values = append(values, time.Duration(i+1))
	}
	if p50, p99 := percentile(values, 50), percentile(values, 99); p50 != 25 || p99 != 50 {
		t.Errorf("p50 %d, p99 %d of 1 … 50", p50, p99)
	}
	if p := percentile(values[:1], 99); p != 1 {
		t.Errorf("p99 of one value is %d", p)
	}
}
