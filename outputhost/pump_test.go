package outputhost

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
)

// touchedShares are those that the next pump looks at.
func (g *group) touchedShares() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.takeChangedLocked()
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		n++
	}
	return n
}

// turnsAfter is how many of the consumers that waited for their turns have had them since.
func (g *group) turnsAfter(before []*consumer) int {
	now := g.waiting()
	return slices.IndexFunc(before, func(c *consumer) bool { return len(now) > 0 && c == now[0] })
}

func (g *group) waiting() []*consumer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.credits.waiting.all()
}

// all are the consumers in line, as their links say from either end.
func (l *line) all() (out []*consumer) {
	for c := l.first; c != nil; c = c.behind {
		out = append(out, c)
	}
	n := len(out)
	for c := l.last; c != nil; c = c.ahead {
		if n--; out[n] != c {
			panic("the line is broken")
		}
	}
	if n != 0 || len(out) != l.length {
		panic("the line has lost consumers")
	}
	return out
}

// TestPump_LooksAtWhatChanged: with 1,000 shares and 1,000 consumers, a message that is read, delivered and acked has
// the pump look at its share and its consumer.
func TestPump_LooksAtWhatChanged(t *testing.T) {
	const many = 1000
	p := newPumped(t, many, many, many, 1)
	for i := range many {
		p.round(p.shares[i])
	}
	for i := range 3 * many {
		s := p.shares[i*7%many]
		before := p.g.waiting()
		if len(before) != many {
			t.Fatalf("%d consumers wait for their turns, want all", len(before))
		}
		first := p.read(s, 1)
		if n := p.g.touchedShares(); n != 1 {
			t.Fatalf("%d shares are looked at after one was read, want one", n)
		}
		p.g.pump()
		if n := p.g.turnsAfter(before); n != 1 {
			t.Fatalf("%d consumers had a turn for one message, want one", n)
		}
		if n := p.g.touchedShares(); n != 0 {
			t.Fatalf("%d shares are looked at after a pump, want none", n)
		}
		c := before[0]
		p.pass()
		if err := c.settles(p.g, wire.TypeAck, wire.SeqRun{Base: first, Count: 1, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		if n := p.g.touchedShares(); n > 1 {
			t.Fatalf("%d shares are looked at after an ack, want one", n)
		}
		p.g.pump()
	}
}

// TestPump_CountsDemand: whatever consumers grant, recall, hold, settle and leave, what they would take is counted
// right, and those that would take something wait for their turns, each once.
func TestPump_CountsDemand(t *testing.T) {
	p := newPumped(t, 2, 20, 10, 5)
	check := func(i int) {
		t.Helper()
		g := p.g
		g.mu.Lock()
		defer g.mu.Unlock()
		now := g.h.deps.Now()
		g.countCreditsLocked(now)
		most, want, takers := g.mostHeldLocked(now), dispatch.Credit{}, 0
		waiting := map[*consumer]int{}
		x := g.mu.credits
		for _, c := range x.waiting.all() {
			waiting[c]++
		}
		for _, c := range g.mu.consumers {
			n := 0
			if c.credit.messages > 0 && c.credit.bytes > 0 {
				n = min(c.credit.messages, g.mayHoldLocked(c, most))
			}
			if n > 0 {
				takers++
				want.Bytes += c.credit.bytes
			}
			if want.Messages += n; waiting[c] > 1 || n > 0 && waiting[c] == 0 {
				t.Fatalf("step %d: a consumer that would take %d waits for %d turns", i, n, waiting[c])
			}
		}
		if x.demand != want || x.takers != takers {
			t.Fatalf("step %d: %d consumers would take %+v, counted %d and %+v", i, takers, want, x.takers, x.demand)
		}
	}
	for i := range 2000 {
		c := p.consumers[i*13%len(p.consumers)]
		switch i % 7 {
		case 0, 1:
			p.read(p.shares[i%2], 5)
			p.g.pump()
		case 2:
			c.grants(p.g, i%300)
		case 3:
			credit := wire.Credit{Messages: uint32(i % 50), Bytes: 1 << 20}
			c.HandleFrame(wire.Frame{Type: wire.TypeConsumeCredit, Body: credit.Append(nil)}, nil)
		case 4:
			p.g.mu.Lock()
			c.credit.recall()
			p.g.countCreditLocked(c)
			p.g.mu.Unlock()
		case 5:
			p.now = p.now.Add(time.Duration(i%3) * 10 * time.Second) // locks run out
			p.pass()
			p.g.pump()
		case 6:
			if i%5 == 0 && len(p.g.mu.consumers) > 3 {
				c.leave()
			}
		}
		check(i)
	}
}

// TestSaver_SavesTheSharesThatAreUrgent: of a group with many changed shares, only the one with retries that wait is
// saved at once, and those of which much was settled a tenth of a second after they were saved last. The round of all
// saves the others.
func TestSaver_SavesTheSharesThatAreUrgent(t *testing.T) {
	const many = 50
	p := newPumped(t, many, 1, 1, 1)
	p.cfg.CheckpointAcks = 10
	save := func(all bool) int {
		x := &pass{round: all, all: all, early: many, now: p.now}
		due, _ := p.saver.due(x)
		if all {
			due = p.saver.all(false)
		}
		n := 0
		for _, g := range due {
			rows, _, parts, left := g.checkpoint(nil, x)
			for _, part := range parts {
				part.s.rules.Saved(part.token)
			}
			if n += len(rows); left > saveNone {
				p.saver.note(g, left)
			}
			p.saver.over(g)
		}
		return n
	}
	save(true)
	for _, s := range p.shares {
		p.round(s)
	}
	if n := save(false); n != 0 {
		t.Fatalf("%d shares are saved before the round of all, want none", n)
	}
	first := p.read(p.shares[3], 1)
	p.g.pump()
	p.g.mu.Lock()
	err := p.shares[3].rules.Nack(first, 1, 0, nil, 0, p.now)
	p.g.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	p.g.pump()
	if n := save(false); n != 1 {
		t.Fatalf("%d shares are saved at once, want the one with a retry", n)
	}
	for range p.cfg.CheckpointAcks {
		p.round(p.shares[5])
	}
	p.now = p.now.Add(p.cfg.CheckpointBusy)
	if n := save(false); n != 1 {
		t.Fatalf("%d shares are saved after a tenth of a second, want the busy one", n)
	}
	if n := save(true); n != many-1 { // the retry was handed out since
		t.Fatalf("%d shares are saved with the round of all, want %d", n, many-1)
	}
	if n := save(true); n != 0 {
		t.Fatalf("%d shares are saved once more, and nothing changed", n)
	}
}
