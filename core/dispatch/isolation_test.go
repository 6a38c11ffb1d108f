package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// patient is how long a message waits at most for a session that holds nothing, with short lock timeouts.
const patient = isolationPatience

// victim is a worker that handles what it is given one after another, and dies of poison, with all that it holds.
type victim struct {
	session SessionID // 0: dead until back
	back    time.Time
	holds   []grip
}

// grip is a delivery that a worker holds.
type grip struct {
	share   *Share
	seq     core.Seq
	attempt uint16
}

// crowd is a group whose workers die of some of its messages.
type crowd struct {
	t        *rapid.T
	g        *Group
	now      time.Time
	poison   map[core.Seq]bool
	workers  []*victim
	last     SessionID
	given    map[core.Seq]int
	dead     map[core.Seq]int
	restart  time.Duration
	prefetch int
}

// step has each worker that lives take what it has room for, and handle one message.
func (c *crowd) step() {
	alive := 0
	for _, w := range c.workers {
		if w.session == 0 && !w.back.After(c.now) {
			c.last++
			w.session = c.last
		}
		if w.session != 0 {
			alive++
		}
	}
	c.g.Want(unlimited, alive > 0)
	c.g.Connected(alive)
	c.g.Tick(c.now)
	for _, w := range c.workers {
		if w.session == 0 {
			continue
		}
		c.take(w)
		if len(w.holds) == 0 {
			continue
		}
		x := w.holds[0]
		if c.poison[x.seq] {
			c.g.Leave(w.session)
			*w = victim{back: c.now.Add(c.restart)}
			continue
		}
		w.holds = w.holds[1:]
		x.share.Ack(x.seq, 1, x.attempt, c.now, nil) // refused when its lock ran out and somebody else acked it
	}
	for _, s := range c.g.shares {
		save(s, c.now)
		if err := c.g.check(); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, d := range takeDead(c.g, 1000) {
		c.dead[d.Seq] = int(d.Attempts)
		d.Share.Transferred(d.Seq, c.now)
	}
}

// take checks that what may have killed a worker before is alone when it could be exhausted.
func (c *crowd) take(w *victim) {
	for _, r := range c.g.Take(w.session, Credit{Messages: c.prefetch - len(w.holds), Bytes: 1 << 20}, c.now, nil) {
		for i := range core.Seq(r.Count) {
			c.given[r.Base+i]++
			w.holds = append(w.holds, grip{r.Share, r.Base + i, r.Attempt})
		}
	}
}

// TestIsolation_OnlyTheGuiltyDies has workers die of some messages, with all that they hold, while at least two others
// live: only those become dead letters, after exactly as many attempts as there may be, and all else is done.
func TestIsolation_OnlyTheGuiltyDies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, n := rapid.IntRange(2, 4).Draw(t, "max"), rapid.IntRange(2, 120).Draw(t, "messages")
		spec := core.GroupSpec{MaxDeliveries: most, LockTimeout: 10 * time.Second}.WithDefaults()
		c := &crowd{
			t: t, g: NewGroup(spec), now: start, poison: map[core.Seq]bool{}, given: map[core.Seq]int{}, dead: map[core.Seq]int{},
			restart: time.Duration(rapid.IntRange(0, 4000).Draw(t, "restart")) * time.Millisecond, prefetch: rapid.IntRange(1, 50).Draw(t, "prefetch"),
		}
		for range rapid.IntRange(1, 3).Draw(t, "poison") {
			c.poison[core.Seq(rapid.IntRange(1, n).Draw(t, "seq"))] = true
		}
		for range len(c.poison) + rapid.IntRange(2, 4).Draw(t, "workers") { // so that two are connected, whoever died
			c.workers = append(c.workers, &victim{back: c.now})
		}
		s := c.g.AddShare(core.ExtentID{}, State{}, c.now)
		if err := s.Offer(records(1, n, nil), c.now); err != nil {
			t.Fatal(err)
		}
		for end := c.now.Add(time.Hour); !s.Done(core.Seq(n)); c.now = c.now.Add(100 * time.Millisecond) {
			if c.now.After(end) {
				t.Fatalf("after an hour done up to %d of %d: %+v, blocked by %+v", s.Frontier(), n, c.g.Depth(), s.Blocking())
			}
			c.step()
		}
		for seq := core.Seq(1); seq <= core.Seq(n); seq++ {
			attempts, dead := c.dead[seq]
			if dead != c.poison[seq] {
				t.Errorf("seq %d of %d is a dead letter after %d attempts: %v, want %v", seq, n, attempts, dead, c.poison[seq])
			}
			if dead && c.g.Counters().Opened == 0 && (attempts != most || c.given[seq] != most) {
				t.Errorf("seq %d died after %d attempts, was given %d times; want %d", seq, attempts, c.given[seq], most)
			}
		}
	})
}

