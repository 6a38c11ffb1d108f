package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// mergedShare adds a share of n merged messages.
func mergedShare(t *testing.T, g *Group, id byte, rate, n int) *Share {
	t.Helper()
	s := g.AddShare(extent(id), State{}, start)
	s.Merged(rate)
	if n > 0 {
		offer(t, s, n)
	}
	return s
}

func TestMerged_BypassesDelayAndSkipOlder(t *testing.T) {
	g := NewGroup(core.GroupSpec{Delay: time.Hour, SkipOlder: 2 * time.Hour}.WithDefaults())
	s := mergedShare(t, g, 1, 0, 0)
	offerAt(t, s, 2, start.Add(-time.Minute), start)
	offerAt(t, s, 2, start.Add(-100*time.Hour), start)
	if d := g.Depth(); d.Ready != 4 || d.Delayed != 0 || s.KeptBack() {
		t.Errorf("got %+v, kept back %v; want 4 ready", d, s.KeptBack())
	}
	want(t, "all", take(g, 9, start), "1+2@1", "3+2@1")
	if n := g.Counters().Skipped; n != 0 {
		t.Errorf("%d are skipped", n)
	}
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

// TestMerged_AtMostAQuarter takes with all sizes of credit: as long as there is fresh work, merged messages are a
// quarter of what is handed out. Failed messages are handed out again in their part, too.
func TestMerged_AtMostAQuarter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const each = 700
		g := NewGroup(core.GroupSpec{Breaker: core.BreakerOff, NoNackThrottle: true}.WithDefaults())
		for i := range rapid.IntRange(1, 4).Draw(rt, "merged") {
			mergedShare(t, g, byte(100+i), 0, each)
		}
		fresh := rapid.IntRange(1, 3).Draw(rt, "fresh")
		for i := range fresh {
			offer(t, g.AddShare(extent(byte(1+i)), State{}, start), each)
		}
		now, merged, others := start, 0, 0
		for others < fresh*each-turnMessages {
			now = now.Add(time.Millisecond)
			back := make(map[*Share]bool)
			for _, r := range g.Take(1, Credit{Messages: rapid.IntRange(1, 300).Draw(rt, "credit"), Bytes: 1 << 20}, now, nil) {
				if !r.Share.IsMerged() {
					others += int(r.Count)
					r.Share.Ack(r.Base, r.Count, r.Attempt, now, nil)
					continue
				}
				merged += int(r.Count)
				for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
					if err := r.Share.Nack(seq, r.Attempt, 0, nil, 0, now); err != nil {
						rt.Fatal(err)
					}
				}
				back[r.Share] = r.Attempt < 3
			}
			for s, again := range back {
				if again {
					save(s, now)
				}
			}
			if others < fresh*each && merged > others/3+mergedTurn {
				rt.Fatalf("%d merged and %d others were handed out", merged, others)
			}
		}
		if merged < others/4-mergedTurn {
			rt.Fatalf("%d merged and %d others were handed out: they starve", merged, others)
		}
		if err := g.check(); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestMerged_AloneTakeAll has nothing else to hand out.
func TestMerged_AloneTakeAll(t *testing.T) {
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	mergedShare(t, g, 1, 0, 1000)
	n := 0
	for _, r := range g.Take(1, Credit{Messages: 5000, Bytes: 1 << 20}, start, nil) {
		n += int(r.Count)
	}
	if n != 1000 {
		t.Errorf("%d of 1000 were handed out", n)
	}
	fresh := g.AddShare(extent(2), State{}, start)
	offer(t, fresh, 10)
	want(t, "what came later goes at once", take(g, 20, start), "1+10@1")
}

// TestMerged_Rate hands out no more than the rate, and asks to be looked at when there is more.
func TestMerged_Rate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.SampledFrom([]int{1, 3, 10, 99, 1000, 50_000}).Draw(rt, "rate")
		g := NewGroup(core.GroupSpec{}.WithDefaults())
		total := min(5*rate, 1000)
		s := mergedShare(t, g, 1, rate, total)
		now, handed := start, 0
		for handed < total {
			for _, r := range g.Take(1, Credit{Messages: rapid.IntRange(1, total).Draw(rt, "credit"), Bytes: 1 << 30}, now, nil) {
				handed += int(r.Count)
				s.Ack(r.Base, r.Count, r.Attempt, now, nil)
			}
			if most := int(now.Sub(start).Seconds()*float64(rate)) + max(rate/burstsPerSecond, 1) + 1; handed > most {
				rt.Fatalf("%d at %d per second after %s", handed, rate, now.Sub(start))
			}
			if g.Ready() {
				continue
			}
			if err := g.check(); err != nil {
				rt.Fatal(err)
			}
			at, ok := g.NextDeadline()
			if !ok && handed < total || ok && !at.After(now) {
				rt.Fatalf("handed out %d of %d, and the next deadline is %s, %v", handed, total, at.Sub(now), ok)
			}
			if ok {
				now = at
				g.Tick(now)
			}
		}
		if least := time.Duration(float64(total)/float64(rate)*float64(time.Second)) - 200*time.Millisecond - time.Second/time.Duration(rate); now.Sub(start) < least {
			rt.Fatalf("%d at %d per second in %s", total, rate, now.Sub(start))
		}
		if took := now.Sub(start); took > time.Duration(float64(total)/float64(rate)*1.5*float64(time.Second))+time.Second {
			rt.Fatalf("%d at %d per second took %s", total, rate, took)
		}
	})
}

// TestMerged_IsolatedOnesTakeTurns: isolated messages of a merge are part of its quarter.
func TestMerged_IsolatedOnesTakeTurns(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second, Breaker: core.BreakerOff}, 0)
	g.Connected(2)
	merged := mergedShare(t, g, 2, 0, 40)
	want(t, "what hangs", take(g, 40, start), "1+40@1")
	offer(t, s, 1000)
	now := second(10)
	g.Tick(now)
	n := 0
	for range 100 {
		save(merged, now)
		for _, r := range g.Take(2, Credit{Messages: 1, Bytes: 1 << 20}, now, nil) {
			if r.Share == merged {
				n++
			}
			r.Share.Ack(r.Base, r.Count, r.Attempt, now, nil)
		}
	}
	if n == 0 || n > 100/mergedPart+1 {
		t.Errorf("%d of 100 deliveries were merged messages, want one in %d", n, mergedPart)
	}
}
