package dispatch

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// returned is a parked message that comes back at seq.
func returned(seq core.Seq, p History) Records {
	r := records(seq, 1, nil)
	r.History = []History{p}
	return r
}

func origin(seq core.Seq) core.Receipt { return core.Receipt{Extent: extent(9), Seq: seq} }

// newReturning is a share of a log extent of the group's retry queue.
func newReturning(t *testing.T, spec core.GroupSpec) (*Group, *Share) {
	t.Helper()
	g, s := newShare(t, spec, 0)
	s.Returning()
	return g, s
}

// come offers what comes back.
func come(t *testing.T, s *Share, r Records, now time.Time) {
	t.Helper()
	if err := s.Offer(r, now); err != nil {
		t.Fatal(err)
	}
}

// TestPark_ExpiresOnItsWay has a message expire before it is appended to the retry queue: it ends as the group has what
// expires end.
func TestPark_ExpiresOnItsWay(t *testing.T) {
	for _, expired := range []core.Expired{core.ExpiredDrop, core.ExpiredDLQ} {
		g, s := newShare(t, core.GroupSpec{Expired: expired}, 0)
		r := records(1, 1, nil)
		r.Expire = []int64{second(5).UnixMilli()}
		come(t, s, r, start)
		want(t, "it is handed out", take(g, 1, start), "1+1@1")
		if err := s.Nack(1, 1, time.Hour, []byte("later"), 0, start); err != nil {
			t.Fatal(err)
		}
		save(s, second(5))
		if parks := g.TakeTransfers(RetryQueue, 9, nil); len(parks) > 0 {
			t.Errorf("%s: what has expired is parked: %+v", expired, parks)
		}
		dead := takeDead(g, 9)
		for _, d := range dead {
			if d.Failure != Expired || d.Attempts != 1 {
				t.Errorf("%s: the dead letter is %+v", expired, d)
			}
			s.Transferred(d.Seq, second(5))
		}
		if (len(dead) == 1) != (expired == core.ExpiredDLQ) || g.Counters().Expired != 1 || !s.Done(1) {
			t.Errorf("%s: %d dead letters, %d expired, done %v", expired, len(dead), g.Counters().Expired, s.Done(1))
		}
	}
}

// TestPark_ManyAttempts parks a message again and again whose attempts cannot be counted any further: it comes each
// time.
func TestPark_ManyAttempts(t *testing.T) {
	g, s := newReturning(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries})
	for seq := core.Seq(1); seq <= 3; seq++ {
		now := second(40 * int(seq))
		come(t, s, returned(seq, History{Origin: origin(7), Attempts: math.MaxUint16}), now)
		take(g, 1, now) // a claim
		save(s, now)
		want(t, "it comes", take(g, 1, now), fmt.Sprintf("%d+1@%d", seq, math.MaxUint16))
		s.Ack(seq, 1, math.MaxUint16, now, nil) // parked once more
	}
}

// TestPark_ManyDoNotWait parks more than may leave at once: a checkpoint is worth its cost at once whenever it could
// tell of half as many more, and only then.
func TestPark_ManyDoNotWait(t *testing.T) {
	const n = 2*transfersAtOnce + transfersAtOnce/4
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, Breaker: core.BreakerOff, NoNackThrottle: true}, n)
	many := func(what string, want bool) {
		t.Helper()
		if got := s.LeavingMany(); got != want {
			t.Fatalf("%s: %v, want %v (%d wait)", what, got, want, s.Leaving())
		}
	}
	for _, r := range g.Take(1, Credit{Messages: n, Bytes: 1 << 30}, start, nil) {
		for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
			many(fmt.Sprintf("%d are to be parked", seq-1), seq > transfersAtOnce/2)
			if err := s.Nack(seq, r.Attempt, time.Hour, nil, 0, start); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := n
	for left > 0 {
		s.Checkpoint(nil, false, start)
		s.retract(nil)
		many("a checkpoint had no room for them", false)
		_, token := s.Checkpoint(nil, false, start)
		many("a checkpoint that is not saved tells of them", false)
		s.Saved(token)
		many("all that may leave at once do", false)
		parks := g.TakeTransfers(RetryQueue, n, nil)
		if len(parks) != min(left, transfersAtOnce) {
			t.Fatalf("%d leave, want %d", len(parks), min(left, transfersAtOnce))
		}
		left -= len(parks)
		for i, p := range parks {
			p.Share.Transferred(p.Seq, start)
			many(fmt.Sprintf("%d are parked, %d wait", i+1, left), min(i+1, left) >= transfersAtOnce/2)
		}
	}
}