// TestIsolation_NobodyIsIdle has workers that always hold something, for ever: what is to be handed out alone is given
// to one of them nevertheless, and the rest goes on meanwhile.
func TestIsolation_NobodyIsIdle(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 3)
	take(g, 1, start)
	now := start.Add(10 * time.Second)
	long := map[SessionID]Run{} // what each session holds, and extends
	for _, session := range []SessionID{7, 8} {
		r := g.Take(session, Credit{Messages: 1, Bytes: 1 << 20}, start, nil)[0]
		if long[session] = r; s.Extend(r.Base, r.Attempt, time.Minute, start) != nil {
			t.Fatal("its lock is not extended")
		}
	}
	g.Tick(now)
	save(s, now)
	offerAt(t, s, 5000, now, now)
	done := 0
	for at := now; at.Before(now.Add(2 * patient)); at = at.Add(time.Second) {
		g.Tick(at)
		for session, r := range long {
			if err := s.Extend(r.Base, r.Attempt, 10*time.Second, at); err != nil {
				t.Fatal(err)
			}
			for _, x := range g.Take(session, Credit{Messages: 5, Bytes: 1 << 20}, at, nil) {
				if x.Base == 1 && x.Attempt == 2 {
					if waited := at.Sub(now); waited > patient+2*time.Second || waited < patient {
						t.Errorf("it waited for %s, want %s", waited, patient)
					}
					return
				}
				done += int(x.Count)
				s.Ack(x.Base, x.Count, x.Attempt, at, nil)
			}
		}
		save(s, at)
		if done < 4*int(at.Sub(now)/time.Second) {
			t.Fatalf("%d messages in %s: the group is held up", done, at.Sub(now))
		}
	}
	t.Errorf("it was never handed out: %+v", s.Standing(1))
}

// TestIsolation_SomebodyComes has somebody come to take messages when all that there is waits to be handed out alone:
// it is handed out once that is saved, without another call that has nothing to do with it.
func TestIsolation_SomebodyComes(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 1)
	take(g, 1, start)
	g.Leave(1)
	g.Want(Credit{}, false)
	save(s, start)
	now := start.Add(10 * time.Second)
	g.Tick(now)
	save(s, now)
	now = now.Add(time.Minute)
	g.Tick(now) // as all events are: it comes before who has come counts
	g.Want(unlimited, true)
	if s.Unsaved() == 0 || !s.Changed() {
		t.Errorf("nothing is to be saved: %+v", s.Standing(1))
	}
	save(s, now)
	want(t, "it is its turn", take(g, 1, now), "1+1@2")
}

