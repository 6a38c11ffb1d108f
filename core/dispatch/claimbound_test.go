package dispatch

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// claimRound is a group whose retries wait in shares of two kinds, around it a saver that saves the shares one after
// the other, and sessions that take turns with the credit of the group.
type claimRound struct {
	t        *testing.T
	g        *Group
	ordinary []*Share
	all      []*Share
	saved    int
	claims   claimCount // as seen last
	got      map[*Share]int
}

const claimReturning = 8 // shares of the retry queue

// newClaimRound has as many retries wait in each of two ordinary shares, and messages in each share of the retry queue.
func newClaimRound(t *testing.T, retries, returned int) *claimRound {
	w := &claimRound{t: t, got: map[*Share]int{}}
	w.g = NewGroup(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, NoNackThrottle: true, Breaker: core.BreakerOff}.WithDefaults())
	w.g.Want(Credit{}, true)
	for i := range 2 {
		s := w.g.AddShare(extent(byte(1+i)), State{}, start)
		offer(t, s, retries)
		w.ordinary = append(w.ordinary, s)
	}
	w.all = append(w.all, w.ordinary...)
	for _, r := range w.g.Take(9, Credit{Messages: 2 * retries, Bytes: 1 << 30}, start, nil) {
		for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
			if err := r.Share.Nack(seq, r.Attempt, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range claimReturning {
		w.all = append(w.all, cameBackIn(t, w.g, byte(10+i), returned))
	}
	return w
}

// inMessages is a credit of any number of bytes.
func inMessages(n int) Credit { return Credit{Messages: n, Bytes: unlimited.Bytes} }

// bounded checks that nothing was claimed beyond the credit that there is now: one message may be larger than its
// bytes, if it is the only one.
func (w *claimRound) bounded(what string, credit Credit) {
	w.t.Helper()
	now, before := w.g.claims(), w.claims
	if now.messages > max(before.messages, credit.Messages) || now.bytes > max(before.bytes, credit.Bytes) && now.messages > 1 {
		w.t.Fatalf("%s: %+v are claimed, %+v before, for a credit of %+v", what, now, before, credit)
	}
	w.claims = now
}

// round has sessions take what they have credit for, and saves the next shares. All that they take is acked.
func (w *claimRound) round(sessions int, credit Credit, saves int) {
	left := Credit{Messages: sessions * credit.Messages, Bytes: sessions * credit.Bytes}
	w.g.Want(left, true)
	w.bounded("credit comes", left)
	for id := range sessions {
		credit.Largest = AnySize
		runs := w.g.Take(SessionID(1+id), credit, start, nil)
		for _, r := range runs {
			left.Messages -= int(r.Count)
			left.Bytes = max(0, left.Bytes-len(r.Bytes))
		}
		w.bounded("messages are handed out", left)
		for _, r := range runs {
			w.got[r.Share] += int(r.Count)
			if bad := r.Share.Ack(r.Base, r.Count, r.Attempt, start, nil); len(bad) > 0 {
				w.t.Fatal(bad)
			}
		}
		w.bounded("they are acked", left)
	}
	for range saves {
		s := w.all[w.saved%len(w.all)]
		w.saved++
		_, token := s.Checkpoint(nil, false, start)
		w.bounded("a checkpoint is written", left)
		s.Saved(token)
		w.bounded("it is durable", left)
	}
	if err := w.g.check(); err != nil {
		w.t.Fatal(err)
	}
}

// TestClaim_WithinCredit: all claims of a group together are within its credit, whatever shares they are of.
func TestClaim_WithinCredit(t *testing.T) {
	for _, sessions := range []int{1, 3} {
		for _, credit := range []Credit{{Messages: 1}, {Messages: 5}, {Messages: 100}, {Bytes: 1}, {Bytes: 50}, {Bytes: 1000}} {
			for _, saves := range []int{1, 3, 2 + claimReturning} {
				t.Run(fmt.Sprintf("%d sessions, %+v, %d saved at a time", sessions, credit, saves), func(t *testing.T) {
					w := newClaimRound(t, 200, 200)
					full := Credit{Messages: cmp.Or(credit.Messages, 1000), Bytes: cmp.Or(credit.Bytes, 1<<20)}
					for range 60 {
						w.round(sessions, full, saves)
					}
					got := 0
					for _, n := range w.got {
						got += n
					}
					if got < 60*saves/20 {
						t.Errorf("%d messages were handed out", got)
					}
				})
			}
		}
	}
}

// TestClaim_EachShareInTurn: with little credit each share of the retry queue is handed out something before long, and
// so are the retries of others.
func TestClaim_EachShareInTurn(t *testing.T) {
	for _, credit := range []int{1, 5, 100} {
		t.Run(fmt.Sprint("credit ", credit), func(t *testing.T) {
			const turns = 4 // of each share
			w := newClaimRound(t, 300, 300)
			for range turns * 2 * (2 * claimReturning) / min(credit, turns) { // a claim takes a round, and each second one is of the others
				w.round(1, Credit{Messages: credit, Bytes: 1 << 20}, len(w.all))
			}
			for i, s := range w.all {
				if w.got[s] < turns && i != 1 { // retries of ordinary shares go by their age
					t.Errorf("share %d of %d was handed out %d messages", i, len(w.all), w.got[s])
				}
			}
		})
	}
}

// TestClaim_Isolated: a message that waits for an idle session is no claim, and one that is to be claimed yet is none
// less.
func TestClaim_Isolated(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: time.Second, NoNackThrottle: true, Breaker: core.BreakerOff}, 20)
	g.Connected(2)
	take(g, 20, start)
	for seq := core.Seq(2); seq <= 20; seq++ {
		if err := s.Nack(seq, 1, 500*time.Millisecond, nil, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	g.Want(Credit{}, true)
	g.Tick(start.Add(time.Second)) // 19 wait again, and one to be isolated
	g.Want(inMessages(3), true)
	for range 30 {
		g.Want(inMessages(3), true)
		n := s.of(unsaved, ready)
		if g.isolation.counted.stands(unsaved, ready) {
			n--
		}
		if n > 3 {
			t.Fatalf("%d are claimed for a credit of 3", n)
		}
	}
}

// TestClaim_ReturnedUnseen: messages that were handed out and came back unseen are no claims. While the group has as
// many retries as it may have, they wait for those, and must not keep them from being claimed.
func TestClaim_ReturnedUnseen(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDelayedRetries: 10, NoNackThrottle: true, Breaker: core.BreakerOff}, 20)
	take(g, 20, start)
	for seq := core.Seq(1); seq <= 10; seq++ {
		if err := s.Nack(seq, 1, 10*time.Second, nil, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	if bad := s.Return(1, 11, 10, 1, start, nil); len(bad) > 0 {
		t.Fatal(bad)
	}
	g.Retries(0, 1, start)
	g.Want(Credit{}, true)
	now := start.Add(10 * time.Second)
	g.Tick(now)
	for range 3 {
		g.Want(inMessages(5), true)
		save(s, now)
	}
	if got := take(g, 5, now); len(got) != 5 || g.counters.Redelivered != 5 {
		t.Errorf("with as many retries as there may be %v are handed out, want five retries", got)
	}
}

// TestClaim_UnreadHoldUpNone: claimed messages whose bytes are to be read again hold up no other share, however long no
// store has them.
func TestClaim_UnreadHoldUpNone(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{NoNackThrottle: true, Breaker: core.BreakerOff}, 5)
	other := g.AddShare(extent(2), State{}, start)
	offer(t, other, 5)
	for _, r := range g.Take(1, Credit{Messages: 10, Bytes: 1 << 20}, start, nil) {
		for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
			if err := r.Share.Nack(seq, 1, time.Duration(r.Share.extent.ID[15])*time.Second, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.Want(inMessages(5), true)
	g.Tick(start.Add(time.Second)) // those of the first share are claimed
	save(s, start)
	g.Rebuild(s, start)
	g.Tick(start.Add(2 * time.Second))
	g.Want(inMessages(5), true)
	save(other, start)
	if got := g.Take(1, Credit{Messages: 5, Bytes: 1 << 20}, start, nil); len(got) == 0 || got[0].Share != other {
		t.Errorf("%v are handed out, want retries of the other share", got)
	}
}

// TestClaim_CutCheckpoint: retries that a checkpoint has no room for let others be claimed, which it may have room for.
func TestClaim_CutCheckpoint(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{NoNackThrottle: true, Breaker: core.BreakerOff}, 10)
	take(g, 10, start)
	nack := func(from, to core.Seq) {
		for seq := from; seq <= to; seq++ {
			if err := s.Nack(seq, 1, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	saveCut := func() { // room for seqs up to 5
		d := s.Draft(false, start)
		d.Encode(nil)
		d.fitted.level, d.fitted.written = cutShort, []entry{{first: 1, count: 5}}
		s.Conclude(d)
		s.Saved(d.Token())
	}
	g.Want(inMessages(3), true)
	nack(8, 10)
	saveCut()
	nack(1, 3)
	g.Want(inMessages(3), true)
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		saveCut()
		g.Want(inMessages(3), true)
	}
	want(t, "those that there is room for", take(g, 3, start), "1+3@2")
	save(s, start)
	g.Want(inMessages(3), true)
	save(s, start)
	want(t, "the others, with room for all", take(g, 3, start), "8+3@2")
}
