package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// claimed counts the messages of a checkpoint that more attempts are counted of than were handed out.
func claimed(t *testing.T, blob []byte, handedOut uint16) (n int) {
	t.Helper()
	for _, e := range decode(t, blob).messages {
		if e.attempts > handedOut {
			n++
		}
	}
	return n
}

// TestCheckpoint_ClaimsNoMoreThanThereIsCreditFor has ten messages wait for their second attempt.
func TestCheckpoint_ClaimsNoMoreThanThereIsCreditFor(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Breaker: core.BreakerOff, NoNackThrottle: true}, 10)
	take(g, 10, start)
	g.Want(Credit{}, true)
	for seq := core.Seq(1); seq <= 10; seq++ {
		s.Nack(seq, 1, 0, nil, 0, start)
	}
	if n := claimed(t, save(s, start), 1); n != 0 || s.Unsaved() != 0 || s.Depth().Ready != 10 {
		t.Errorf("without credit %d are claimed, %d unsaved, %+v", n, s.Unsaved(), s.Depth())
	}
	if p := s.Standing(1).Place; p != PlaceReady {
		t.Errorf("one that waits for credit is %s", p)
	}
	g.Want(inMessages(3), true)
	if n := claimed(t, save(s, start), 1); n != 3 {
		t.Errorf("with credit for 3, %d are claimed", n)
	}
	g.Want(Credit{}, true) // first deliveries took it
	if n := claimed(t, save(s, start), 1); n != 3 {
		t.Errorf("then %d are claimed", n)
	}
	g.Want(inMessages(4), true)
	if n := claimed(t, save(s, start), 1); n != 4 {
		t.Errorf("with credit for 4, %d are claimed", n)
	}
	want(t, "those that failed first", take(g, 9, start), "1+4@2")
	g.Want(unlimited, false)
	if n := claimed(t, save(s, start), 2); n != 0 {
		t.Errorf("without consumers %d are claimed", n)
	}
	if err := g.check(); err != nil {
		t.Error(err)
	}
}

// successor resumes a share from a blob, and reads it again.
func successor(t *testing.T, g *Group, blob []byte, n int, now time.Time) (*Group, *Share) {
	t.Helper()
	g = NewGroup(g.spec)
	s := g.AddShare(extent(1), decode(t, blob), now)
	offer(t, s, n)
	return g, s
}

// TestUnsure_DoesNotCount: what a crash interrupts does not count, three times for each message. After that it does.
func TestUnsure_DoesNotCount(t *testing.T) {
	now := start
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 1, LockTimeout: 10 * time.Second}, 1)
	want(t, "first", take(g, 9, now), "1+1@1")
	for _, next := range []string{"1+1@2", "1+1@3", "1+1@4"} {
		g, s = successor(t, g, save(s, now), 1, now)
		g.Tick(now.Add(9 * time.Second))
		want(t, "while its lock holds", take(g, 9, now.Add(9*time.Second)))
		now = now.Add(10 * time.Second)
		g.Tick(now)
		save(s, now)
		want(t, "after its lock", take(g, 9, now), next)
	}
	g, _ = successor(t, g, save(s, now), 1, now)
	now = now.Add(10 * time.Second)
	g.Tick(now)
	if d := g.Depth(); d.DeadLettering != 1 {
		t.Errorf("after %d: %+v, want it to die", mostUnsure, d)
	}
}

