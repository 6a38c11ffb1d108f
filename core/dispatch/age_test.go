package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// offerAt offers n messages whose batch was appended at an instant.
func offerAt(t *testing.T, s *Share, n int, appended, now time.Time) {
	t.Helper()
	r := records(s.ReadFrom(), n, nil)
	r.Enqueued = appended.UnixMicro()
	if err := s.Offer(r, now); err != nil {
		t.Fatal(err)
	}
}

func second(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }

// deadline checks when the group wants its next Tick, and has it.
func deadline(t *testing.T, g *Group, at time.Time) {
	t.Helper()
	if next, ok := g.NextDeadline(); !ok || !next.Equal(at) {
		t.Fatalf("the next deadline is %s, %v; want %s", next.Sub(start), ok, at.Sub(start))
	}
	g.Tick(at)
}

func TestGroup_Delay(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Delay: 10 * time.Second}, 0)
	offerAt(t, s, 2, second(-20), start)
	offerAt(t, s, 3, second(-4), start)
	offerAt(t, s, 1, second(-2), start)
	if d := g.Depth(); d.Ready != 2 || d.Delayed != 4 || !s.KeptBack() {
		t.Fatalf("got %+v, kept back %v; want 2 ready, 4 delayed", d, s.KeptBack())
	}
	if at := second(-4).UnixMicro(); !s.KeepsBack(at, second(5)) || s.KeepsBack(at, second(6)) || s.KeepsBack(0, start) {
		t.Error("what nobody has read is kept back for another time than what somebody has")
	}
	want(t, "what is old enough", take(g, 9, start), "1+2@1")
	if d := g.Depth(); d.Ready != 0 || d.Delayed != 4 || d.OldestReady != 0 || g.Ready() {
		t.Fatalf("got %+v, ready %v; want 4 delayed", d, g.Ready())
	}
	g.Tick(second(6).Add(-1))
	want(t, "before its time", take(g, 9, second(6).Add(-1)))
	deadline(t, g, second(6))
	want(t, "ten seconds after the append", take(g, 9, second(6)), "3+3@1")
	if err := s.Nack(3, 1, 0, nil, 0, second(6)); err != nil {
		t.Fatal(err)
	}
	if bad := s.Return(1, 4, 1, 1, second(6), nil); bad != nil {
		t.Fatal(bad)
	}
	g.Update(core.GroupSpec{Delay: time.Hour}.WithDefaults(), second(6))
	save(s, second(6))
	want(t, "what was handed out bypasses the delay", take(g, 9, second(6)), "3+1@2", "4+1@1")
	deadline(t, g, second(60))
	g.Update(core.GroupSpec{}.WithDefaults(), second(60))
	want(t, "the delay was taken away", take(g, 9, second(60)), "6+1@1")
	if s.KeptBack() {
		t.Error("kept back without a delay")
	}
}

// Append times never go back; should they, messages begin in their order all the same, and none is kept back for ever.
func TestGroup_DelayKeepsTheOrder(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Delay: 10 * time.Second}, 0)
	offerAt(t, s, 1, second(0), start)
	offerAt(t, s, 1, second(-30), start)
	want(t, "at first", take(g, 9, start))
	if b := s.Blocking(); b.Place != PlaceDelayed || !b.Until.Equal(second(10)) {
		t.Errorf("blocked by %+v, want the delay until 10 s", b)
	}
	deadline(t, g, second(10))
	want(t, "then", take(g, 9, second(10)), "1+1@1", "2+1@1")
}

// A settlement by proof, of what is still kept back, leaves nothing that waits for it.
func TestGroup_DelayOfWhatIsSettledMeanwhile(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Delay: 10 * time.Second}, 0)
	offerAt(t, s, 2, second(0), start)
	for seq := range core.Seq(2) {
		if !s.AckProven(seq+1, second(1)) {
			t.Fatalf("ack of %d is refused", seq+1)
		}
	}
	if at, ok := g.NextDeadline(); ok || !s.Done(2) {
		t.Errorf("done %v, a deadline at %s", s.Done(2), at)
	}
}

