package publish

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// In any order of events a pace stays a number, and its pauses within their bounds. The loop reads the clock before it
// has the lock, so a send may have a time before that of a refusal.
func TestPacing_Bounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p pacing
		now := int64(1)
		span := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, int64(3*time.Second)))
		t.Repeat(map[string]func(*rapid.T){
			"passes": func(t *rapid.T) { now += 1 + span.Draw(t, "time") },
			"stored": func(t *rapid.T) { p.stored += rapid.IntRange(1, 64<<20).Draw(t, "stored") },
			"refused": func(t *rapid.T) {
				p.throttled(now, time.Duration(rapid.Int64Range(0, int64(600*time.Millisecond)).Draw(t, "pause")))
			},
			"sent": func(t *rapid.T) {
				at := max(now-span.Draw(t, "late"), 1)
				before := p.next
				p.sent(at, rapid.IntRange(0, 32<<20).Draw(t, "bytes"))
				if p.next > at+int64(paceWait) || p.rate > 0 && p.next < min(before, at-int64(paceSlack)) {
					t.Fatalf("sent at %d: %+v; the next was at %d", at, p, before)
				}
			},
			"": func(t *rapid.T) {
				if p.rate < 0 || math.IsNaN(p.rate) || math.IsInf(p.rate, 0) || p.target() < paceLeast || p.target() > batchTarget {
					t.Fatalf("%+v", p)
				}
			},
		})
	})
}

// paced is a publisher that does not run, with a session that waits for its pace.
func paced(t *testing.T) *Publisher {
	t.Helper()
	p := New(Config{Queue: "/t/q"})
	s := &session{p: p, window: defaultWindow, next: 1}
	now := p.now()
	s.pace = pacing{rate: 1e-3, refused: now, next: now + int64(paceWait), full: paceLeast}
	p.mu.active = s
	return p
}

// A record with little time left does not fail for the sake of a pace, not even one that comes while the loop waits.
func TestPacing_IsNotForWhatHasLittleTime(t *testing.T) {
	for _, c := range []struct {
		timeout time.Duration
		waits   bool
	}{{20 * time.Millisecond, false}, {paceWait + 10*time.Millisecond, false}, {time.Minute, true}} {
		p := paced(t)
		add := func(timeout time.Duration) {
			if err := p.Append(t.Context(), &wire.Record{Payload: []byte("x")}, timeout, DoneFunc(func(core.MessageID, core.Receipt, error) {})); err != nil {
				t.Fatal(err)
			}
		}
		now := p.now()
		p.mu.active.pace.next = now + int64(paceWait)
		add(time.Minute)
		if turn := p.turn(now); turn.batch != nil {
			t.Fatalf("nothing is in a hurry, and does not wait: %+v", turn)
		}
		select {
		case <-p.wake:
		default:
		}
		add(c.timeout)
		if woken := len(p.wake) > 0; woken == c.waits {
			t.Errorf("a record for %s came while the loop waits: woken %v", c.timeout, woken)
		}
		if turn := p.turn(now); (turn.batch == nil) != c.waits {
			t.Errorf("a record for %s: %+v, waits %v", c.timeout, turn, c.waits)
		}
	}
}
