package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// patient is how long a message waits at most for a session that holds nothing, with short lock timeouts.
const patient = 30 * time.Second

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
	c.g.Want(alive > 0)
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

// TestAlone_OnlyTheGuiltyDies has workers die of some messages, with all that they hold: only those become dead letters, after exactly as many
// attempts as there may be, and all else is done.
func TestAlone_OnlyTheGuiltyDies(t *testing.T) {
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
		for range rapid.IntRange(1, 3).Draw(t, "workers") {
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
			if dead && c.g.Counters().Stalls == 0 && (attempts != most || c.given[seq] != most) {
				t.Errorf("seq %d died after %d attempts, was given %d times; want %d", seq, attempts, c.given[seq], most)
			}
		}
	})
}

// TestAlone_NobodyIsIdle has workers that always hold something, for ever: what is to be handed out alone is given to one of them nevertheless, and the
// rest goes on meanwhile.
func TestAlone_NobodyIsIdle(t *testing.T) {
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

// TestAlone_SomebodyComes has somebody come to take messages when all that there is waits to be handed out alone: it is handed out once that is saved, without
// another call that has nothing to do with it.
func TestAlone_SomebodyComes(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 1)
	take(g, 1, start)
	g.Leave(1)
	g.Want(false)
	save(s, start)
	now := start.Add(10 * time.Second)
	g.Tick(now)
	save(s, now)
	now = now.Add(time.Minute)
	g.Tick(now) // as all events are: it comes before who has come counts
	g.Want(true)
	if s.Unsaved() == 0 || !s.Changed() {
		t.Errorf("nothing is to be saved: %+v", s.Standing(1))
	}
	save(s, now)
	want(t, "it is its turn", take(g, 1, now), "1+1@2")
}

// TestAlone_StalledBesideOneThatHangs has the only session of a stalled group hold a message for ever: what is to be handed out alone, and all that there is beside it,
// is handed out nevertheless.
func TestAlone_StalledBesideOneThatHangs(t *testing.T) {
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

// TestAlone_FitsTheWindow has a session come for a message that is to be handed out alone, while the one whose lock ran out still fills its window: it is
// given nothing, and the message once there is room.
func TestAlone_FitsTheWindow(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 2)
	take(g, 2, start)
	g.Tick(second(10))
	s.Ack(2, 1, 1, second(11), nil) // so that the group is not stalled
	g.Tick(second(12))
	save(s, second(12))
	offer(t, s, 1)
	if got := g.Take(1, Credit{Messages: 5, Bytes: 1}, second(12), nil); len(got) > 0 {
		t.Fatalf("got %+v with a window of one byte", got)
	}
	want(t, "with room again", take(g, 5, second(13)), "1+1@2")
	want(t, "beside it", take(g, 5, second(13)))
}