func TestGroup_SkipOlder(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{SkipOlder: 10 * time.Second}, 0)
	offerAt(t, s, 70, second(-11), start)
	if !s.Done(70) || !s.Changed() || len(s.held) != 0 {
		t.Fatalf("the frontier is %d, changed %v, %d batches held; want all skipped", s.Frontier(), s.Changed(), len(s.held))
	}
	offerAt(t, s, 3, second(-10), start)
	want(t, "at the limit", take(g, 1, start), "71+1@1")
	if err := s.Nack(71, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	deadline(t, g, start.Add(1)) // the two that were not handed out are too old by now
	save(s, start)
	if c := g.Counters(); c.Skipped != 72 || c.Acked != 0 {
		t.Errorf("got %+v, want 72 skipped", c)
	}
	want(t, "a retry bypasses the rule", take(g, 9, second(60)), "71+1@2")
	s.Ack(71, 1, 2, second(60), nil)
	if !s.Done(73) {
		t.Errorf("the frontier is %d, want 73", s.Frontier())
	}
}

// A message that was settled or handed out before the others of its batch got too old must not be counted as skipped.
func TestGroup_SkipOlderPassesOverTheRest(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{SkipOlder: 10 * time.Second}, 0)
	offerAt(t, s, 6, start, start)
	s.AckProven(4, start)
	want(t, "the first", take(g, 1, start), "1+1@1")
	deadline(t, g, second(10).Add(1))
	if c := g.Counters(); c.Skipped != 4 || s.supply.len() != 0 || g.Depth().InFlight != 1 {
		t.Errorf("got %+v, %+v; want 4 skipped, 1 in flight", c, g.Depth())
	}
}

func TestGroup_SkipOlderAfterTheDelay(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Delay: 5 * time.Second, SkipOlder: 10 * time.Second}, 0)
	offerAt(t, s, 2, start, start)
	deadline(t, g, second(5))
	want(t, "visible", take(g, 1, second(5)), "1+1@1")
	deadline(t, g, second(10).Add(1))
	want(t, "too old", take(g, 1, second(11)))
	g.Update(core.GroupSpec{SkipOlder: time.Hour}.WithDefaults(), second(11))
	offerAt(t, s, 1, start, second(11))
	want(t, "by the new rule", take(g, 1, second(11)), "3+1@1")
}

// TestGroup_ExpiredMessagesDie dead-letters what has expired, before a first delivery and before another one, of a log
// and of timers; what was delivered in time is not concerned. An owner that dies before they are written leaves them to
// the next one.
func TestGroup_ExpiredMessagesDie(t *testing.T) {
	spec := core.GroupSpec{LockTimeout: time.Minute, Expired: core.ExpiredDLQ}
	for _, timers := range []bool{false, true} {
		var g *Group
		var s *Share
		offer := func() *counted {
			if timers {
				in := timerTimes{enqueued: start, expire: second(5)}
				b := &counted{}
				if err := s.OfferDue(dueRecords(map[core.Seq]timerTimes{1: in, 2: in, 3: {enqueued: start}}, b, 1, 2, 3), start); err != nil {
					t.Fatal(err)
				}
				return b
			}
			b := &counted{}
			r := records(1, 3, b)
			r.Expire = []int64{second(5).UnixMilli(), second(5).UnixMilli(), 0}
			if err := s.Offer(r, start); err != nil {
				t.Fatal(err)
			}
			return b
		}
		if g, s = newShare(t, spec, 0); timers {
			g, s = newTimers(t, spec)
		}
		b := offer()
		takeOne(t, g, start, 1)
		if err := s.Nack(1, 1, 0, []byte("busy"), 0, start); err != nil {
			t.Fatal(err)
		}
		save(s, start)
		takeOne(t, g, second(5), 3)
		checkDead := func(g *Group, attempts uint16, lapsed uint64) {
			t.Helper()
			dead := takeDead(g, 10)
			if len(dead) != 2 || dead[0].Failure.String() != "expired" || g.Counters().Expired != lapsed || g.Depth().DeadLettering != 2 {
				t.Fatalf("timers: %v: dead are %+v, depth %+v, %+v", timers, dead, g.Depth(), g.Counters())
			}
			for _, d := range dead {
				if want := map[core.Seq]uint16{1: attempts}[d.Seq]; d.Attempts != want {
					t.Errorf("message %d is dead with %d attempts, want %d", d.Seq, d.Attempts, want)
				}
			}
			for _, d := range dead {
				d.Share.Transferred(d.Seq, second(6))
			}
		}
		blob, _ := s.Checkpoint(nil, false, second(5))
		checkDead(g, 1, 2)
		if bad := s.Ack(3, 1, 1, second(6), nil); bad != nil || !s.Done(3) || b.released != 1 {
			t.Errorf("refused: %v, done: %v, released: %d", bad, s.Done(3), b.released)
		}
		st, err := DecodeState(blob)
		if err != nil {
			t.Fatal(err)
		}
		if g = NewGroup(spec.WithDefaults()); timers {
			s = g.AddTimers(extent(1), st, second(6))
		} else {
			s = g.AddShare(extent(1), st, second(6))
		}
		offer()
		g.Tick(second(6))
		save(s, second(6))
		if got := g.Take(1, Credit{Messages: 10, Bytes: 1 << 20}, second(6), nil); len(got) > 0 {
			t.Fatalf("got %v", got)
		}
		g.Tick(second(6).Add(TransferDoubt))
		checkDead(g, 1, 0) // the first owner counted them
	}
}

