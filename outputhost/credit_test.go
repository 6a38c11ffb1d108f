package outputhost

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// small is a group with n ready messages of 8 bytes in one share.
func (b *harness) small(n int) (*group, *share) {
	b.t.Helper()
	g := b.large(1, 0)
	r := dispatch.Records{Base: 1, Offsets: []uint32{0}, Bytes: make([]byte, 8*n), Enqueued: b.deps.Now().UnixMicro()}
	for i := range n {
		r.Offsets = append(r.Offsets, uint32(8*(i+1)))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.mu.shares {
		s.end, s.l, s.last = true, core.Seq(n), core.Seq(n)
		if err := s.rules.Offer(r, b.deps.Now()); err != nil {
			b.t.Fatal(err)
		}
		s.reader = &reader{g: g, s: s}
		b.t.Cleanup(func() {
			g.mu.Lock()
			s.reader = nil
			g.mu.Unlock()
		})
		return g, s
	}
	panic("no share")
}

// grants gives a consumer credit for so many messages.
func (c *consumer) grants(g *group, messages int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.credit.messages = messages
	g.countCreditLocked(c)
}

// grant gives a consumer credit, and pumps.
func (c *consumer) grant(g *group, messages, bytes int) (held int) {
	g.mu.Lock()
	c.credit.messages, c.credit.bytes = messages, bytes
	g.countCreditLocked(c)
	g.mu.Unlock()
	g.pump()
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.held
}

// TestFair_GreedyDoesNotStarveCreditOfOne: one consumer asks for everything and settles nothing, a second one does not
// read, a third one has credit for one message at a time. The third one goes on.
func TestFair_GreedyDoesNotStarveCreditOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(dispatch.MaxOutstanding)
		reading := b.connect()
		reading.read()
		greedy, stalled, modest := reading.consume(g), b.connect().consume(g), reading.consume(g)
		stalled.grants(g, 1<<20)
		modest.grants(g, 0)
		share := dispatch.MaxOutstanding / 4 // of three consumers
		if held := greedy.grant(g, 1<<20, g.h.cfg.MaxCredit); held != share {
			t.Fatalf("the greedy one holds %d, want a quarter, %d", held, share)
		}
		for i := range dispatch.MaxOutstanding - 2*share {
			if held := modest.grant(g, 1, 1<<20); held != 1 {
				t.Fatalf("the modest one got nothing after %d messages; the others hold %d and %d", i, greedy.held, stalled.held)
			}
			g.mu.Lock()
			first := core.Seq(0)
			for seq := core.Seq(1); seq <= dispatch.MaxOutstanding; seq++ {
				if st := s.rules.Standing(seq); st.Session == modest.id && st.Place == dispatch.PlaceInFlight {
					first = seq
					break
				}
			}
			if bad := s.rules.Ack(first, 1, 1, b.deps.Now(), nil); first == 0 || bad != nil {
				t.Fatalf("seq %d: %v", first, bad)
			}
			modest.held = 0
			g.countCreditLocked(modest)
			g.mu.Unlock()
			if i == 300 { // the rest is like it
				break
			}
		}
		if greedy.held != share {
			t.Errorf("the greedy one holds %d meanwhile, want %d", greedy.held, share)
		}
		// Its locks run out: it may be given messages again, though it never settled those.
		g.mu.Lock()
		defer g.mu.Unlock()
		if n := g.mayHoldLocked(greedy, share); n != 0 {
			t.Errorf("it may hold %d more, want none", n)
		}
		g.mu.rules.Tick(b.deps.Now().Add(time.Hour))
		if n := g.mayHoldLocked(greedy, share); n != share {
			t.Errorf("after its locks ran out it may hold %d more, want %d", n, share)
		}
	})
}

// TestCredit_LargeMessages: a consumer that holds a message is sent each one that is not larger than the bytes it has
// left, and one of any size if those are many. One that holds nothing is, too. To why-stuck it has no credit then.
func TestCredit_LargeMessages(t *testing.T) {
	const size = 3 << 19
	for _, c := range []struct{ bytes, want int }{{1, 1}, {size, 1}, {2*size - 1, 1}, {2 * size, 2}, {3*size - 1, 2}, {anySizeCredit + size - 1, 2}, {anySizeCredit + size, 2}} {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t)
			g := b.large(1, 0)
			records := dispatch.Records{Base: 1, Offsets: []uint32{0, size, 2 * size, 3 * size}, Bytes: make([]byte, 3*size), Enqueued: b.deps.Now().UnixMicro()}
			g.mu.Lock()
			for _, s := range g.mu.shares {
				s.end, s.l, s.last = true, 3, 3
				if err := s.rules.Offer(records, b.deps.Now()); err != nil {
					t.Fatal(err)
				}
				s.reader = &reader{g: g, s: s}
				t.Cleanup(func() {
					g.mu.Lock()
					s.reader = nil
					g.mu.Unlock()
				})
			}
			g.mu.Unlock()
			conn := b.connect()
			conn.read()
			if held := conn.consume(g).grant(g, 100, c.bytes); held != c.want {
				t.Errorf("with credit for %d bytes it holds %d messages of %d bytes, want %d", c.bytes, held, size, c.want)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if n := g.takersLocked(b.deps.Now()).Credit; n != 0 {
				t.Errorf("with credit for %d bytes %d consumers count as having credit for the next message", c.bytes, n)
			}
		})
	}
}

// TestFair_AloneMayHoldAll: who is the only consumer of a group, or of one that delivers at most once, is given all it
// asks for.
func TestFair_AloneMayHoldAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, _ := b.small(dispatch.MaxOutstanding)
		c := b.connect()
		c.read()
		if held := c.consume(g).grant(g, 1<<20, g.h.cfg.MaxCredit); held != dispatch.MaxOutstanding {
			t.Errorf("it holds %d, want all %d", held, dispatch.MaxOutstanding)
		}
	})
}