// TestPark_ManyStay nacks a mass of messages for long while nothing succeeds: no checkpoint can tell of any before it
// is known whether the attempts count, so none is worth its cost at once.
func TestPark_ManyStay(t *testing.T) {
	const n = transfersAtOnce
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, NoNackThrottle: true, Breaker: core.BreakerOff}, n)
	g.mostFailed = n // they fail twice
	fail := func(delay time.Duration) {
		for _, r := range g.Take(1, Credit{Messages: n, Bytes: 1 << 30}, start, nil) {
			for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
				if err := s.Nack(seq, r.Attempt, delay, nil, 0, start); err != nil {
					t.Fatal(err)
				}
			}
		}
		save(s, start)
	}
	fail(0)
	g.Update(core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, NoNackThrottle: true}.WithDefaults(), start)
	fail(time.Hour) // none for the first time: the breaker stays closed
	if parting, many := s.Leaving(), s.LeavingMany(); parting > 0 || many {
		t.Errorf("a checkpoint that can tell of none is to be saved: %d, at once %v", parting, many)
	}
	over := start.Add(routes[RetryQueue].patience)
	g.Tick(over)
	if !s.LeavingMany() {
		t.Error("they stay no longer, and a checkpoint is not to be saved at once")
	}
	save(s, over)
	if parks := g.TakeTransfers(RetryQueue, n, nil); len(parks) != n {
		t.Errorf("%d of %d leave", len(parks), n)
	}
}

// TestPark_RebuildTakesOffOnce rebuilds a share whose messages wait with attempts that do not count: they count as
// before.
func TestPark_RebuildTakesOffOnce(t *testing.T) {
	g, s := newReturning(t, core.GroupSpec{MaxDeliveries: 5, Breaker: core.BreakerOff})
	r := returned(1, History{Origin: origin(1), Attempts: 4, NotCounted: 1})
	come(t, s, r, start)
	for range 3 {
		g.Rebuild(s, start)
		come(t, s, returned(1, r.History[0]), start)
	}
	take(g, 1, start) // claims it
	g.Rebuild(s, start)
	come(t, s, returned(1, r.History[0]), start)
	if n := s.notCounted(1); n != 1 {
		t.Errorf("%d of its attempts do not count, want 1", n)
	}
}

// TestPark_LateAckOfAnOtherOwner: once a message leaves for the retry queue its delivery cannot be acked any more,
// where the share was, either.
func TestPark_LateAckOfAnOtherOwner(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 2)
	take(g, 2, start)
	if err := s.Nack(1, 1, time.Hour, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	save(s, start)
	parks := g.TakeTransfers(RetryQueue, 9, nil)
	if len(parks) != 1 {
		t.Fatalf("%d are to be parked", len(parks))
	}
	st := s.State(start)
	if st.Ack(1, 1, start) {
		t.Error("an ack of what is being parked is taken")
	}
	if !st.Ack(2, 1, start) {
		t.Error("an ack of what is in flight is refused")
	}
	s.Transferred(1, start)
}

// TestPark_CrowdedCheckpoint: however much a checkpoint leaves out, it tells what may be in the retry queue already.
func TestPark_CrowdedCheckpoint(t *testing.T) {
	var done acklevel.Window
	var entries []entry
	for i := range MaxOutstanding { // of a timer extent, in no order
		seq := core.Seq(13*i + 1)
		done.AckRange(seq+1, 11)
		e := entry{first: seq, count: 1, kind: kindWaiting, attempts: uint16(1 + i%3), notCounted: uint16(1 + i%2*3), due: int64(i * 7919 % 100_000), failure: Nacked}
		if e.notCounted = min(e.notCounted, e.attempts); i >= MaxOutstanding-transfersAtOnce {
			e.kind, e.to, e.leaves = kindTransferring, RetryQueue, true
		}
		entries = append(entries, e)
	}
	f := fit(nil, &policyStates{}, nil, &done, entries)
	st := decode(t, f.blob)
	if f.level != cutShort || len(f.blob) > MaxCheckpoint || len(st.messages) < MaxOutstanding/2 {
		t.Fatalf("%d bytes at level %d, with %d messages", len(f.blob), f.level, len(st.messages))
	}
	for _, e := range entries {
		if got := st.messages[e.first]; e.kind == kindTransferring && (got.kind != kindTransferring || got.attempts != e.attempts || got.due != e.due) {
			t.Fatalf("of seq %d, which may be in the retry queue, the checkpoint says %+v", e.first, got)
		}
	}
}

