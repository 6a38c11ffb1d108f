package outputhost

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/dispatch"
)

// tell has the controller answer that breakers of groups are open on another host, from now on.
func (c *fakeController) tell(counter uint64, open ...*pb.BreakerOpening) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.opens, c.mu.open = counter, open
}

// hears answers which breakers of the host are open, as the controller heard last.
func (c *fakeController) hears() []*pb.BreakerOpening {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.heard
}

// elsewhere is an opening of a group on another host.
func elsewhere(g *group, number uint64) *pb.BreakerOpening {
	return &pb.BreakerOpening{Group: g.id.ID[:], Run: make([]byte, 16), Number: number}
}

// fail has n messages that are handed out to a session fail.
func fail(g *group, session dispatch.SessionID, n int) {
	g.settle(session, n, func(s *dispatch.Share, seq core.Seq, attempt uint16) {
		s.Nack(seq, attempt, 0, nil, 0, g.h.deps.Now())
	})
}

// settle does what a consumer does with n messages that it is handed.
func (g *group) settle(session dispatch.SessionID, n int, how func(s *dispatch.Share, seq core.Seq, attempt uint16)) {
	g.mu.Lock()
	for _, r := range g.mu.rules.Take(session, dispatch.Credit{Messages: n, Bytes: 1 << 20}, g.h.deps.Now(), nil) {
		for i := range r.Count {
			how(r.Share, r.Base+core.Seq(i), r.Attempt)
		}
	}
	g.mu.Unlock()
	g.pump()
}

func (g *group) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	state, _ := g.mu.rules.Breaker()
	return state != dispatch.BreakerClosed
}

// want has the rules know consumers.
func (g *group) want() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.rules.Want(dispatch.Credit{Messages: math.MaxInt, Bytes: math.MaxInt}, true)
}

// TestOpenings_ControllersHear of a breaker while it is open here and has shares.
func TestOpenings_ControllersHear(t *testing.T) {
	leaseBubble(t, others("ctl", "ctl2"), func(t *testing.T, x *leasedHarness) {
		hears := func(what string, want int) (numbers uint64) {
			t.Helper()
			x.sleep(beatEvery + 10*time.Millisecond)
			for _, c := range []*fakeController{x.ctl, x.ctl2} {
				open := c.hears()
				if len(open) != want {
					t.Fatalf("%s: %s hears of %v, want %d", what, c.id, open, want)
				}
				for _, o := range open {
					if core.ID(o.Group) != x.g.id.ID || len(o.Run) > 0 {
						t.Fatalf("%s: it hears of %v", what, o)
					}
					numbers = o.Number
				}
			}
			return numbers
		}
		hears("nothing failed", 0)
		x.g.want()
		fail(x.g, 2, 30)
		first := hears("all failed", 1)
		if again := hears("it goes on", 1); again != first {
			t.Errorf("it is opening %d, and was %d", again, first)
		}
		x.g.want()
		ack := func(s *dispatch.Share, seq core.Seq, attempt uint16) { s.Ack(seq, 1, attempt, x.deps.Now(), nil) }
		x.g.settle(3, 1, ack)
		hears("one succeeded", 0)
		x.sleep(time.Second)
		x.g.want()
		fail(x.g, 4, 30)
		if second := hears("all failed again", 1); second == first {
			t.Errorf("both openings are %d", first)
		}
		x.g.mu.Lock()
		var s *share
		for _, s = range x.g.mu.shares {
		}
		x.g.mu.Unlock()
		x.g.giveAway(s, x.deps.Now())
		hears("another host has the share", 0)
	})
}

// TestOpenings_OfAHostThatHasNothingLeft: controllers hear no more of a breaker some time after the last message has
// left, though nothing happens in the group any more.
func TestOpenings_OfAHostThatHasNothingLeft(t *testing.T) {
	leaseBubble(t, others("ctl"), func(t *testing.T, x *leasedHarness) {
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { x.deadlines.Run(ctx, x.deps.Now, (*group).pump) })
		defer loop.Wait()
		defer cancel()
		x.g.want()
		fail(x.g, 2, 30)
		x.sleep(beatEvery + 10*time.Millisecond)
		if open := x.ctl.hears(); len(open) != 1 {
			t.Fatalf("it hears of %v, want one", open)
		}
		x.g.mu.Lock()
		for _, s := range x.g.mu.shares {
			var done acklevel.Window
			done.AckRange(1, 1000)
			s.rules.Absorb(dispatch.StateDone(&done), x.deps.Now())
		}
		x.g.mu.Unlock()
		x.g.pump()
		x.sleep(20 * time.Minute)
		if open := x.ctl.hears(); len(open) > 0 {
			t.Errorf("20 minutes later it hears of %v", open)
		}
	})
}

