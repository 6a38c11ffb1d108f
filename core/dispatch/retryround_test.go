package dispatch

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

// rounds is a group with an extent of its queue and one of its retry queue, owned by one host after another.
type rounds struct {
	spec   core.GroupSpec
	now    time.Time
	g      *Group
	shares [2]*Share // of the queue, and of the retry queue
	blobs  [2][]byte
	n      core.Seq      // messages of the queue
	retry  []parkedThere // of the retry queue
	parks  []Transfer
	over   map[core.Seq]bool // acked, or dead
	tried  map[core.Seq]int  // the latest attempt
	lost   bool              // an owner died
}

// parkedThere is a record of the retry queue; the first n of the log are offered when they are due.
type parkedThere struct {
	History
	due time.Time
}

// own has another owner resume.
func (w *rounds) own(t *rapid.T) {
	w.g, w.parks = NewGroup(w.spec), nil
	for i, blob := range w.blobs {
		var st State
		if blob != nil {
			var err error
			if st, err = DecodeState(blob); err != nil {
				t.Fatal(err)
			}
		}
		if w.shares[i] = w.g.AddTimers(extent(byte(i+1)), st, w.now); i == 1 {
			w.shares[i].Returning()
		}
	}
}

// offer gives the shares what is due.
func (w *rounds) offer(t *rapid.T) {
	for i, s := range w.shares {
		known := s.Known()
		for seq := core.Seq(1); seq <= w.n && i == 0 || int(seq) <= len(w.retry) && i == 1; seq++ {
			if known.Done(seq) || i == 1 && w.retry[seq-1].due.After(w.now) {
				continue
			}
			r := dueRecords(map[core.Seq]timerTimes{seq: {}}, nil, seq)
			if i == 1 {
				r.History = []History{w.retry[seq-1].History}
			}
			if err := s.OfferDue(r, w.now); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// message is which of the queue's messages is meant.
func (w *rounds) message(s *Share, seq core.Seq) core.Seq {
	if s == w.shares[1] {
		return w.retry[seq-1].Origin.Seq
	}
	return seq
}

func (w *rounds) save() {
	for i, s := range w.shares {
		blob, token := s.Checkpoint(nil, false, w.now)
		w.blobs[i] = blob
		s.Saved(token)
	}
}

// append puts what leaves into the retry queue, or fails to. It looks there for messages that may be there.
func (w *rounds) append(t *rapid.T, faults bool) {
	w.parks = w.g.TakeTransfers(RetryQueue, 10, w.parks)
	for _, p := range w.parks {
		outcome := 0
		if faults {
			outcome = rapid.IntRange(0, 3).Draw(t, "outcome")
		}
		past := History{Origin: core.Receipt{Extent: extent(1), Seq: w.message(p.Share, p.Seq)}, Attempts: p.Attempts, NotCounted: p.NotCounted, Unsure: p.Unsure}
		if p.Again {
			if slices.ContainsFunc(w.retry, func(x parkedThere) bool { return x.Origin == past.Origin && x.Attempts == past.Attempts }) {
				p.Share.Transferred(p.Seq, w.now)
				continue
			}
			if w.now.Before(p.Certain) {
				p.Share.TransferFailed(p.Seq, false, p.Certain, w.now)
				continue
			}
		}
		if outcome < 2 {
			w.retry = append(w.retry, parkedThere{past, p.Due})
		}
		if outcome == 0 {
			p.Share.Transferred(p.Seq, w.now)
		} else {
			p.Share.TransferFailed(p.Seq, outcome < 3, w.now.Add(time.Second), w.now)
		}
	}
	w.parks = nil
}

// work takes messages, and answers.
func (w *rounds) work(t *rapid.T, good bool) {
	for _, r := range w.g.Take(1, Credit{Messages: 5, Bytes: 1 << 20}, w.now, nil) {
		for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
			if notCounted := r.Share.notCounted(seq); int(r.Attempt)-notCounted > w.spec.MaxDeliveries || notCounted > mostUnsure || notCounted > 0 && !w.lost {
				t.Fatalf("message %d comes as attempt %d, of which %d do not count", w.message(r.Share, seq), r.Attempt, notCounted)
			}
			at := w.message(r.Share, seq)
			if !w.lost && (w.over[at] || int(r.Attempt) != w.tried[at]+1) {
				t.Fatalf("message %d comes as attempt %d, after %d, over: %v", at, r.Attempt, w.tried[at], w.over[at])
			}
			w.tried[at] = int(r.Attempt)
			how := 0
			if !good {
				how = rapid.IntRange(0, 6).Draw(t, "how")
			}
			switch how {
			case 0:
				if bad := r.Share.Ack(seq, 1, r.Attempt, w.now, nil); bad != nil {
					t.Fatal(bad)
				}
				w.over[at] = true
			case 1:
				r.Share.Return(1, seq, 1, r.Attempt, w.now, nil)
				w.tried[at]--
			case 2: // its lock runs out
			case 3:
				r.Share.Nack(seq, r.Attempt, 0, nil, 0, w.now)
			default:
				r.Share.Nack(seq, r.Attempt, time.Duration(31+how)*time.Second, nil, 0, w.now)
			}
		}
	}
	for _, d := range takeDead(w.g, 10) {
		if int(d.Attempts-d.NotCounted) != w.spec.MaxDeliveries {
			t.Fatalf("message %d is dead after %d attempts", w.message(d.Share, d.Seq), d.Attempts)
		}
		w.over[w.message(d.Share, d.Seq)] = true
		d.Share.Transferred(d.Seq, w.now)
	}
}

// TestPark_Rounds parks messages, whatever becomes of the appends and of the owners: none is lost, none has more
// deliveries than it may.
func TestPark_Rounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &rounds{now: start, n: 6, over: map[core.Seq]bool{}, tried: map[core.Seq]int{}, spec: core.GroupSpec{
			MaxDeliveries: rapid.IntRange(2, 6).Draw(t, "most"), LockTimeout: 10 * time.Second, NoNackThrottle: true, Breaker: rapid.SampledFrom([]int{core.BreakerOff, 50, core.BreakerAlways}).Draw(t, "breaker"),
		}.WithDefaults()}
		mortal := rapid.Bool().Draw(t, "mortal")
		w.own(t)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := w.g.check(); err != nil {
					t.Fatal(err)
				}
			},
			"work":   func(t *rapid.T) { w.offer(t); w.work(t, false) },
			"save":   func(*rapid.T) { w.save() },
			"append": func(t *rapid.T) { w.append(t, true) },
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second)
				w.g.Tick(w.now)
			},
			"want": func(t *rapid.T) {
				w.g.Want(inMessages(rapid.SampledFrom([]int{0, 1, 5, math.MaxInt}).Draw(t, "credit")), rapid.Bool().Draw(t, "wanted"))
			},
			"crash": func(t *rapid.T) {
				if !mortal {
					t.Skip("this owner lives on")
				}
				w.lost = true
				w.own(t)
			},
			"rebuild": func(t *rapid.T) { w.g.Rebuild(w.shares[rapid.IntRange(0, 1).Draw(t, "share")], w.now) },
		})
		w.g.Want(unlimited, true)
		for i := 0; i < 200 && !(w.shares[0].Done(w.n) && w.shares[1].Done(core.Seq(len(w.retry)))); i++ {
			w.offer(t)
			w.work(t, true)
			w.save()
			w.append(t, false)
			w.now = w.now.Add(5 * time.Second)
			w.g.Tick(w.now)
		}
		if len(w.over) != int(w.n) || !w.shares[0].Done(w.n) || !w.shares[1].Done(core.Seq(len(w.retry))) {
			t.Fatalf("%d of %d messages are over; %+v, %+v", len(w.over), w.n, w.shares[0].Depth(), w.shares[1].Depth())
		}
	})
}
