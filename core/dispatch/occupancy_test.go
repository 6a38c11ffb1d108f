package dispatch

import (
	"math"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// failingSpec is of a group in which nothing but the bound of failed messages keeps messages back.
var failingSpec = core.GroupSpec{Breaker: core.BreakerOff, NoNackThrottle: true, MaxDeliveries: core.UnlimitedDeliveries, MaxDelayedRetries: 100_000_000}

// failingShare is a share of which n messages are in flight.
func failingShare(t *testing.T, spec core.GroupSpec, n int) (*Group, *Share) {
	t.Helper()
	g, s := newShare(t, spec, n)
	g.Take(1, Credit{Messages: n, Bytes: 1 << 30}, start, nil)
	if g.InFlightOf(1) != n {
		t.Fatalf("%d messages are in flight, want %d", g.InFlightOf(1), n)
	}
	return g, s
}

// nackAll nacks the messages from … to, in their first attempt.
func nackAll(t *testing.T, s *Share, from, to core.Seq, delay time.Duration, now time.Time) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		if err := s.Nack(seq, 1, delay, nil, 0, now); err != nil {
			t.Fatal(err)
		}
	}
}

// leaves checks which messages leave for the retry queue, and that the others that failed stay.
func leaves(t *testing.T, s *Share, stay int, leave ...core.Seq) {
	t.Helper()
	got := map[core.Seq]bool{}
	s.table.each(func(seq core.Seq, m *message) {
		if m.phase.leaves() && s.table.note(seq).transfer.to == RetryQueue {
			got[seq] = true
		}
	})
	if len(got) != len(leave) || s.failedMessages() != stay {
		t.Fatalf("%d messages leave and %d stay, want %d and %d", len(got), s.failedMessages(), len(leave), stay)
	}
	for _, seq := range leave {
		if !got[seq] {
			t.Fatalf("seq %d does not leave; what does: %v", seq, got)
		}
	}
}

// TestOccupancy_AtTheBound nacks as many messages as may stay, one less and one more, with and without a delay.
func TestOccupancy_AtTheBound(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second, 20 * time.Second} {
		for n := core.Seq(MaxFailed - 1); n <= MaxFailed+1; n++ {
			g, s := failingShare(t, failingSpec, 1200)
			nackAll(t, s, 1, n, delay, start)
			if n <= MaxFailed {
				leaves(t, s, int(n))
				continue
			}
			leaves(t, s, MaxFailed, n)
			if got := s.Standing(n); got.Place != PlaceRetryQueue || !got.Until.Equal(start.Add(delay)) || s.Depth().RetryQueueing != 1 {
				t.Errorf("delay %s: the displaced message is %+v", delay, got)
			}
			if bad := s.Ack(1, 1, 1, start, nil); bad != nil { // makes room for one
				t.Fatal(bad)
			}
			nackAll(t, s, n+1, n+2, delay, start)
			leaves(t, s, MaxFailed, n, n+2)
			save(s, start)
			for i, x := range g.TakeTransfers(RetryQueue, 9, nil) {
				if want := []core.Seq{n, n + 2}[i]; x.Seq != want || !x.Due.Equal(start.Add(delay)) || x.Attempts != 1 || x.Failure != Nacked {
					t.Errorf("delay %s: %+v is transferred, want seq %d", delay, x, want)
				}
				s.Transferred(x.Seq, start)
			}
			leaves(t, s, MaxFailed)
			if c := g.Counters(); c.RetryQueued != 2 {
				t.Errorf("%d are counted", c.RetryQueued)
			}
		}
	}
}

