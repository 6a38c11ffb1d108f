package dispatch

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// resume is a new owner of the share, from what the last one saved.
func resume(t *testing.T, spec core.GroupSpec, blob []byte, n int, now time.Time) (*Group, *Share) {
	t.Helper()
	st := State{}
	if blob != nil {
		st = decode(t, blob)
	}
	g := NewGroup(spec.WithDefaults())
	s := g.AddShare(extent(1), st, now)
	if err := s.Offer(records(s.ReadFrom(), n, nil), now); err != nil {
		t.Fatal(err)
	}
	return g, s
}

func TestDead_NotBeforeItsIntentIsDurable(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 2)
	take(g, 1, start)
	before := save(s, start)
	if err := s.Reject(1, 1, nil, start); err != nil {
		t.Fatal(err)
	}
	if s.Leaving() != 1 || g.Depth().DeadLettering != 1 {
		t.Fatalf("%d wait for a checkpoint, depth %+v; want one", s.Leaving(), g.Depth())
	}
	if dead := g.TakeTransfers(DeadLetterQueue, 9, nil); dead != nil {
		t.Fatalf("nothing is saved, and %+v leave", dead)
	}
	blob, token := s.Checkpoint(nil, false, start)
	if dead := g.TakeTransfers(DeadLetterQueue, 9, nil); dead != nil || s.Leaving() != 0 {
		t.Fatalf("the checkpoint is not durable, and %+v leave; %d wait for one", dead, s.Leaving())
	}
	// A crash here: whichever of the two checkpoints is the durable one, there is one dead letter, or one more delivery.
	g1, s1 := resume(t, core.GroupSpec{}, before, 2, second(61))
	g1.Tick(second(61))
	save(s1, second(61))
	want(t, "the reject is forgotten", take(g1, 1, second(61)), "1+1@2")
	g2, s2 := resume(t, core.GroupSpec{}, blob, 2, start)
	g2.Tick(second(61))
	save(s2, second(61))
	want(t, "the reject is known", take(g2, 9, second(61)), "2+1@1")

	s.Saved(token)
	if dead := g.TakeTransfers(DeadLetterQueue, 9, nil); len(dead) != 1 || dead[0].Seq != 1 || dead[0].Again || !dead[0].Since.IsZero() {
		t.Fatalf("after that %+v leave, want seq 1 for the first time", dead)
	}
}

// A message that an earlier owner was to dead-letter may be there: it is looked for, and not at once, since that owner
// may have an append under way.
func TestDead_ResumedIsLookedFor(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	s.Reject(1, 1, []byte("no"), start)
	blob := save(s, start)
	for range 2 { // over two crashes
		g, s = resume(t, core.GroupSpec{}, blob, 1, start)
		if dead := g.TakeTransfers(DeadLetterQueue, 9, nil); dead != nil {
			t.Fatalf("%+v leave at once", dead)
		}
		g.Tick(start.Add(TransferDoubt))
		dead := g.TakeTransfers(DeadLetterQueue, 9, nil)
		if len(dead) != 1 || !dead[0].Again || !dead[0].Since.IsZero() || dead[0].Failure != Rejected || dead[0].Text != "no" {
			t.Fatalf("%+v leave, want one that may be there already", dead)
		}
		blob = save(s, start)
	}
	s.Transferred(1, start.Add(TransferDoubt))
	if !s.Done(1) || s.table.noted > 0 {
		t.Fatal("it is not settled")
	}
}

func TestDead_UnknownOutcomeIsLookedFor(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		g, s := newShare(t, core.GroupSpec{}, 1)
		take(g, 1, start)
		s.Reject(1, 1, nil, start)
		takeDead(g, 1)
		s.TransferFailed(1, unknown, second(2), second(1))
		at := second(2)
		if unknown {
			at = second(1).Add(TransferDoubt)
		}
		g.Tick(at.Add(-time.Millisecond))
		if dead := g.TakeTransfers(DeadLetterQueue, 1, nil); dead != nil {
			t.Errorf("unknown %v: %+v leave while the append may still come to pass", unknown, dead)
		}
		g.Tick(at)
		dead := g.TakeTransfers(DeadLetterQueue, 1, nil)
		if len(dead) != 1 || dead[0].Again != unknown || unknown && !dead[0].Since.Equal(second(1)) {
			t.Errorf("unknown %v: %+v", unknown, dead)
		}
		s.TransferFailed(1, false, at.Add(2*time.Second), at.Add(time.Second))
		if g.Rebuild(s, at.Add(2*time.Second)); unknown {
			if m := s.table.get(1); !s.mayBeDead(1, m) {
				t.Errorf("after it failed for certain, and the share was rebuilt, the first append is forgotten")
			}
		}
	}
}

