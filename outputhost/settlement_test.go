package outputhost

import (
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/outputhost/budget"
	"github.com/columbamq/columba/wire"
)

// settles has the consumer send one frame of runs of its first extent.
func (c *consumer) settles(g *group, t wire.FrameType, runs ...wire.SeqRun) error {
	return c.settle(g, wire.Frame{Type: t, Body: (&wire.Settled{Runs: runs}).Append(nil)})
}

// answered waits for what the host refused.
func (c *client) answered() []wire.AckFailure {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func (c *consumer) holds(g *group) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.held
}

// TestSettle_FrameThatSettlesTooMuch: a frame names more messages than a share can have outstanding, in one run or in
// many. The host refuses it without a look at any, and its consumer with it.
func TestSettle_FrameThatSettlesTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, _ := b.small(10)
		conn := b.connect()
		conn.read()
		c := conn.consume(g)
		c.grant(g, 10, 1<<20)
		g.mu.Lock()
		c.given = maxSettled // or it is refused for less, see TestSettle_MadeUp
		g.mu.Unlock()
		many := make([]wire.SeqRun, 1000)
		for i := range many {
			many[i] = wire.SeqRun{Base: 1, Count: 10, Attempt: 1}
		}
		if err := c.settles(g, wire.TypeReturn, append(many, wire.SeqRun{Base: 1, Count: maxSettled - 10_000, Attempt: 1})...); err != nil {
			t.Errorf("a frame with as many as may be: %v", err)
		}
		for _, kind := range []wire.FrameType{wire.TypeAck, wire.TypeReturn} {
			if err := c.settles(g, kind, append(many, wire.SeqRun{Base: 1, Count: maxSettled - 9_999, Attempt: 1})...); core.CodeOf(err) != core.CodeTooLarge {
				t.Errorf("a frame %d with one more: %v, want %s", kind, err, core.CodeTooLarge)
			}
		}
	})
}

// TestSettle_MadeUp: a consumer settles what it was not handed, with small frames that name many messages. To list all
// of them takes tens of thousands of bytes for each byte of the frame: the stream ends, and the answers have a bound.
func TestSettle_MadeUp(t *testing.T) {
	for name, handle := range map[string]uint32{"of an extent that it has": 0, "of an extent that it was never told of": 99} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t)
				g, _ := b.small(10)
				conn := b.connect()
				conn.read()
				c := conn.consume(g)
				c.grant(g, 10, 1<<20)
				body := (&wire.Settled{Handle: handle, Runs: []wire.SeqRun{{Base: 100, Count: 400, Attempt: 1}}}).Append(nil)
				var err error
				for range 100 {
					if err = c.settle(g, wire.Frame{Type: wire.TypeAck, Body: body}); err != nil {
						break
					}
				}
				if core.CodeOf(err) != core.CodeBadFrame {
					t.Errorf("the stream ends with %v, want %s", err, core.CodeBadFrame)
				}
				if n := len(conn.answered()); n > 10+maxMadeUp {
					t.Errorf("%d refusals were listed", n)
				}
			})
		})
	}
}

// TestSettle_ListsAllRefusals: however many settlements of a frame are refused, the consumer is told of each.
func TestSettle_ListsAllRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(dispatch.MaxOutstanding)
		conn := b.connect()
		conn.read()
		c := conn.consume(g)
		c.grant(g, dispatch.MaxOutstanding, 1<<20)
		g.giveAway(s, b.deps.Now())
		if err := c.settles(g, wire.TypeReturn, wire.SeqRun{Base: 1, Count: 2500, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		if err := c.settles(g, wire.TypeAck, wire.SeqRun{Base: 2501, Count: 7500, Attempt: 9}); err != nil {
			t.Fatal(err)
		}
		refused := conn.answered()
		for i, f := range refused {
			attempt := uint16(1)
			if i >= 2500 {
				attempt = 9
			}
			if f.Seq != core.Seq(i+1) || f.Attempt != attempt || f.Code != core.CodeMoved {
				t.Fatalf("refusal %d: %+v", i, f)
			}
		}
		if len(refused) != dispatch.MaxOutstanding {
			t.Errorf("%d refusals are listed, want all %d", len(refused), dispatch.MaxOutstanding)
		}
	})
}

