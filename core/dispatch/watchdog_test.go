package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

// TestGroup_WatchdogMends breaks a share in every way that a defect could, and has the watchdog find and mend it: every
// message comes, and what had a lock or an attempt keeps it.
func TestGroup_WatchdogMends(t *testing.T) {
	spec := core.GroupSpec{MaxDeliveries: 3, LockTimeout: time.Minute}.WithDefaults()
	for name, x := range map[string]struct {
		to     func(g *Group, s *Share) // brings message 1 to where it is lost
		lose   func(g *Group, s *Share)
		says   string
		within time.Duration // until it is found
		next   string        // how message 1 comes then
	}{
		"a batch is lost": {
			lose: func(_ *Group, s *Share) { s.supply.(*logSupply).batches = queue[*batch]{} },
			says: "nowhere", next: "1+4@1",
		},
		"its entry is lost": {
			to:   func(g *Group, _ *Share) { take(g, 1, start) },
			lose: func(_ *Group, s *Share) { m := s.table.get(1); s.forget(1, m); s.table.chunks[0].live &^= 2 },
			says: "nowhere", next: "1+4@1",
		},
		"its bytes are lost": {
			to:   func(g *Group, _ *Share) { take(g, 1, start) },
			lose: func(_ *Group, s *Share) { s.table.get(1).batch = nil },
			says: "bytes are gone", within: 0, next: "1+1@2",
		},
		"its lock is lost": {
			to:   func(g *Group, _ *Share) { take(g, 1, start) },
			lose: func(g *Group, _ *Share) { g.locks = queue[lock]{} },
			says: "past its deadline", within: time.Minute, next: "1+1@2",
		},
		"its delay is lost": {
			to: func(g *Group, s *Share) {
				take(g, 1, start)
				s.Nack(1, 1, 10*time.Second, nil, 0, start)
			},
			lose: func(g *Group, _ *Share) { g.timers = nil },
			says: "past its deadline", within: 10 * time.Second, next: "1+1@2",
		},
		"its retry is lost": {
			to: func(g *Group, s *Share) {
				take(g, 1, start)
				s.Nack(1, 1, 0, nil, 0, start)
				save(s, start)
			},
			lose: func(_ *Group, s *Share) { s.retries = queue[core.Seq]{} },
			says: "ready and nothing knows", next: "1+1@2",
		},
		"its checkpoint is forgotten": {
			to: func(g *Group, s *Share) {
				take(g, 1, start)
				s.Nack(1, 1, 0, nil, 0, start)
			},
			lose: func(_ *Group, s *Share) { s.pending = queue[saving]{} },
			says: "unsaved and nothing knows", next: "1+1@2",
		},
		"its turn is lost": {
			lose: func(g *Group, _ *Share) { g.turns = nil },
			says: "ready for 30s", within: StillFor, next: "1+4@1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGroup(spec)
			s := g.AddShare(extent(1), State{}, start)
			offer(t, s, 4)
			if x.to != nil {
				x.to(g, s)
			}
			var w Watch
			if broken := s.Watched(&w, 1<<20, start); broken != "" {
				t.Fatalf("all is well, and the watchdog says that %s", broken)
			}
			x.lose(g, s)
			now, broken := start, ""
			for ; broken == "" && now.Sub(start) <= 2*time.Minute; now = now.Add(2 * time.Second) {
				g.Tick(now)
				broken = s.Watched(&w, 1<<20, now)
			}
			if found := now.Add(-2 * time.Second).Sub(start); !strings.Contains(broken, x.says) || found > x.within {
				t.Fatalf("found %q after %s, want %q after %s", broken, found, x.says, x.within)
			}
			g.Rebuild(s, now)
			if err := g.check(); err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for range 3 {
				if from := s.ReadFrom(); from <= 4 {
					if err := s.Offer(records(from, int(5-from), nil), now); err != nil {
						t.Fatal(err)
					}
				}
				g.Tick(now)
				save(s, now)
				for _, run := range take(g, 9, now) {
					got[run] = true
				}
				now = now.Add(spec.LockTimeout)
			}
			if !got[x.next] {
				t.Errorf("after that %v were handed out, want %s among them", got, x.next)
			}
			if broken := s.Watched(&w, 1<<20, now.Add(-time.Second)); broken != "" {
				t.Errorf("it is mended, and the watchdog says that %s", broken)
			}
		})
	}
}