// TestUnsure_HandedOver: the owner that gives a share away knows who holds what. Those attempts count, and so do
// those of which a consumer says anything.
func TestUnsure_HandedOver(t *testing.T) {
	spec := core.GroupSpec{MaxDeliveries: 1, LockTimeout: 10 * time.Second, Breaker: core.BreakerOff, NoNackThrottle: true}
	for what, st := range map[string]func(s *Share) State{
		"a final checkpoint": func(s *Share) State {
			blob, _ := s.Checkpoint(nil, true, start)
			return decode(t, blob)
		},
		"a hand-over": func(s *Share) State { return s.State(start) },
		"a hand-over, saved": func(s *Share) State {
			st := s.State(start)
			return decode(t, st.Append(nil))
		},
	} {
		g, s := newShare(t, spec, 2)
		take(g, 2, start)
		g = NewGroup(g.spec)
		s = g.AddShare(extent(1), st(s), start)
		offer(t, s, 2)
		g.Tick(start.Add(10 * time.Second))
		if d := g.Depth(); d.DeadLettering != 2 {
			t.Errorf("after %s: %+v, want 2 to die", what, d)
		}
	}
	g, s := newShare(t, spec, 4)
	take(g, 4, start)
	g, s = successor(t, g, save(s, start), 4, start)
	s.Nack(1, 1, 0, nil, 0, start)
	s.Extend(2, 1, 5*time.Second, start)
	g.Tick(start.Add(5 * time.Second))
	if d := g.Depth(); d.DeadLettering != 2 {
		t.Errorf("a nack and an extension: %+v, want 2 to die", d)
	}
	g, s = newShare(t, spec, 1)
	take(g, 1, start)
	g, s = successor(t, g, save(s, start), 1, start)
	blob, _ := s.Checkpoint(nil, true, start) // by an owner that knows no more
	g, _ = successor(t, g, blob, 1, start)
	g.Tick(start.Add(10 * time.Second))
	if d := g.Depth(); d.DeadLettering != 0 {
		t.Errorf("an unsure attempt that was handed over: %+v, want none to die", d)
	}
}

// TestGroup_DeliveriesOverCrashes has owners die at any moment. A message dies after as many deliveries as it may have,
// and after one more for each crash at most; of the crashes after the third, only those count that a first attempt is
// forgotten by.
func TestGroup_DeliveriesOverCrashes(t *testing.T) {
	const messages = 12
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(t, "max")
		spec := core.GroupSpec{MaxDeliveries: most, LockTimeout: 10 * time.Second, Breaker: core.BreakerOff, NoNackThrottle: true}.WithDefaults()
		now := start
		var g *Group
		var s *Share
		var durable, taken []byte
		var token uint64
		given, forgotten, dead, crashes := map[core.Seq]int{}, map[core.Seq]int{}, map[core.Seq]bool{}, 0
		got := map[core.Seq]uint16{} // the attempt of the latest delivery
		begin := func() {
			var st State
			if durable != nil {
				var err error
				if st, err = DecodeState(durable); err != nil {
					t.Fatal(err)
				}
			}
			g = NewGroup(spec)
			s, taken = g.AddShare(extent(1), st, now), nil
			if left := messages - int(s.ReadFrom()) + 1; left > 0 {
				if err := s.Offer(records(s.ReadFrom(), left, nil), now); err != nil {
					t.Fatal(err)
				}
			}
		}
		save := func() {
			durable, token = s.Checkpoint(nil, false, now)
			s.Saved(token)
		}
		bury := func() {
			for _, x := range g.TakeTransfers(DeadLetterQueue, messages, nil) {
				if n := given[x.Seq]; n < most && crashes <= mostUnsure || n > most+min(crashes, mostUnsure+forgotten[x.Seq]) {
					t.Fatalf("seq %d is dead after %d deliveries of %d, and %d crashes", x.Seq, n, most, crashes)
				}
				dead[x.Seq] = true
				s.Transferred(x.Seq, now)
			}
		}
		hand := func(credit int) {
			for _, r := range g.Take(1, Credit{Messages: credit, Bytes: 1 << 20}, now, nil) {
				for i := range core.Seq(r.Count) {
					if dead[r.Base+i] {
						t.Fatalf("seq %d is dead", r.Base+i)
					}
					given[r.Base+i]++
					got[r.Base+i] = r.Attempt
				}
			}
		}
		fail := func(part int) {
			for seq := core.Seq(1); seq <= messages; seq++ {
				if m := s.table.get(seq); m != nil && m.phase == inFlight && m.attempts == got[seq] && int(seq)%4 < part {
					s.Nack(seq, m.attempts, 0, nil, 0, now)
				}
			}
		}
		begin()
		t.Repeat(map[string]func(*rapid.T){
			"want": func(t *rapid.T) {
				g.Want(inMessages(rapid.IntRange(0, messages).Draw(t, "credit")), rapid.Bool().Draw(t, "anyone"))
			},
			"take": func(t *rapid.T) { hand(rapid.IntRange(1, messages).Draw(t, "messages")) },
			"nack": func(t *rapid.T) { fail(rapid.IntRange(1, 4).Draw(t, "part")) },
			"tick": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 12).Draw(t, "seconds")) * time.Second)
				g.Tick(now)
			},
			"checkpoint": func(t *rapid.T) { taken, token = s.Checkpoint(nil, false, now) },
			"saved": func(t *rapid.T) {
				if taken == nil {
					t.Skip("no checkpoint")
				}
				durable, taken = taken, nil
				s.Saved(token)
				bury()
			},
			"crash": func(t *rapid.T) {
				for seq := core.Seq(1); seq <= messages; seq++ {
					if m := s.table.get(seq); m != nil && m.attempts == 1 {
						forgotten[seq]++
					}
				}
				crashes++
				begin()
			},
			"hand over": func(t *rapid.T) {
				durable, _ = s.Checkpoint(nil, true, now)
				begin()
			},
			"": func(t *rapid.T) {
				if err := g.check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		for round := 0; len(dead) < messages; round++ {
			if round > 100 {
				t.Fatalf("%d of %d are dead: %+v", len(dead), messages, g.Depth())
			}
			now = now.Add(40 * time.Second)
			g.Tick(now)
			g.Want(unlimited, true)
			save()
			bury()
			hand(messages)
			fail(4)
		}
	})
}

