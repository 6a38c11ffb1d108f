package dispatch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// cameBack is a share of the retry queue with n messages that came back after one attempt.
func cameBack(t *testing.T, g *Group, n int) *Share {
	t.Helper()
	return cameBackIn(t, g, 1, n)
}

// cameBackIn is one that reads the extent of a number.
func cameBackIn(t *testing.T, g *Group, number byte, n int) *Share {
	t.Helper()
	s := g.AddTimers(extent(number), State{}, start)
	s.Returning()
	d := DueRecords{Offsets: []uint32{0}, Bytes: make([]byte, n)}
	for i := range n {
		d.Seqs = append(d.Seqs, core.Seq(i+1))
		d.Offsets = append(d.Offsets, uint32(i+1))
		d.DeliverAt, d.Enqueued = append(d.DeliverAt, 0), append(d.Enqueued, 1)
		d.History = append(d.History, History{Origin: core.Receipt{Extent: extent(number), Seq: core.Seq(i + 1)}, Attempts: 1})
	}
	if err := s.OfferDue(d, start); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClaim_ReturnedBesideRetries: messages that came back from the retry queue, and fail at once again and again, do
// not keep those back that came with them, however little credit there is.
func TestClaim_ReturnedBesideRetries(t *testing.T) {
	const good = 10
	for _, poison := range []int{1, 2, 20} {
		for _, credit := range []int{1, 5, 100} {
			t.Run(fmt.Sprint(poison, " poison, credit ", credit), func(t *testing.T) {
				g := NewGroup(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, NoNackThrottle: true, Breaker: core.BreakerOff}.WithDefaults())
				s := cameBack(t, g, poison+good)
				acked, took := 0, 0
				for range 500 {
					g.Want(inMessages(credit), true)
					runs := g.Take(1, Credit{Messages: credit, Bytes: 1 << 20}, start, nil)
					for _, r := range runs {
						for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
							if took++; int(seq) > poison {
								s.Ack(seq, 1, r.Attempt, start, nil)
								acked++
							} else if err := s.Nack(seq, r.Attempt, 0, nil, 0, start); err != nil {
								t.Fatal(err)
							}
						}
					}
					if n := g.claims().messages; n > credit {
						t.Fatalf("%d are claimed", n)
					}
					if acked == good {
						break
					}
					save(s, start)
					if err := g.check(); err != nil {
						t.Fatal(err)
					}
				}
				if acked < good || took > 3*(poison+good)+credit {
					t.Errorf("%d of %d good messages came with %d deliveries", acked, good, took)
				}
			})
		}
	}
}