// TestPark_MetadataBeforeTexts: a checkpoint without room for all that consumers said still has the metadata that they
// left.
func TestPark_MetadataBeforeTexts(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{Breaker: core.BreakerOff}, 101)
	take(g, 101, start)
	text, metadata := bytes.Repeat([]byte("x"), MaxReason), bytes.Repeat([]byte("m"), core.MaxMetadata)
	if err := s.Replace(1, 1, metadata, start); err != nil {
		t.Fatal(err)
	}
	for seq := core.Seq(1); seq <= 101; seq++ {
		text[0] = byte(seq)
		if err := s.Nack(seq, 1, 10*time.Second, text, 0, start); err != nil {
			t.Fatal(err)
		}
	}
	st := decode(t, save(s, start))
	if e := st.messages[1]; e.metadata != string(metadata) {
		t.Errorf("the checkpoint has %d bytes of metadata, want %d", len(e.metadata), len(metadata))
	}
}

// TestPark_AtOnceHasNoDeadline nacks a message for at once, with metadata: all that it waits for is a checkpoint, and
// no Tick.
func TestPark_AtOnceHasNoDeadline(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	if err := s.Replace(1, 1, []byte("step 2"), start); err != nil {
		t.Fatal(err)
	}
	if err := s.Nack(1, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	if at, ok := g.NextDeadline(); ok || s.Leaving() != 1 {
		t.Errorf("the next deadline is %s, %v; %d wait for a checkpoint, want 1", at, ok, s.Leaving())
	}
}

// TestPark_ASuccessEndsTheWait: a message stays until it is known whether its attempt counts. A success tells that
// of each message that failed before it, however many fail after it.
func TestPark_ASuccessEndsTheWait(t *testing.T) {
	for _, exhausted := range []bool{false, true} {
		spec, to := core.GroupSpec{NoNackThrottle: true}, RetryQueue
		if exhausted {
			spec.MaxDeliveries, to = 1, DeadLetterQueue
		}
		g, s := newShare(t, spec, 20)
		take(g, 20, start)
		fail := func(from, to core.Seq, now time.Time) {
			t.Helper()
			for seq := from; seq <= to; seq++ {
				if err := s.Nack(seq, 1, time.Hour, nil, 0, now); err != nil {
					t.Fatal(err)
				}
			}
		}
		fail(1, 5, start)
		s.Ack(6, 1, 1, second(1), nil)
		fail(7, 11, second(1).Add(time.Millisecond))
		save(s, second(1).Add(2*time.Millisecond))
		some := g.TakeTransfers(to, 20, nil)
		if len(some) != 5 || some[4].Seq != 5 {
			t.Errorf("to the %s: %d leave, want the five that failed before the success", to, len(some))
		}
	}
}

// TestPark_RefusedAfterMaxDeliveriesWereLowered: the retry queue refuses a message until its time has come. By then it
// has had more attempts than the group allows now, so it is not handed out from here, but exhausted.
func TestPark_RefusedAfterMaxDeliveriesWereLowered(t *testing.T) {
	spec := core.GroupSpec{MaxDeliveries: 5, Breaker: core.BreakerOff}.WithDefaults()
	g := NewGroup(spec)
	s := g.AddShare(extent(1), State{}, start)
	if err := s.Offer(light(1, 1), start); err != nil {
		t.Fatal(err)
	}
	now := start
	take := func() []Run {
		_, token := s.Checkpoint(nil, false, now)
		s.Saved(token)
		return g.Take(1, Credit{Messages: 1, Bytes: 1}, now, nil)
	}
	for i, delay := range []time.Duration{0, time.Minute} {
		take()
		if err := s.Nack(1, uint16(i)+1, delay, nil, 0, now); err != nil {
			t.Fatal(err)
		}
	}
	take()
	if n := len(g.TakeTransfers(RetryQueue, 1, nil)); n != 1 {
		t.Fatalf("%d messages leave for the retry queue, want 1", n)
	}
	s.TransferFailed(1, false, now.Add(time.Hour), now)
	spec.MaxDeliveries = 1
	g.Update(spec, now)
	now = now.Add(time.Minute)
	g.Tick(now)
	if runs, d := take(), g.Depth(); len(runs) > 0 || d.DeadLettering != 1 {
		t.Errorf("handed out: %v; the messages are %+v; want one on its way to the dead letter queue", runs, d)
	}
}