// TestIsolation_OpenBesideOneThatHangs has the only session of a group with an open breaker hold a message for ever:
// what is to be handed out alone, and all that there is beside it, is handed out nevertheless.
func TestIsolation_OpenBesideOneThatHangs(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 2)
	hangs := g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, start, nil)[0]
	take(g, 1, start)
	now := start.Add(10*time.Second - time.Millisecond)
	if err := s.Extend(hangs.Base, hangs.Attempt, 10*time.Second, now); err != nil {
		t.Fatal(err)
	}
	now = start.Add(10 * time.Second)
	g.Tick(now)
	save(s, now)
	g.breaker.begin(g.now) // of another share, which has left since
	for end := now.Add(10 * time.Minute); now.Before(end); now = now.Add(time.Second) {
		g.Tick(now)
		if err := s.Extend(hangs.Base, hangs.Attempt, 10*time.Second, now); err != nil {
			t.Fatal(err)
		}
		for _, r := range g.Take(1, Credit{Messages: 5, Bytes: 1 << 20}, now, nil) {
			if waited := now.Sub(start); waited < patient || waited > 2*patient {
				t.Errorf("seq %d came after %s", r.Base, waited)
			}
			return
		}
		save(s, now)
	}
	t.Errorf("it was never handed out: %+v", s.Standing(2))
}

// TestIsolation_FitsTheWindow has a session come for a message that is to be handed out alone, while the one whose lock
// timed out still fills its window: it is given nothing, and the message once there is room.
func TestIsolation_FitsTheWindow(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 2)
	take(g, 2, start)
	g.Tick(second(10))
	s.Ack(2, 1, 1, second(11), nil) // so that the breaker stays closed
	g.Tick(second(12))
	save(s, second(12))
	offer(t, s, 1)
	if got := g.Take(1, Credit{Messages: 5, Bytes: 1}, second(12), nil); len(got) > 0 {
		t.Fatalf("got %+v with a window of one byte", got)
	}
	want(t, "with room again", take(g, 5, second(13)), "1+1@2")
	want(t, "beside it", take(g, 5, second(13)))
}

// hangsOnce has message 1 of a group hang once, and the last attempt of it counted. Session 1 holds message 2, and goes
// on holding it.
func hangsOnce(t *testing.T, connected int) (*Group, *Share) {
	t.Helper()
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second, Breaker: core.BreakerOff}, 1000)
	g.Connected(connected)
	take(g, 2, start)
	if err := s.Extend(2, 1, time.Hour, start); err != nil {
		t.Fatal(err)
	}
	g.Tick(second(10))
	save(s, second(10))
	return g, s
}

// TestIsolation_OneSession is not emptied, and gets the message like any other.
func TestIsolation_OneSession(t *testing.T) {
	g, _ := hangsOnce(t, 1)
	want(t, "beside a long job", take(g, 3, second(10)), "1+1@2", "3+2@1")
}

// TestIsolation_TwoSessions: nothing is kept from one that is busy; the message waits for one that is not, and at most
// so long.
func TestIsolation_TwoSessions(t *testing.T) {
	g, _ := hangsOnce(t, 2)
	want(t, "beside a long job", take(g, 3, second(10)), "3+3@1")
	if got := g.Take(2, Credit{Messages: 3, Bytes: 1 << 20}, second(10), nil); len(got) != 1 || got[0].Base != 1 || got[0].Count != 1 {
		t.Errorf("an idle session got %+v, want the message alone", got)
	}
	if got := g.Take(2, Credit{Messages: 3, Bytes: 1 << 20}, second(10), nil); len(got) > 0 {
		t.Errorf("beside it came %+v", got)
	}
	g, s := hangsOnce(t, 2)
	deadline(t, g, second(40))
	save(s, second(40))
	want(t, "when no session was idle", take(g, 3, second(40)), "1+1@2", "3+2@1")
}

// TestIsolation_TheOtherSessionLeaves, and with it the reason to wait.
func TestIsolation_TheOtherSessionLeaves(t *testing.T) {
	g, s := hangsOnce(t, 2)
	g.Connected(1)
	save(s, second(10))
	want(t, "with one session", take(g, 3, second(10)), "1+1@2", "3+2@1")
}