// A message that expired before it was handed out has no attempt, and its intent is kept all the same.
func TestDead_ExpiredUnseen(t *testing.T) {
	spec := core.GroupSpec{Expired: core.ExpiredDLQ}
	g, s := newShare(t, spec, 0)
	offer := func(s *Share) {
		r := records(1, 1, nil)
		r.Expire = []int64{second(1).UnixMilli()}
		if err := s.Offer(r, start); err != nil {
			t.Fatal(err)
		}
	}
	offer(s)
	want(t, "what expired", take(g, 1, second(2)))
	blob := save(s, second(2))
	for range 2 {
		g = NewGroup(spec.WithDefaults())
		s = g.AddShare(extent(1), decode(t, blob), second(3))
		offer(s)
		g.Tick(second(3).Add(TransferDoubt))
		blob = save(s, second(3).Add(TransferDoubt))
		if dead := g.TakeTransfers(DeadLetterQueue, 9, nil); len(dead) != 1 || !dead[0].Again || dead[0].Attempts != 0 || dead[0].Failure != Expired {
			t.Fatalf("%+v leave, want one that expired without an attempt", dead)
		}
	}
}

// At the bound: so many are under way, and the next ones wait without asking for checkpoints.
func TestDead_Bound(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Breaker: core.BreakerOff}, transfersAtOnce+5)
	take(g, transfersAtOnce+5, start)
	for seq := core.Seq(1); seq <= transfersAtOnce+5; seq++ {
		s.Reject(seq, 1, nil, start)
	}
	if n := s.Leaving(); n != transfersAtOnce {
		t.Fatalf("%d wait for the next checkpoint, want %d", n, transfersAtOnce)
	}
	if dead := takeDead(g, 1<<20); len(dead) != transfersAtOnce || s.Leaving() != 0 {
		t.Fatalf("%d leave, %d wait for a checkpoint; want %d and none", len(dead), s.Leaving(), transfersAtOnce)
	}
	s.Transferred(1, start)
	s.TransferFailed(2, false, second(1), start)
	if n := s.Leaving(); n != 1 {
		t.Fatalf("after one has left %d wait for the next checkpoint, want 1", n)
	}
	if dead := takeDead(g, 9); len(dead) != 1 || dead[0].Seq != transfersAtOnce+1 {
		t.Fatalf("%+v leave", dead)
	}
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
}

// The last resort: where a checkpoint has no room for all, intents are in it; and one that is not does not leave.
func TestDead_CutShort(t *testing.T) {
	var entries []entry
	done := StartAfter(0).done
	for i := range MaxOutstanding {
		seq := core.Seq(13*i + 1)
		done.AckRange(seq+1, 11)
		e := entry{first: seq, count: 1, kind: kindWaiting, attempts: uint16(1 + i%3), notCounted: uint16(i % 2), due: int64(i * 7919 % 100_000), failure: Nacked}
		if i >= MaxOutstanding-transfersAtOnce {
			e.kind, e.due, e.leaves = kindTransferring, 0, true
		}
		entries = append(entries, e)
	}
	f := fit(nil, &policyStates{}, nil, &done, entries)
	st := decode(t, f.blob)
	if f.level != cutShort || len(f.written) == len(entries) {
		t.Fatalf("level %d, %d of %d entries", f.level, len(f.written), len(entries))
	}
	for _, e := range entries {
		if e.leaves && st.messages[e.first].kind != kindTransferring {
			t.Fatalf("of seq %d, which may be a dead letter, the checkpoint says %+v", e.first, st.messages[e.first])
		}
	}

	g, s := newShare(t, core.GroupSpec{Breaker: core.BreakerOff}, 3)
	take(g, 3, start)
	for seq := core.Seq(1); seq <= 3; seq++ {
		s.Reject(seq, 1, nil, start)
	}
	_, token := s.Checkpoint(nil, false, start)
	s.retract([]entry{{first: 1, count: 2}})
	s.Saved(token)
	if dead := g.TakeTransfers(DeadLetterQueue, 9, nil); len(dead) != 2 || dead[1].Seq != 2 || s.Leaving() != 1 {
		t.Fatalf("%+v leave, and %d wait; want the two that were told of", dead, s.Leaving())
	}
	if dead := takeDead(g, 9); len(dead) != 1 || dead[0].Seq != 3 {
		t.Fatalf("with the next checkpoint %+v leave", dead)
	}
}