// TestOpenings_OpenHere: one failure is enough when controllers answer that the breaker is open elsewhere, and an
// opening opens it once, whichever of them tells of it.
func TestOpenings_OpenHere(t *testing.T) {
	leaseBubble(t, others("ctl", "ctl2"), func(t *testing.T, x *leasedHarness) {
		x.g.want()
		fail(x.g, 2, 1)
		x.ctl.tell(9, elsewhere(x.g, 4))
		x.sleep(beatEvery + 10*time.Millisecond)
		if !x.g.open() {
			t.Fatal("it is closed")
		}
		x.sleep(beatEvery)
		if open := x.ctl.hears(); len(open) > 0 {
			t.Errorf("controllers hear of an opening that followed theirs: %v", open)
		}
		x.g.want()
		x.g.settle(3, 1, func(s *dispatch.Share, seq core.Seq, attempt uint16) { s.Ack(seq, 1, attempt, x.deps.Now(), nil) })
		again := func(what string, want bool) {
			t.Helper()
			x.sleep(2 * time.Second)
			x.g.want()
			fail(x.g, 4, 1)
			if x.g.open() != want {
				t.Fatalf("%s: open %v, want %v", what, !want, want)
			}
		}
		again("by the same opening", false)
		x.ctl2.tell(3, elsewhere(x.g, 4))
		again("by the same one, of another controller", false)
		x.ctl.tell(10)
		again("it lasts, by the other controller", false)
		x.ctl2.tell(4, elsewhere(x.g, 5))
		again("by the next one", true)
	})
}

// TestOpenings_EndWithTheirController: what a controller said ends when it is silent and another one answers, and when
// another run of it knows nothing, which may have the same counter.
func TestOpenings_EndWithTheirController(t *testing.T) {
	for _, how := range []string{"silent", "all silent", "again", "stays"} {
		leaseBubble(t, others("ctl", "ctl2", "out2"), func(t *testing.T, x *leasedHarness) {
			x.ctl.tell(9, elsewhere(x.g, 4))
			x.sleep(beatEvery + 10*time.Millisecond)
			wait := 2*beatEvery + 10*time.Millisecond
			switch how {
			case "silent":
				x.ctl.hung.Store(true)
				wait += openingsKept + beatTimeout
			case "all silent":
				x.ctl.hung.Store(true)
				x.ctl2.hung.Store(true)
				wait += openingsKept + beatTimeout
			case "again":
				x.ctl.again.Store(true)
				x.ctl.tell(9)
			}
			x.sleep(wait)
			x.g.want()
			fail(x.g, 2, 1)
			if want := how == "stays" || how == "all silent"; x.g.open() != want {
				t.Errorf("%s: open %v", how, !want)
			}
			if how == "again" {
				x.ctl.tell(1, elsewhere(x.g, 4))
				x.sleep(wait)
				if !x.g.open() {
					t.Error("the other run is not heard")
				}
			}
		})
	}
}

// TestOpenings_GroupThatComesLater: a host that had no share of a group knows already that its breaker is open
// elsewhere.
func TestOpenings_GroupThatComesLater(t *testing.T) {
	b := newHarness(t)
	record, a := b.group()
	b.openings.answered("ctl", core.RunID{}, 1, []core.BreakerOpening{{Group: record.ID, Run: core.RunID{ID: core.ID{1}}, Number: 1}}, b.deps.Now())
	b.tellOpenings(t.Context())
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	for _, s := range g.mu.shares {
		if err := s.rules.Offer(dispatch.Records{Base: 1, Offsets: []uint32{0, 1}, Bytes: []byte{1}}, b.deps.Now()); err != nil {
			t.Fatal(err)
		}
	}
	g.want()
	if fail(g, 1, 1); !g.open() {
		t.Error("it is closed")
	}
}

// TestOpenings_Bounds: a host tells of its newest ones.
func TestOpenings_Bounds(t *testing.T) {
	x := newOpenings()
	for i := range 2 * core.MaxOpenings {
		x.note(core.GroupID{ID: core.ID{byte(i >> 8), byte(i)}}, 1)
	}
	own, _ := x.ask("ctl")
	if len(own) != core.MaxOpenings || own[core.MaxOpenings-1].Group.ID != (core.ID{byte((2*core.MaxOpenings - 1) >> 8), byte((2*core.MaxOpenings - 1) & 255)}) {
		t.Errorf("%d, the last is %v", len(own), own[len(own)-1])
	}
}

// BenchmarkOpenings_None is what a renewal costs more while no breaker is open.
func BenchmarkOpenings_None(b *testing.B) {
	x, now := newOpenings(), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		x.ask("ctl")
		x.answered("ctl", core.RunID{}, 0, nil, now)
	}
}