// TestIsolation_ItsShareGoesOn: what else came back from the retry queue does not wait for it.
func TestIsolation_ItsShareGoesOn(t *testing.T) {
	g, s := newReturning(t, core.GroupSpec{MaxDeliveries: 3, LockTimeout: time.Minute, Breaker: core.BreakerOff})
	g.Connected(2)
	for seq := core.Seq(1); seq <= 50; seq++ {
		if err := s.Offer(returned(seq, History{Origin: core.Receipt{Extent: extent(9), Seq: seq}, Attempts: 1}), start); err != nil {
			t.Fatal(err)
		}
	}
	take(g, 1, start)
	save(s, start)
	want(t, "the one that will hang", take(g, 1, start), "1+1@2")
	now := start.Add(time.Minute)
	g.Tick(now)
	other := g.AddShare(extent(2), State{}, now) // both sessions have long jobs of it
	offer(t, other, 2)
	for session := SessionID(1); session <= 2; session++ {
		g.Take(session, Credit{Messages: 1, Bytes: 1 << 20}, now, nil)
	}
	save(s, now)
	for range 3 {
		take(g, 10, now)
		save(s, now)
	}
	if n := s.of(inFlight); n < 10 {
		t.Errorf("%d messages of its share went out beside it: %+v", n, g.Depth())
	}
	if !g.isolation.isNext(s, 1) {
		t.Error("it does not wait for an idle session")
	}
}

// TestIsolation_NotLastAnyMore: while nobody takes messages, a message that was next to be isolated waits like any
// other if the breaker has given it more attempts since.
func TestIsolation_NotLastAnyMore(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 40)
	g.Connected(2)
	take(g, breakerLeast, start)
	now := start.Add(10 * time.Second)
	if err := s.Extend(1, 1, 9*time.Second, start); err != nil {
		t.Fatal(err)
	}
	g.Tick(start.Add(9 * time.Second))
	save(s, now)
	if !g.isolation.isNext(s, 1) {
		t.Fatalf("seq 1 is not the next to be isolated: %+v", g.isolation)
	}
	g.Tick(now)
	if !g.breaker.isOpen() {
		t.Fatal("the breaker did not open")
	}
	g.Want(Credit{}, false)
	save(s, now)
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

// TestIsolation_OwesItsTurn: isolated messages are retries, at most one in five of the deliveries while first ones
// wait, whatever the credit; and each of them is alone in its session nevertheless.
func TestIsolation_OwesItsTurn(t *testing.T) {
	for _, x := range []struct{ most, hang, credit int }{{2, 6, 1}, {2, 6, 4}, {2, 1, 20}, {3, 6, 1}, {3, 6, 10}} {
		t.Run(fmt.Sprintf("%+v", x), func(t *testing.T) {
			g, s := newShare(t, core.GroupSpec{MaxDeliveries: x.most, LockTimeout: 10 * time.Second, Breaker: core.BreakerOff}, 9000)
			g.Connected(x.hang + 1)
			firsts, retries, last, isolated := 0, 0, 0, 0
			for now := start; now.Before(start.Add(5 * time.Minute)); now = now.Add(time.Second) {
				g.Tick(now)
				for id := range SessionID(x.hang + 1) {
					room := x.credit - g.sessions.held(id+1)
					for _, r := range g.Take(id+1, Credit{Messages: room, Bytes: 1 << 20}, now, nil) {
						switch n := int(r.Count); {
						case r.Attempt == 1:
							firsts += n
						case int(r.Attempt) == x.most:
							if last += n; g.sessions.held(id+1) == 1 {
								isolated++
							}
							fallthrough
						default:
							retries += n
						}
						if id == 0 { // the one that does not hang
							s.Ack(r.Base, r.Count, r.Attempt, now, nil)
						}
					}
				}
				save(s, now)
				for _, d := range g.TakeTransfers(DeadLetterQueue, 1000, nil) {
					d.Share.Transferred(d.Seq, now)
				}
			}
			if all := firsts + retries; retries*retryPart > all+retryPart*retryPart || retries*retryPart < all/2 {
				t.Errorf("%d retries among %d deliveries, want one in %d", retries, all, retryPart)
			}
			if isolated*3 < last {
				t.Errorf("%d of %d last attempts were isolated", isolated, last)
			}
		})
	}
}