// TestAck_OfDeadLetter: an ack that comes late counts until the dead letter queue may have the message, and not at all
// once a consumer has rejected it: else two consumers are told that they settled it, each in another way.
func TestAck_OfDeadLetter(t *testing.T) {
	nack := func(s *Share, now time.Time) error { return s.Nack(1, 1, 0, nil, 0, now) }
	reject := func(s *Share, now time.Time) error { return s.Reject(1, 1, []byte("bad"), now) }
	lapse := func(s *Share, now time.Time) error { return nil } // the lock ends by itself
	intend := func(*Group, *Share, time.Time) {}
	saved := func(_ *Group, s *Share, now time.Time) { save(s, now) }
	taken := func(g *Group, s *Share, now time.Time) { saved(g, s, now); g.TakeTransfers(DeadLetterQueue, 9, nil) }
	failed := func(g *Group, s *Share, now time.Time) {
		taken(g, s, now)
		s.TransferFailed(1, false, now.Add(time.Second), now)
	}
	unknown := func(g *Group, s *Share, now time.Time) {
		taken(g, s, now)
		s.TransferFailed(1, true, now.Add(time.Second), now)
	}
	again := func(g *Group, s *Share, now time.Time) { unknown(g, s, now); g.Tick(now.Add(2 * TransferDoubt)) }
	for _, x := range []struct {
		name   string
		end    func(*Share, time.Time) error
		then   func(*Group, *Share, time.Time)
		counts bool
	}{
		{"nack, intending", nack, intend, true}, {"nack, dying", nack, saved, true}, {"nack, taken", nack, taken, false},
		{"nack, failed", nack, failed, true}, {"nack, unknown", nack, unknown, false}, {"nack, again", nack, again, false},
		{"lapse, intending", lapse, intend, true}, {"lapse, dying", lapse, saved, true}, {"lapse, taken", lapse, taken, false},
		{"reject, intending", reject, intend, false}, {"reject, dying", reject, saved, false}, {"reject, taken", reject, taken, false},
		{"reject, failed", reject, failed, false}, {"reject, unknown", reject, unknown, false}, {"reject, again", reject, again, false},
	} {
		for _, proven := range []bool{false, true} {
			g, s := newShare(t, core.GroupSpec{MaxDeliveries: 1, Breaker: core.BreakerOff}, 1)
			take(g, 1, start)
			now := start.Add(time.Second)
			if err := x.end(s, now); err != nil {
				t.Fatal(err)
			}
			now = start.Add(2 * time.Minute)
			g.Tick(now)
			x.then(g, s, now)
			ok := false
			if proven {
				ok = s.AckProven(1, now)
			} else {
				ok = len(s.Ack(1, 1, 1, now, nil)) == 0
			}
			if ok != x.counts || s.Done(1) != x.counts {
				t.Errorf("%s: an ack (proven %v) counts %v, done %v; want %v", x.name, proven, ok, s.Done(1), x.counts)
			}
		}
	}
}

// A breaker that opens later takes back what is on its way, but nothing that the dead letter queue may have.
func TestDead_BreakerTakesBackWhatDidNotLeave(t *testing.T) {
	spec := core.GroupSpec{MaxDeliveries: 1}
	g, s := newShare(t, spec, 60)
	var away []core.Seq
	for seq := core.Seq(1); seq <= breakerLeast+2; seq++ {
		now := start.Add(time.Duration(seq) * time.Second)
		take(g, 1, now)
		if s.table.get(seq).phase != inFlight {
			t.Fatalf("seq %d was not handed out", seq)
		}
		s.Nack(seq, 1, 0, nil, 0, now)
		if seq == 8 { // the first ones have waited for a success for long enough
			save(s, now)
			for _, d := range g.TakeTransfers(DeadLetterQueue, 1, nil) {
				away = append(away, d.Seq)
				s.TransferFailed(d.Seq, true, now, now)
			}
			g.Tick(now)
		}
		if open := g.breaker.isOpen(); open {
			break
		}
	}
	g.Tick(second(3600))
	if open := g.breaker.isOpen(); !open || len(away) != 1 {
		t.Fatalf("open: %v, away %v", open, away)
	}
	if m := s.table.get(away[0]); !s.mayBeDead(away[0], m) {
		t.Fatalf("seq %d, whose append is unknown, was taken back: phase %d", away[0], m.phase)
	}
	if n := g.Depth().DeadLettering; n != 1 {
		t.Fatalf("%d are still on their way, want the one", n)
	}
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
}

// TestDead_UpdateEndsTransfers: a dead letter queue takes nothing, and the group is changed to drop, or to block.
// Messages on their way there follow the new rules, whatever step they are at. One that may be there goes on.
func TestDead_UpdateEndsTransfers(t *testing.T) {
	for _, to := range []core.Exhausted{core.ExhaustedDrop, core.ExhaustedBlock} {
		spec := core.GroupSpec{MaxDeliveries: 1, Breaker: core.BreakerOff}
		g, s := newShare(t, spec, 5)
		nack := func(seq core.Seq) {
			take(g, 1, start)
			if err := s.Nack(seq, 1, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
		nack(1)
		nack(2)
		for i, x := range takeDead(g, 2) {
			s.TransferFailed(x.Seq, i == 0, second(1), start) // whether seq 1 is there is not known
		}
		nack(3)
		save(s, start)
		nack(4)
		s.Checkpoint(nil, false, start)
		nack(5)
		if d := g.Depth(); d.DeadLettering != 5 {
			t.Fatalf("%+v, want 5 on their way", d)
		}
		spec.Exhausted = to
		g.Update(spec.WithDefaults(), start)
		want := Depth{DeadLettering: 1, Retries: 1}
		dropped := uint64(4)
		if to == core.ExhaustedBlock {
			want.Blocked, dropped = 4, 0
		}
		if d, c := g.Depth(), g.Counters(); d != want || c.Dropped != dropped {
			t.Errorf("%s: %+v with %d dropped, want %+v with %d", to, d, c.Dropped, want, dropped)
		}
		g.Tick(second(61))
		if dead := takeDead(g, 9); len(dead) != 1 || dead[0].Seq != 1 || !dead[0].Again {
			t.Errorf("%s: %+v leave, want seq 1 again", to, dead)
		}
	}
}
