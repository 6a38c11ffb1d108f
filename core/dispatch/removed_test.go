package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// scattered is what a selection took out of an extent: mostly single messages, as many as a window of fullAt bytes
// tells of.
func scattered() (st State) {
	for i := range core.Seq(16_382) {
		st.done.AckRange(1000*(i+1), 1)
	}
	st.done.AckRange(9000, 200) // each takes a byte more
	st.done.AckRange(10_000, 200)
	return st
}

// TestShare_GoesOnBesideWhatWasRemoved: a selection took so many messages that what is done alone fills a checkpoint as
// far as first deliveries may. Messages that fail, and some that stay blocked, do not hold up the others.
func TestShare_GoesOnBesideWhatWasRemoved(t *testing.T) {
	const messages = 999
	for _, c := range []struct {
		name   string
		most   int
		blocks int // messages that fail at every attempt
	}{{"one fails once", 10, 0}, {"some are blocked", 1, 100}} {
		g := NewGroup(core.GroupSpec{MaxDeliveries: c.most, Exhausted: core.ExhaustedBlock, Breaker: core.BreakerOff, NoNackThrottle: true}.WithDefaults())
		s := g.AddShare(extent(1), scattered(), start)
		if window, _ := s.done.Append(nil); len(window) < fullAt-16 || len(window) >= fullAt {
			t.Fatalf("the window has %d bytes", len(window))
		}
		if err := s.Offer(light(1, messages), start); err != nil {
			t.Fatal(err)
		}
		acked, failed := 0, 0
		for now := start.Add(time.Second); now.Sub(start) < 5*time.Minute && acked+c.blocks < messages; now = now.Add(time.Second) {
			g.Tick(now)
			_, token := s.Checkpoint(nil, false, now)
			s.Saved(token)
			for _, r := range g.Take(1, Credit{Messages: 20, Bytes: 1 << 20}, now, nil) {
				for i := range core.Seq(r.Count) {
					if seq := r.Base + i; failed < max(c.blocks, 1) && seq%2 == 1 {
						failed++
						if err := s.Nack(seq, r.Attempt, 0, nil, 0, now); err != nil {
							t.Fatal(err)
						}
					} else {
						acked++
						s.Ack(seq, 1, r.Attempt, now, nil)
					}
				}
			}
		}
		if acked+c.blocks != messages {
			t.Errorf("%s: %d of %d messages are acked; full %v, %+v", c.name, acked, messages, s.Full(), s.Depth())
		}
	}
}