// TestSettle_ReturnOfAShareGivenAway: its new owner alone can hand out the message again before its lock ends, so the
// consumer has to return it there. An ack counts here.
func TestSettle_ReturnOfAShareGivenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(10)
		conn := b.connect()
		conn.read()
		c := conn.consume(g)
		c.grant(g, 10, 1<<20)
		g.giveAway(s, b.deps.Now())
		if err := c.settles(g, wire.TypeAck, wire.SeqRun{Base: 1, Count: 5, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		if err := c.settles(g, wire.TypeReturn, wire.SeqRun{Base: 6, Count: 1, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		if r := conn.answered(); len(r) != 1 || r[0].Seq != 6 || r[0].Code != core.CodeMoved {
			t.Errorf("refused are %+v, want the return as %s", r, core.CodeMoved)
		}
	})
}

// TestSettle_RefusedOnesAreStillHeld: a consumer holds what it holds, whatever it makes up.
func TestSettle_RefusedOnesAreStillHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, _ := b.small(100)
		conn := b.connect()
		conn.read()
		c := conn.consume(g)
		c.grant(g, 100, 1<<20)
		made := wire.SeqRun{Base: 1, Count: 100, Attempt: 2}
		nack := wire.Nack{Seq: 1, Attempt: 2}
		for _, kind := range []wire.FrameType{wire.TypeAck, wire.TypeReturn} {
			if err := c.settles(g, kind, made); err != nil {
				t.Fatal(err)
			}
		}
		for _, kind := range []wire.FrameType{wire.TypeNack, wire.TypeReject} {
			if err := c.settle(g, wire.Frame{Type: kind, Body: nack.Append(nil)}); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.holds(g); n != 100 {
			t.Errorf("after settlements that were refused it holds %d, want all 100", n)
		}
		if err := c.settles(g, wire.TypeAck, wire.SeqRun{Base: 1, Count: 10, Attempt: 1}, wire.SeqRun{Base: 5, Count: 10, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		if n := c.holds(g); n != 86 {
			t.Errorf("after acks of which 14 were applied it holds %d, want 86", n)
		}
	})
}

// TestExtend_ByMoreThanADurationHolds: the lock lasts as long as a lock may, and does not end at once.
func TestExtend_ByMoreThanADurationHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, _ := b.small(1)
		conn := b.connect()
		conn.read()
		c := conn.consume(g)
		c.grant(g, 1, 1<<20)
		e := wire.Extend{Seq: 1, Attempt: 1, Millis: wire.MaxMillis}
		if err := c.settle(g, wire.Frame{Type: wire.TypeExtend, Body: e.Append(nil)}); err != nil {
			t.Fatal(err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.mu.rules.Tick(b.deps.Now().Add(core.MaxLockTimeout - time.Second))
		if n := g.mu.rules.InFlightOf(c.id); n != 1 {
			t.Errorf("%d messages are locked a second before the longest lock ends, want 1", n)
		}
	})
}

// TestFair_LocksOfAShareGivenAway: what a consumer held of it is not locked here any more, and keeps nothing from it.
func TestFair_LocksOfAShareGivenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(100)
		conn := b.connect()
		conn.read()
		c := conn.consume(g)
		c.grant(g, 100, 1<<20)
		g.giveAway(s, b.deps.Now())
		g.mu.Lock()
		defer g.mu.Unlock()
		if n := g.mayHoldLocked(c, 50); n != 50 {
			t.Errorf("it may hold %d, want 50", n)
		}
	})
}

// TestNack_MetadataOfAShareGivenAway: what is still settled of it is memory, with all that consumers left, until it is
// forgotten.
func TestNack_MetadataOfAShareGivenAway(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 6)
	g.mu.Lock()
	if err := s.nackLocked(&wire.Nack{Seq: 1, Attempt: 1, Metadata: make([]byte, 10_000)}, 0, false, b.deps.Now()); err != nil {
		t.Fatal(err)
	}
	g.mu.Unlock()
	g.giveAway(s, b.deps.Now())
	if n := b.memory.Held(); n != 10_000 || b.notes.Held() != n {
		t.Errorf("%d bytes are counted, %d of them metadata; want 10,000", n, b.notes.Held())
	}
	b.saver.save(t.Context(), false)
	g.mu.Lock()
	g.forgetGivenLocked(b.deps.Now().Add(lateFor + time.Second))
	g.mu.Unlock()
	if n := b.memory.Held(); n != 0 || b.notes.Held() != 0 {
		t.Errorf("when it is forgotten %d bytes are counted", n)
	}
}

// TestNack_MetadataAreBounded: while no message reaches its retry queue, consumers of many groups leave as many
// metadata as they can. The host keeps them up to its bound, with a little for each share; what it refuses is
// throttled, and the messages are locked as before. Nacks without metadata count.
func TestNack_MetadataAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		const bound, groups = 4 << 20, 8
		b.memory, b.notes = budget.New(notesPart*bound), budget.New(bound)
		_, first := b.group()
		list := []*pb.Assignment{first}
		for len(list) < groups {
			_, a := b.group()
			list = append(list, a)
		}
		if err := b.give(1, list...); err != nil {
			t.Fatal(err)
		}
		metadata, text := make([]byte, core.MaxMetadata), make([]byte, wire.MaxReason)
		for i, a := range list {
			g, s := b.taken(a, 1000)
			g.mu.Lock()
			refused := 0
			for seq := core.Seq(1); seq <= 500; seq++ {
				err := s.nackLocked(&wire.Nack{Seq: seq, Attempt: 1, Metadata: metadata}, 0, false, b.deps.Now())
				switch {
				case core.CodeOf(err) == core.CodeThrottled:
					refused++
				case err != nil:
					t.Fatal(err)
				}
			}
			if refused == 0 {
				t.Errorf("share %d keeps all, %d bytes", i, s.rules.NoteBytes())
			}
			if n := s.rules.Depth().InFlight; n != 500+refused {
				t.Errorf("share %d has %d messages locked, want those of which nothing was taken, %d", i, n, 500+refused)
			}
			for seq := core.Seq(501); seq <= 1000; seq++ {
				if err := s.nackLocked(&wire.Nack{Seq: seq, Attempt: 1, Reason: text}, time.Second, false, b.deps.Now()); err != nil {
					t.Fatal(err)
				}
			}
			g.mu.Unlock()
		}
		if most := int64(bound + groups*budget.MinPart); b.notes.Held() > most || b.memory.Held() < b.notes.Held() {
			t.Errorf("%d bytes are kept, want at most %d; %d are counted in all", b.notes.Held(), most, b.memory.Held())
		}
	})
}