func takeOne(t *testing.T, g *Group, now time.Time, want core.Seq) {
	t.Helper()
	if got := g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, now, nil); len(got) != 1 || got[0].Base != want {
		t.Fatalf("got %+v, want message %d", got, want)
	}
}

func TestGroup_ExpiredMessages(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{LockTimeout: time.Minute}, 0)
	in := func(d int) int64 { return second(d).UnixMilli() }
	b := &counted{}
	r := records(1, 8, b)
	r.Expire = []int64{in(-1), in(10), 0, in(0), in(5), in(5), in(20), in(0)}
	if err := s.Offer(r, start); err != nil {
		t.Fatal(err)
	}
	want(t, "what has not expired", take(g, 3, start), "2+2@1", "5+1@1")
	for _, seq := range []core.Seq{2, 3} {
		if err := s.Nack(seq, 1, 0, nil, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	save(s, start)
	want(t, "neither a retry nor a first delivery of what has expired meanwhile", take(g, 9, second(10)), "3+1@2", "7+1@1")
	if c := g.Counters(); c.Expired != 5 || c.Acked != 0 {
		t.Errorf("got %+v, want 5 expired", c)
	}
	if bad := s.Ack(5, 1, 1, second(30), nil); bad != nil {
		t.Errorf("what was handed out in time is refused: %v", bad)
	}
	s.Ack(3, 1, 2, second(30), nil)
	s.Ack(7, 1, 1, second(30), nil)
	if !s.Done(8) || b.released != 1 {
		t.Errorf("the frontier is %d, want 8; released %d times", s.Frontier(), b.released)
	}
}

// TestGroup_DeadLettersSayWhy resumes a message that expired on its way to the dead letters, and one that was nacked,
// in a group that lowered max deliveries since, also from a checkpoint that had no room for reasons: each dies of
// something, and what expired of that.
func TestGroup_DeadLettersSayWhy(t *testing.T) {
	for level, other := range map[detail]Failure{everything: Nacked, attemptsOnly: LockTimedOut} {
		spec := core.GroupSpec{MaxDeliveries: 3, Expired: core.ExpiredDLQ}
		g, s := newShare(t, spec, 0)
		offer := func(s *Share) {
			t.Helper()
			r := records(1, 2, nil)
			r.Expire = []int64{second(5).UnixMilli(), 0}
			if err := s.Offer(r, start); err != nil {
				t.Fatal(err)
			}
		}
		offer(s)
		take(g, 2, start)
		for seq := core.Seq(1); seq <= 2; seq++ {
			if err := s.Nack(seq, 1, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
		save(s, start)
		want(t, "what has not expired", take(g, 2, second(5)), "2+1@2")
		if err := s.Nack(2, 2, 0, nil, 0, second(5)); err != nil {
			t.Fatal(err)
		}
		blob, _, _ := appendState(nil, &policyStates{}, nil, &s.done, reduce(inOrder(s.draftEntries(true, second(5).UnixNano())), level), false)
		st, err := DecodeState(blob)
		if err != nil {
			t.Fatal(err)
		}
		spec.MaxDeliveries = 1
		g = NewGroup(spec.WithDefaults())
		s = g.AddShare(extent(1), st, second(6))
		offer(s)
		g.Tick(second(6).Add(TransferDoubt))
		dead := takeDead(g, 9)
		if len(dead) != 2 || dead[0].Failure != Expired || dead[1].Failure != other {
			t.Errorf("with detail %d got %+v, want one that expired and one for %q", level, dead, other)
		}
	}
}