// TestGroup_WatchdogFindsALostDeadLetter loses one on its way to the dead letter queue, and one that nobody answers
// for.
func TestGroup_WatchdogFindsALostDeadLetter(t *testing.T) {
	for name, lose := range map[string]func(g *Group, s *Share){
		"dead lettering": func(g *Group, _ *Share) { g.transfers[DeadLetterQueue] = queue[messageRef]{} },
		"taken": func(g *Group, s *Share) {
			g.TakeTransfers(DeadLetterQueue, 1, nil)
			b := s.lent[1]
			s.takeBack(1)
			_ = b
		},
	} {
		g, s := newShare(t, core.GroupSpec{}, 1)
		take(g, 1, start)
		s.Reject(1, 1, nil, start)
		save(s, start)
		lose(g, s)
		if broken := s.Watched(&Watch{}, 0, start); !strings.Contains(broken, "dead_lettering and nothing knows") {
			t.Fatalf("%s: the watchdog says %q", name, broken)
		}
		g.Rebuild(s, start)
		offer(t, s, 1)
		dead := takeDead(g, 9)
		if len(dead) != 1 || dead[0].Attempts != 1 || dead[0].Failure != Rejected {
			t.Fatalf("%s: after that the dead letters are %+v", name, dead)
		}
		s.Transferred(1, start)
	}
}

// TestGroup_RebuildKeepsWhatIsKnown compares where each message stands before and after.
func TestGroup_RebuildKeepsWhatIsKnown(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: time.Minute}, 10)
	take(g, 7, start)
	s.Ack(1, 1, 1, start, nil)
	s.Ack(3, 1, 1, start, nil)
	s.Extend(2, 1, time.Hour, start)
	s.Nack(4, 1, time.Minute, []byte("why"), 0, start)
	s.Nack(5, 1, 0, nil, 0, start)
	s.Return(1, 6, 1, 1, start, nil)
	s.Reject(7, 1, []byte("bad"), start)
	dead := takeDead(g, 1)
	before := make(map[core.Seq]Standing)
	for seq := core.Seq(1); seq <= 10; seq++ {
		st := s.Standing(seq)
		st.Record, st.Enqueued = nil, 0
		if st.Place == PlaceBuffered {
			st.Place = PlaceUnread
		}
		before[seq] = st
	}
	g.Rebuild(s, start)
	for seq, want := range before {
		if diff := cmp.Diff(want, s.Standing(seq)); diff != "" {
			t.Errorf("seq %d (-want +got):\n%s", seq, diff)
		}
	}
	if from := s.ReadFrom(); from != 2 {
		t.Errorf("it is read again from %d, want 2", from)
	}
	if bad := s.Ack(2, 1, 1, start, nil); len(bad) > 0 {
		t.Errorf("the ack of a delivery from before is refused: %v", bad)
	}
	s.Transferred(dead[0].Seq, start)
	if st := s.Standing(7); st.Place != PlaceDone {
		t.Errorf("what was being buried stands at %+v after it was", st)
	}
}