// TestFair_SettledByAnother: a consumer acks messages that another one of its group holds, as it does late when they
// were redelivered. The other one holds none of them any more, so it gets the next ones.
func TestFair_SettledByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, _ := b.small(dispatch.MaxOutstanding)
		conn := b.connect()
		conn.read()
		one, other := conn.consume(g), conn.consume(g)
		other.grants(g, 0)
		if held := one.grant(g, 1, 1<<20); held != 1 {
			t.Fatalf("it holds %d, want 1", held)
		}
		most := g.mostHeldLocked(b.deps.Now())
		if held := other.grant(g, most+1, g.h.cfg.MaxCredit); held != most {
			t.Fatalf("the other one holds %d, want %d", held, most)
		}
		if err := one.settles(g, wire.TypeAck, wire.SeqRun{Base: 1, Count: uint32(most) + 1, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		if refused := conn.answered(); len(refused) > 0 {
			t.Fatalf("refused: %+v", refused[:1])
		}
		other.grant(g, most, g.h.cfg.MaxCredit)
		g.mu.Lock()
		defer g.mu.Unlock()
		if n := g.mu.rules.InFlightOf(other.id); n != most {
			t.Errorf("the other consumer has %d messages in flight, want %d", n, most)
		}
	})
}

// TestSettle_OfADeliveryThatAnotherSessionHas: a consumer's messages were given back by token, and are another
// consumer's now, under the same attempt. The first one takes none of them away by what it sends on its stream. Its ack
// counts.
func TestSettle_OfADeliveryThatAnotherSessionHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.small(5)
		conn := b.connect()
		conn.read()
		first, second := conn.consume(g), conn.consume(g)
		g.mu.Lock()
		g.mu.rules.Want(dispatch.Credit{Messages: 5, Bytes: 1 << 20}, true)
		first.deliverLocked(g.mu.rules.Take(first.id, dispatch.Credit{Messages: 5, Bytes: 1 << 20}, b.deps.Now(), nil), b.deps.Now(), nil)
		first.credit = window{} // what it gives back is the other one's
		g.countCreditLocked(first)
		g.mu.Unlock()
		for seq := range core.Seq(5) {
			token := deliverytoken.Token{Queue: g.queue, Group: g.id, Extent: s.extent.ID, Seq: 1 + seq, Attempt: 1, Session: uint32(first.id), Generation: s.generation}
			if err := b.settleToken(t.Context(), &pb.SettleRequest{Verb: "return"}, token.Seal(b.keys), nil); err != nil {
				t.Fatal(err)
			}
		}
		send := func(kind wire.FrameType, body []byte) {
			t.Helper()
			if err := first.settle(g, wire.Frame{Type: kind, Body: body}); err != nil {
				t.Fatal(err)
			}
		}
		send(wire.TypeReturn, (&wire.Settled{Runs: []wire.SeqRun{{Base: 1, Count: 2, Attempt: 1}}}).Append(nil))
		send(wire.TypeNack, (&wire.Nack{Seq: 3, Attempt: 1}).Append(nil))
		send(wire.TypeReject, (&wire.Nack{Seq: 4, Attempt: 1}).Append(nil))
		send(wire.TypeExtend, (&wire.Extend{Seq: 5, Attempt: 1, Millis: 1}).Append(nil))
		refused := conn.answered()
		for i, r := range refused {
			if r.Seq != core.Seq(1+i) || r.Attempt != 1 || r.Code != core.CodeStale {
				t.Errorf("refused: %+v", r)
			}
		}
		g.mu.Lock()
		held := g.mu.rules.InFlightOf(second.id)
		g.mu.Unlock()
		if len(refused) != 5 || held != 5 {
			t.Errorf("%d are refused, and the other consumer holds %d; want 5, and its 5", len(refused), held)
		}
		send(wire.TypeAck, (&wire.Settled{Runs: []wire.SeqRun{{Base: 5, Count: 1, Attempt: 1}}}).Append(nil))
		if n := len(conn.answered()); n != 5 {
			t.Errorf("%d are refused after an ack, want 5", n)
		}
	})
}
