package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// workers take all they are given, and answer at once. They are of many sessions, so that none is throttled.
type workers struct {
	t     *testing.T
	g     *Group
	now   time.Time
	next  SessionID
	given map[core.Seq]int
	dead  map[core.Seq]int // attempts of dead letters
}

func newWorkers(t *testing.T, g *Group) *workers {
	return &workers{t: t, g: g, now: start, given: map[core.Seq]int{}, dead: map[core.Seq]int{}}
}

// work takes up to n messages, fails those that are bad, acks the others, and says how many it took.
func (w *workers) work(n int, bad func(core.Seq) bool) (took int) {
	w.next++
	for _, r := range w.g.Take(w.next, Credit{Messages: n, Bytes: 1 << 20}, w.now, nil) {
		for i := range r.Count {
			seq := r.Base + core.Seq(i)
			took++
			w.given[seq]++
			if !bad(seq) {
				if refused := r.Share.Ack(seq, 1, r.Attempt, w.now, nil); refused != nil {
					w.t.Fatal(refused)
				}
			} else if err := r.Share.Nack(seq, r.Attempt, 0, []byte("no"), 0, w.now); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for _, s := range w.g.shares {
		save(s, w.now)
	}
	for _, d := range takeDead(w.g, 1000) {
		w.dead[d.Seq] = int(d.Attempts)
		d.Share.Transferred(d.Seq, w.now)
	}
	return took
}

// until works, and lets time pass when there is nothing to do, as long as it may.
func (w *workers) until(end time.Time, bad func(core.Seq) bool) {
	for {
		if w.work(10, bad) > 0 {
			continue
		}
		at, ok := w.g.NextDeadline()
		if !ok || at.After(end) {
			w.now = end
			return
		}
		w.now = at
		w.g.Tick(w.now)
	}
}

// fail has twenty messages fail.
func (w *workers) fail() {
	w.t.Helper()
	w.open(false)
	w.work(breakerLeast, all)
	w.open(true)
}

func all(core.Seq) bool     { return true }
func nothing(core.Seq) bool { return false }

// every tenth message is bad.
func tenth(seq core.Seq) bool { return seq%10 == 0 }

func (w *workers) open(want bool) {
	w.t.Helper()
	if got := w.g.breaker.isOpen(); got != want {
		w.t.Fatalf("at %s open: %v, want %v; %+v", w.now.Sub(start), got, want, w.g.breaker)
	}
}

// onlyTheBad checks that dead letters are the messages that are always bad, of so many.
func (w *workers) onlyTheBad(n int, bad func(core.Seq) bool) {
	w.t.Helper()
	for seq := core.Seq(1); int(seq) <= n; seq++ {
		if _, dead := w.dead[seq]; dead != bad(seq) {
			w.t.Errorf("seq %d is a dead letter: %v, want %v", seq, dead, bad(seq))
		}
	}
}