// TestShare_WatchdogLeavesOthersAlone: a message that waits for a reason is not broken, however long it does.
func TestShare_WatchdogLeavesOthersAlone(t *testing.T) {
	spec := core.GroupSpec{LockTimeout: time.Hour, MaxDeliveries: 1, Exhausted: core.ExhaustedBlock}
	for name, x := range map[string]struct {
		bytes int
		to    func(g *Group, s *Share)
	}{
		"nobody has credit":    {0, nil},
		"not enough for it":    {10, nil},
		"it waits in a chain":  {1 << 20, func(_ *Group, s *Share) { s.Wait(true) }},
		"it is in flight":      {1 << 20, func(g *Group, _ *Share) { take(g, 1, start) }},
		"it is blocked":        {1 << 20, func(g *Group, s *Share) { take(g, 1, start); s.Nack(1, 1, 0, nil, 0, start) }},
		"there is nothing":     {1 << 20, func(g *Group, s *Share) { take(g, 9, start); s.Ack(1, 4, 1, start, nil) }},
		"an earlier one holds": {1 << 20, func(g *Group, s *Share) { take(g, 1, start); s.Extend(1, 1, 12*time.Hour, start) }},
	} {
		g, s := newShare(t, spec, 4)
		if x.to != nil {
			x.to(g, s)
		}
		var w Watch
		for now := start; now.Sub(start) < 5*time.Minute; now = now.Add(2 * time.Second) {
			g.Tick(now)
			if broken := s.Watched(&w, x.bytes, now); broken != "" {
				t.Errorf("%s: the watchdog says that %s", name, broken)
			}
		}
	}
}

// TestShare_WatchdogKnowsDoubt: while a breaker is open, and its workers are slow, what waits for a probe waits for a
// reason.
func TestShare_WatchdogKnowsDoubt(t *testing.T) {
	g := NewGroup(core.GroupSpec{LockTimeout: 10 * time.Minute}.WithDefaults())
	watched := make(map[*Share]*Watch)
	for i := range byte(12) {
		s := g.AddShare(extent(i+1), State{}, start)
		offer(t, s, 2*breakerLeast)
		watched[s] = &Watch{}
	}
	now := start
	for _, r := range g.Take(1, Credit{Messages: breakerLeast, Bytes: 1 << 20}, now, nil) {
		for i := range core.Seq(r.Count) {
			if err := r.Share.Nack(r.Base+i, 1, 0, nil, 0, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	for ; now.Sub(start) < 5*time.Minute; now = now.Add(2 * time.Second) {
		g.Tick(now)
		for s, w := range watched {
			save(s, now)
			take(g, 100, now)
			if broken := s.Watched(w, 1<<20, now); broken != "" {
				t.Fatalf("after %s the watchdog says that %s", now.Sub(start), broken)
			}
		}
	}
}

// TestShare_WatchdogKnowsOfLargeMessages: a small retry waits for its turn behind a first delivery that is larger than
// the credit, which its consumer has for as long as it works on another message.
func TestShare_WatchdogKnowsOfLargeMessages(t *testing.T) {
	const credit = 1000
	g, s := newShare(t, core.GroupSpec{LockTimeout: time.Hour}, 0)
	sizes := Records{Base: 1, Offsets: []uint32{0, 10, 20, 20 + credit, 20 + 2*credit}, Bytes: make([]byte, 20+2*credit), Enqueued: start.UnixMicro()}
	if err := s.Offer(sizes, start); err != nil {
		t.Fatal(err)
	}
	var w Watch
	for now := start; now.Sub(start) < 5*time.Minute; now = now.Add(2 * time.Second) {
		g.Tick(now)
		free := credit - 10*int(g.inFlight)
		g.Want(Credit{Messages: 10, Bytes: free}, true)
		for _, r := range g.Take(1, Credit{Messages: 10, Bytes: free}, now, nil) {
			if r.Base != 1 {
				t.Fatalf("after %s it is handed %+v, and has room for %d bytes", now.Sub(start), r, free)
			}
			if err := s.Nack(1, r.Attempt, 0, nil, 0, now); err != nil {
				t.Fatal(err)
			}
		}
		save(s, now)
		if broken := s.Watched(&w, credit-10, now); broken != "" {
			t.Fatalf("after %s the watchdog says that %s", now.Sub(start), broken)
		}
	}
	if m := s.table.get(1); m == nil || m.phase != ready {
		t.Errorf("the retry stands at %+v, want it ready", s.Standing(1))
	}
}