// TestOccupancy_RetriesCount: a failed message that is in flight again has its place all the same, and one that was
// returned unseen has none.
func TestOccupancy_RetriesCount(t *testing.T) {
	g, s := failingShare(t, failingSpec, 1200)
	nackAll(t, s, 1, MaxFailed, 0, start)
	save(s, start)
	if got := len(takeSeqs(g, start)); got != 100 {
		t.Fatalf("%d are handed out again", got)
	}
	nackAll(t, s, MaxFailed+1, MaxFailed+1, 0, start)
	leaves(t, s, MaxFailed, MaxFailed+1)
	if bad := s.Return(1, MaxFailed+2, 100, 1, start, nil); bad != nil {
		t.Fatal(bad)
	}
	leaves(t, s, MaxFailed, MaxFailed+1)
	if bad := s.Ack(1, 1, 1, start, nil); bad != nil {
		t.Fatal(bad)
	}
	nackAll(t, s, MaxFailed+150, MaxFailed+150, 0, start)
	leaves(t, s, MaxFailed, MaxFailed+1)
}

// TestOccupancy_ExpiredLocksStayLongest: a message whose lock timed out displaces one that was nacked, and is displaced
// itself if there is none. A late ack of what stays counts.
func TestOccupancy_ExpiredLocksStayLongest(t *testing.T) {
	spec := failingSpec
	spec.LockTimeout = 10 * time.Second
	g, s := failingShare(t, spec, 1200)
	nackAll(t, s, 1, 2, 25*time.Second, start)
	nackAll(t, s, 3, 3, 29*time.Second, start)
	for seq := core.Seq(MaxFailed + 2); seq <= 1200; seq++ {
		if err := s.Extend(seq, 1, time.Hour, start); err != nil {
			t.Fatal(err)
		}
	}
	g.Tick(second(10)) // the locks of 998 expire
	leaves(t, s, MaxFailed, 3)
	extendTo := func(seq core.Seq, at int) {
		t.Helper()
		if err := s.Extend(seq, 1, second(at).Sub(second(10)), second(10)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range core.Seq(3) {
		extendTo(MaxFailed+2+i, 11)
	}
	g.Tick(second(11))
	leaves(t, s, MaxFailed, 1, 2, 3, MaxFailed+4)
	if err := s.Nack(MaxFailed+50, 1, 0, nil, 0, second(11)); err != nil {
		t.Fatal(err)
	}
	leaves(t, s, MaxFailed, 1, 2, 3, MaxFailed+4, MaxFailed+50)
	if bad := s.Ack(4, MaxFailed+1, 1, second(12), nil); bad != nil {
		t.Errorf("late acks are refused: %v", bad)
	}
	leaves(t, s, 0, 1, 2, 3, MaxFailed+50)
}

// TestOccupancy_BlockIsExempt: in a group that blocks, order counts, and no message leaves by the bound.
func TestOccupancy_BlockIsExempt(t *testing.T) {
	spec := failingSpec
	spec.Exhausted, spec.MaxDeliveries = core.ExhaustedBlock, 5
	g, s := failingShare(t, spec, 3000)
	nackAll(t, s, 1, 2000, time.Second, start)
	leaves(t, s, 2000)
	spec.Exhausted = core.ExhaustedDLQ
	g.Update(spec.WithDefaults(), start)
	leaves(t, s, 2000)
	nackAll(t, s, 2001, 2001, time.Second, start)
	leaves(t, s, 2000, 2001)
}

// TestOccupancy_LoweredMaxDeliveries: what is exhausted by an update makes room, and what was displaced before goes on.
func TestOccupancy_LoweredMaxDeliveries(t *testing.T) {
	g, s := failingShare(t, failingSpec, 3000)
	nackAll(t, s, 1, MaxFailed+10, time.Second, start)
	spec := failingSpec
	spec.MaxDeliveries = 1
	g.Update(spec.WithDefaults(), start)
	if d := s.Depth(); d.DeadLettering != MaxFailed || d.RetryQueueing != 10 || s.failedMessages() != 0 {
		t.Fatalf("depth %+v, %d failed messages stay", d, s.failedMessages())
	}
	nackAll(t, s, MaxFailed+11, 2500, 0, start)
	if d := s.Depth(); d.DeadLettering != 2490 || d.RetryQueueing != 10 {
		t.Errorf("depth %+v", d)
	}
}

// TestOccupancy_Refused has the retry queue refuse a message, lose the answer, and take it.
func TestOccupancy_Refused(t *testing.T) {
	g, s := failingShare(t, failingSpec, 1200)
	nackAll(t, s, 1, MaxFailed+3, 0, start)
	now := second(5) // long past: it is not handed out from here on its way
	g.Tick(now)
	leaves(t, s, MaxFailed, MaxFailed+1, MaxFailed+2, MaxFailed+3)
	save(s, now)
	some := g.TakeTransfers(RetryQueue, 9, nil)
	if len(some) != 3 {
		t.Fatalf("%d are transferred", len(some))
	}
	s.TransferFailed(MaxFailed+1, false, now.Add(time.Second), now)
	s.TransferFailed(MaxFailed+2, true, now.Add(time.Second), now)
	s.Transferred(MaxFailed+3, now)
	g.Tick(now)
	leaves(t, s, MaxFailed+1, MaxFailed+2) // one is handed out from here, another one may be there
	g.Tick(second(6))
	if some = g.TakeTransfers(RetryQueue, 9, nil); len(some) != 1 || some[0].Seq != MaxFailed+2 || !some[0].Again {
		t.Fatalf("then %+v are transferred", some)
	}
	s.TransferFailed(MaxFailed+2, false, second(7), second(6))
	leaves(t, s, MaxFailed+1, MaxFailed+2)
	save(s, second(6))
	for got := 0; got <= MaxFailed; {
		runs := g.Take(1, Credit{Messages: 5000, Bytes: 1 << 30}, second(6), nil)
		if len(runs) == 0 {
			t.Fatalf("%d messages come again", got)
		}
		for _, r := range runs {
			if r.Attempt == 2 {
				got += int(r.Count)
			}
		}
	}
}

// TestOccupancy_ManyInACheckpoint resumes from the checkpoint of a build without the bound.
func TestOccupancy_ManyInACheckpoint(t *testing.T) {
	g := NewGroup(failingSpec.WithDefaults())
	g.mostFailed = math.MaxInt32
	s := g.AddShare(extent(1), State{}, start)
	offer(t, s, 4000)
	g.Take(1, Credit{Messages: 4000, Bytes: 1 << 30}, start, nil)
	nackAll(t, s, 1, 3000, 20*time.Second, start)
	blob, _ := s.Checkpoint(nil, true, start)
	st, err := DecodeState(blob)
	if err != nil {
		t.Fatal(err)
	}
	next, s := newShare(t, failingSpec, 0)
	next.RemoveShare(s)
	s = next.AddShare(extent(1), st, start)
	if d := s.Depth(); d.Failed != MaxFailed || d.RetryQueueing != 2000 || d.InFlight != 1000 {
		t.Fatalf("resumed with %+v", d)
	}
	offer(t, s, 4000)
	if !s.WantsMore() {
		t.Error("reads no further")
	}
	for parked := 0; parked < 2000; {
		save(s, start)
		some := next.TakeTransfers(RetryQueue, 5000, nil)
		if len(some) == 0 {
			t.Fatalf("%d are transferred", parked)
		}
		for _, x := range some {
			if !x.Due.Equal(second(20)) {
				t.Fatalf("seq %d is due at %s", x.Seq, x.Due)
			}
			s.Transferred(x.Seq, start)
		}
		parked += len(some)
	}
	leaves(t, s, MaxFailed)
}

// TestOccupancy_GoodOnesGoOn: of all messages a part fails, each time, and waits for 20 s. The others are delivered as
// fast as they come for as long as that goes on.
func TestOccupancy_GoodOnesGoOn(t *testing.T) {
	for _, bad := range []core.Seq{5, 20, 95} {
		g, s := newShare(t, failingSpec, 0)
		most := 0
		for round := range 300 {
			now := start.Add(time.Duration(round) * 10 * time.Millisecond)
			g.Tick(now)
			if !s.WantsMore() {
				t.Fatalf("%d%% fail: reads no further after %d messages: %+v", bad, s.next, s.Depth())
			}
			offer(t, s, 500)
			taken := 0
			for _, r := range g.Take(1, Credit{Messages: 500, Bytes: 1 << 30}, now, nil) {
				taken += int(r.Count)
				for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
					if seq%100 < bad {
						if err := s.Nack(seq, r.Attempt, 20*time.Second, nil, 0, now); err != nil {
							t.Fatal(err)
						}
					} else if refused := s.Ack(seq, 1, r.Attempt, now, nil); refused != nil {
						t.Fatal(refused)
					}
				}
			}
			if taken != 500 {
				t.Fatalf("%d%% fail: %d messages of 500 are handed out: %+v, full: %v", bad, taken, s.Depth(), s.Full())
			}
			if round%10 == 9 || s.LeavingMany() { // ten times a second
				save(s, now)
			}
			for _, x := range g.TakeTransfers(RetryQueue, MaxOutstanding, nil) {
				s.Transferred(x.Seq, now)
			}
			most = max(most, s.outstanding())
		}
		if s.failedMessages() > MaxFailed {
			t.Errorf("%d failed messages", s.failedMessages())
		}
		t.Logf("%d%% fail: at most %d messages are held", bad, most)
	}
}

// TestOccupancy_OfTheRetryQueue: a message that came back and failed goes behind those that are due, if they are many.
func TestOccupancy_OfTheRetryQueue(t *testing.T) {
	for _, read := range []int{100, MaxFailed + 600} {
		g, s := newReturning(t, failingSpec)
		for i := range read {
			come(t, s, returned(s.next, History{Origin: origin(core.Seq(i + 1)), Attempts: 3}), start)
		}
		takeSeqs(g, start) // a claim
		save(s, start)
		seqs := takeSeqs(g, start)
		if len(seqs) == 0 {
			t.Fatal("nothing comes back")
		}
		for _, seq := range seqs {
			if err := s.Nack(seq, 4, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
		want := 0
		if read > MaxFailed {
			want = len(seqs)
		}
		if got := s.Depth().RetryQueueing; got != want {
			t.Errorf("%d of %d messages that failed again go to the retry queue, want %d", got, len(seqs), want)
		}
	}
}

// TestOccupancy_NobodyStarvesInTheRetryQueue: some hundred messages come back that fail at every attempt, without a
// delay, to a consumer with little credit. Those behind them are delivered.
func TestOccupancy_NobodyStarvesInTheRetryQueue(t *testing.T) {
	const poison, all = 600, 700
	g, s := newReturning(t, failingSpec)
	for seq := core.Seq(1); seq <= all; seq++ {
		come(t, s, returned(seq, History{Origin: origin(seq), Attempts: 3}), start)
	}
	good, rounds := 0, 0
	for ; good < all-poison; rounds++ {
		if rounds == 1000 {
			t.Fatalf("%d of %d good messages were delivered: %+v", good, all-poison, s.Depth())
		}
		g.Want(inMessages(20), true)
		save(s, start)
		for _, r := range g.Take(1, Credit{Messages: 20, Bytes: 1 << 20}, start, nil) {
			for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
				if seq > poison {
					good++
					s.Ack(seq, 1, r.Attempt, start, nil)
				} else if err := s.Nack(seq, r.Attempt, 0, nil, 0, start); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Logf("after %d rounds of 20 messages", rounds)
}

// TestOccupancy_IsolationGoesOn: the last attempt of a displaced message whose lock timed out is isolated when it comes
// back.
func TestOccupancy_IsolationGoesOn(t *testing.T) {
	g, s := newReturning(t, core.GroupSpec{MaxDeliveries: 3})
	come(t, s, returned(1, History{Origin: origin(1), Attempts: 2, LockTimedOut: true}), start)
	come(t, s, returned(2, History{Origin: origin(2), Attempts: 2}), start)
	g.Connected(2)
	want(t, "a claim", take(g, 9, start))
	save(s, start)
	want(t, "alone", take(g, 9, start), "1+1@3")
	want(t, "to a session that holds it", take(g, 9, start))
	if runs := g.Take(2, Credit{Messages: 9, Bytes: 1 << 20}, start, nil); len(runs) != 1 || runs[0].Base != 2 {
		t.Errorf("another session gets %+v, want the message that was nacked", runs)
	}
}