// TestGroup_UpdateSettlesWhatComesWithIt: an update of the rules has a message claimed, and with it others of its
// chunks settled.
func TestGroup_UpdateSettlesWhatComesWithIt(t *testing.T) {
	g := NewGroup(core.GroupSpec{MaxDeliveries: 2, Exhausted: core.ExhaustedBlock, NoNackThrottle: true, Breaker: core.BreakerOff}.WithDefaults())
	s := cameBack(t, g, 200)
	g.Want(inMessages(1), true)
	take(g, 1, start)
	save(s, start)
	for _, r := range g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, start, nil) {
		if err := s.Nack(r.Base, r.Attempt, 0, nil, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	if d := g.Depth(); d.Blocked != 1 {
		t.Fatalf("got %+v, want one blocked", d)
	}
	g.Update(core.GroupSpec{MaxDeliveries: 3, Exhausted: core.ExhaustedBlock, NoNackThrottle: true, Breaker: core.BreakerOff}.WithDefaults(), start)
	g.Update(core.GroupSpec{MaxDeliveries: 1, Exhausted: core.ExhaustedDrop, NoNackThrottle: true, Breaker: core.BreakerOff}.WithDefaults(), start)
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
}

// TestClaim_NextBesideTheLast hands out messages that came back from the retry queue, each checkpoint of which takes a
// round: as many as a claim may have with each, not half of them and then none.
func TestClaim_NextBesideTheLast(t *testing.T) {
	const n = 8 * claimAtOnce
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	s := cameBack(t, g, n)
	got, rounds := 0, 0
	for ; got < n && rounds < n; rounds++ {
		g.Want(inMessages(MaxOutstanding), true)
		for _, r := range g.Take(1, Credit{Messages: MaxOutstanding, Bytes: 64 << 20}, start, nil) {
			got += int(r.Count)
		}
		if claimed := s.of(unclaimed, unsaved, ready); claimed > claimAtOnce {
			t.Fatalf("%d are claimed at a time, want at most %d", claimed, claimAtOnce)
		}
		save(s, start)
	}
	if want := n/claimAtOnce + 1; rounds > want {
		t.Errorf("%d messages took %d checkpoints, want %d", got, rounds, want)
	}
}

// TestClaim_IsolatedBesideRetries: while retries are claimed, their share comes to a message that is to be isolated,
// and that waits for credit, too. No retry is forgotten, and none is claimed twice.
func TestClaim_IsolatedBesideRetries(t *testing.T) {
	for _, credit := range []int{1, 2, 3, 10} {
		t.Run(fmt.Sprint("credit ", credit), func(t *testing.T) {
			g := NewGroup(core.GroupSpec{MaxDeliveries: 5, Breaker: core.BreakerOff}.WithDefaults())
			s := cameBack(t, g, 3)
			g.Want(inMessages(3), true)
			take(g, 3, start)
			save(s, start)
			if got := take(g, 3, start); len(got) == 0 {
				t.Fatal("nothing was handed out")
			}
			err := s.OfferDue(DueRecords{
				Seqs: []core.Seq{4}, Offsets: []uint32{0, 1}, Bytes: make([]byte, 1), DeliverAt: []int64{0}, Enqueued: []int64{1},
				History: []History{{Origin: core.Receipt{Seq: 4}, Attempts: 4, LockTimedOut: true}},
			}, start)
			if err != nil {
				t.Fatal(err)
			}
			g.Want(Credit{}, true)
			g.Tick(start.Add(time.Hour))
			g.Want(inMessages(credit), true)
			if err := g.check(); err != nil {
				t.Error(err)
			}
			if n := s.of(unsaved); n != min(credit, 4) {
				t.Errorf("%d are claimed, want %d", n, min(credit, 4))
			}
		})
	}
}

// TestClaim_RetriesBesideReturned: several shares of the retry queue, of which each always has claimed as much as there
// is credit for, keep no retry of another share back, in whatever order their checkpoints are saved.
func TestClaim_RetriesBesideReturned(t *testing.T) {
	const retries, returning = 20, 8
	for _, credit := range []int{1, 5, 50} {
		t.Run(fmt.Sprint("credit ", credit), func(t *testing.T) {
			g, s := newShare(t, core.GroupSpec{NoNackThrottle: true, Breaker: core.BreakerOff}, retries)
			take(g, retries, start)
			all := []*Share{s}
			for i := range returning {
				all = append(all, cameBackIn(t, g, byte(10+i), 100*credit))
			}
			random := rand.New(rand.NewPCG(1, uint64(credit)))
			deliver := func() (of []Run) {
				g.Want(inMessages(credit), true)
				of = g.Take(1, Credit{Messages: credit, Bytes: 1 << 20}, start, nil)
				if n := g.claims().messages; n > credit {
					t.Fatalf("%d are claimed, want at most %d", n, credit)
				}
				for _, s := range all {
					if _, token := s.Checkpoint(nil, false, start); random.IntN(3) == 0 {
						s.Saved(token)
					}
				}
				for _, r := range of {
					if bad := r.Share.Ack(r.Base, r.Count, r.Attempt, start, nil); len(bad) > 0 {
						t.Fatal(bad)
					}
				}
				return of
			}
			for range 20 {
				deliver()
			}
			for seq := core.Seq(1); seq <= retries; seq++ {
				if err := s.Nack(seq, 1, 0, nil, 0, start); err != nil {
					t.Fatal(err)
				}
			}
			got, deliveries := 0, 0
			for most := 2 * (returning + 1) * max(retries, credit); got < retries && deliveries < most; {
				for _, r := range deliver() {
					if deliveries += int(r.Count); r.Share == s {
						got += int(r.Count)
					}
				}
			}
			if got < retries {
				t.Errorf("%d of %d retries came with %d deliveries", got, retries, deliveries)
			}
		})
	}
}