// TestUnsure_PastThatCannotBe reads a record of the retry queue that tells of more attempts that do not count than
// there were: what is saved of the message can be read by the next owner.
func TestUnsure_PastThatCannotBe(t *testing.T) {
	for _, past := range []History{{Attempts: 2, Unsure: 3}, {Attempts: 2, NotCounted: 9, Unsure: 200}, {Attempts: 2, Settled: 2, NotCounted: 3, Unsure: 3}, {Unsure: 1}} {
		g := NewGroup(core.GroupSpec{}.WithDefaults())
		s := g.AddTimers(extent(1), State{}, start)
		s.Returning()
		past.Origin = core.Receipt{Extent: extent(2), Seq: 1}
		r := dueRecords(nil, nil, 1)
		r.History = []History{past}
		if err := s.OfferDue(r, start); err != nil {
			t.Fatal(err)
		}
		take(g, 1, start)
		save(s, start)
		take(g, 1, start)
		if _, err := DecodeState(save(s, start)); err != nil {
			t.Errorf("%+v: %v", past, err)
		}
	}
}

// TestUnsure_NotCountedAlready: of two owners one has as not counted an attempt that the other one's checkpoint still
// has locked. It is taken off once, whether its lock times out or a consumer gives it back.
func TestUnsure_NotCountedAlready(t *testing.T) {
	for _, attempts := range []uint16{1, 2} {
		var st State
		st.Merge(State{messages: map[core.Seq]entry{1: {kind: kindLocked, attempts: attempts, due: start.Add(time.Second).UnixMilli()}}})
		st.Merge(State{messages: map[core.Seq]entry{1: {kind: kindWaiting, attempts: attempts, notCounted: attempts, unsure: uint8(attempts), failure: LockTimedOut}}})
		for what, end := range map[string]func(g *Group, s *Share){
			"its lock runs out": func(g *Group, _ *Share) { g.Tick(start.Add(time.Second)) },
			"given back":        func(_ *Group, s *Share) { s.Return(1, 1, 1, attempts, start, nil) },
		} {
			g := NewGroup(core.GroupSpec{NoNackThrottle: true}.WithDefaults())
			s := g.AddShare(extent(1), st, start)
			offer(t, s, 1)
			end(g, s)
			now := start.Add(time.Second)
			g.Tick(now)
			got := decode(t, save(s, now)).messages[1]
			if got.notCounted > attempts || got.unsure > uint8(attempts) {
				t.Errorf("%s, attempt %d: %+v", what, attempts, got)
			}
			want(t, what, take(g, 1, now), fmt.Sprintf("1+1@%d", max(got.attempts, 1)))
		}
	}
}