// TestFair_Turns: while several have credit nobody gets more than a short turn before the next one's.
func TestFair_Turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, _ := b.small(2000)
		c := b.connect()
		c.read()
		one, two := c.consume(g), c.consume(g)
		one.grants(g, 1<<20)
		two.grants(g, 1<<20)
		g.pump()
		g.mu.Lock()
		defer g.mu.Unlock()
		if one.held != 1000 || two.held != 1000 {
			t.Errorf("they hold %d and %d of 2,000 messages, want a half each", one.held, two.held)
		}
	})
}

// TestFair_LongTurns: turns are longer than the shortest when there is more for everybody.
func TestFair_LongTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, _ := b.small(1500)
		c := b.connect()
		c.read()
		one, two := c.consume(g), c.consume(g)
		one.grants(g, 1<<20)
		two.grants(g, 1<<20)
		for _, want := range []int{750, 250} {
			g.mu.Lock()
			g.countCreditsLocked(b.deps.Now())
			messages, bytes := g.turnLocked()
			g.mu.Unlock()
			if messages != want || bytes > takeBytesAtOnce {
				t.Errorf("a turn is %d messages and %d bytes, want %d messages", messages, bytes, want)
			}
			g.pump()
		}
		if one.held != 750 || two.held != 750 {
			t.Errorf("they hold %d and %d of 1,500 messages, want a half each", one.held, two.held)
		}
	})
}

// TestFair_LongTurnsOfABacklog: messages that the extent is known to have count like those that were read.
func TestFair_LongTurnsOfABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(250)
		c := b.connect()
		c.read()
		c.consume(g).grants(g, 1<<20)
		c.consume(g).grants(g, 1<<20)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.countCreditsLocked(b.deps.Now())
		for _, x := range []struct {
			last core.Seq // of the extent
			want int
		}{{250, turnAtOnce}, {1250, 625}, {1_000_000, takeAtOnce}, {math.MaxUint64, takeAtOnce}} {
			s.l, s.last = x.last, x.last
			messages, bytes := g.turnLocked()
			if messages != x.want || bytes != turnBytesAtOnce/turnAtOnce*x.want {
				t.Errorf("250 of %d messages were read: a turn is %d messages and %d bytes, want %d messages", x.last, messages, bytes, x.want)
			}
		}
		s.extent.Kind = core.KindTimer
		if messages, _ := g.turnLocked(); messages != turnAtOnce {
			t.Errorf("the others may be due in a year: a turn is %d messages, want %d", messages, turnAtOnce)
		}
	})
}

// TestFair_ConsumersOfAGroup: a group has so many consumers on a host, and not one more until one leaves.
func TestFair_ConsumersOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		b.cfg.GroupConsumers = 3
		g := b.large(1, 0)
		if err := metadata.Create(t.Context(), b.meta, metadata.Names, metadata.NameKey(g.queuePath), metadata.NameRecord{Queue: g.queue}); err != nil {
			t.Fatal(err)
		}
		c := b.connect()
		c.read()
		var last *consumer
		open := func(want ...core.Code) {
			t.Helper()
			last = &consumer{s: c.s, h: b.Host, id: dispatch.SessionID(b.nextSession.Add(1))}
			last.open(t.Context(), &pb.ConsumeHello{Queue: g.queuePath, Group: g.name})
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			var got []core.Code
			for _, err := range c.failed {
				got = append(got, core.CodeOf(err))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("refused: %v, want %v", got, want)
			}
		}
		for range 3 {
			open()
		}
		member := last
		open(core.CodeThrottled)
		member.leave()
		open(core.CodeThrottled) // the one of before
		open(core.CodeThrottled, core.CodeThrottled)
	})
}

// TestPull_KeepsReadersForTheNext: readers stay open for a while after a pull, and are closed when no other follows.
func TestPull_KeepsReadersForTheNext(t *testing.T) {
	b := newHarness(t)
	g := b.large(1, 0)
	wake := make(chan struct{})
	open := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		n := 0
		for _, s := range g.mu.shares {
			if s.reader != nil {
				n++
			}
		}
		return n
	}
	g.mu.Lock()
	for _, s := range g.mu.shares {
		s.reader = &reader{g: g, s: s}
	}
	g.joinPullLocked(wake, 1)
	g.mu.Unlock()
	g.endPull(wake)
	g.endLinger(b.deps.Now().Add(pullLinger - time.Second))
	if open() != 1 {
		t.Fatal("the reader was closed at once")
	}
	g.endLinger(b.deps.Now().Add(pullLinger + time.Second))
	if open() != 0 {
		t.Error("the reader stays open for ever")
	}
}

// TestFair_SelectedMessagesAreNotHeld: consumers that hold as many messages as they may are handed others, once a
// selection has taken the messages that they hold out of the extent. Their settlements of those are refused.
func TestFair_SelectedMessagesAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(dispatch.MaxOutstanding)
		c := b.connect()
		c.read()
		const most = dispatch.MaxOutstanding / 3 // of two consumers
		for _, x := range []*consumer{c.consume(g), c.consume(g)} {
			if held := x.grant(g, 1<<20, g.h.cfg.MaxCredit); held != most {
				t.Fatalf("a consumer holds %d messages, want %d", held, most)
			}
		}
		g.forgo(s, dispatch.StartAfter(2*most))
		g.mu.Lock()
		defer g.mu.Unlock()
		if d := g.mu.rules.Depth(); d.InFlight != dispatch.MaxOutstanding-2*most {
			t.Errorf("the consumers are handed %d of the %d messages that are left", d.InFlight, dispatch.MaxOutstanding-2*most)
		}
	})
}
