package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

func TestShare_Blocking(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, Exhausted: core.ExhaustedBlock}, 0)
	check := func(exp Standing) {
		t.Helper()
		if exp.Enqueued > 0 {
			exp.Record = payload(exp.Seq)
		}
		if diff := cmp.Diff(exp, s.Blocking()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	check(Standing{Seq: 1, Place: PlaceUnread})
	offer(t, s, 2)
	check(Standing{Seq: 1, Place: PlaceBuffered, Enqueued: 10})
	take(g, 9, start)
	check(Standing{Seq: 1, Place: PlaceInFlight, Attempts: 1, Session: 1, Since: start, Until: start.Add(time.Minute), Enqueued: 10})
	s.Extend(1, 1, time.Hour, start.Add(time.Second))
	s.Extend(1, 1, 2*time.Hour, start.Add(2*time.Second))
	check(Standing{Seq: 1, Place: PlaceInFlight, Attempts: 1, Session: 1, Since: start, Until: start.Add(2*time.Hour + 2*time.Second), Enqueued: 10})
	s.Nack(1, 1, time.Second, []byte("why"), 0, start)
	check(Standing{Seq: 1, Place: PlaceDelayed, Attempts: 1, Session: 1, Failure: Nacked, Text: "why", Until: start.Add(3 * time.Second), Enqueued: 10})
	g.Tick(start.Add(3 * time.Second))
	check(Standing{Seq: 1, Place: PlaceUnsaved, Attempts: 1, Session: 1, Failure: Nacked, Text: "why", Enqueued: 10})
	save(s, start.Add(3*time.Second))
	check(Standing{Seq: 1, Place: PlaceReady, Attempts: 1, Session: 1, Failure: Nacked, Text: "why", Enqueued: 10})
	again := start.Add(10 * time.Second)
	take(g, 9, again)
	check(Standing{Seq: 1, Place: PlaceInFlight, Attempts: 2, Session: 1, Failure: Nacked, Text: "why", Since: again, Until: again.Add(time.Minute), Enqueued: 10})
	s.Nack(1, 2, 0, nil, 0, again)
	check(Standing{Seq: 1, Place: PlaceBlocked, Attempts: 2, Session: 1, Failure: Nacked, Enqueued: 10})
	s.Ack(1, 2, 1, again, nil)
	check(Standing{Seq: 3, Place: PlaceUnread})
	if st := s.Standing(2); st.Place != PlaceDone || st.Record != nil {
		t.Errorf("what is settled stands at %+v", st)
	}
}

// A message that was returned unseen and handed out again has been held since then, whatever happened to its first
// lock.
func TestShare_StandingAfterAReturn(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 0)
	offer(t, s, 1)
	take(g, 1, start)
	s.Extend(1, 1, time.Hour, start)
	s.Return(1, 1, 1, 1, start, nil)
	later := start.Add(time.Minute)
	take(g, 1, later)
	if st := s.Blocking(); !st.Since.Equal(later) || st.Attempts != 1 {
		t.Errorf("it stands at %+v, want in flight since %s", st, later)
	}
	s.Ack(1, 1, 1, later, nil)
	if s.table.noted > 0 {
		t.Error("a lock that was moved is remembered after its message was settled")
	}
}

// TestShare_AtLimit counts messages and bytes that are outstanding.
func TestShare_AtLimit(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 0)
	for s.WantsMore() {
		offer(t, s, 1000)
	}
	if !s.AtLimit() {
		t.Error("nothing more is read, and no limit is reached")
	}
	take(g, 1, start)
	s.Ack(1, 1, 1, start, nil)
	if s.AtLimit() {
		t.Error("a message was settled, and the limit is reached")
	}
}

// TestShare_HasReady has a share at its limit hand out all that it may: more was read, but no more may be begun.
func TestShare_HasReady(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 0)
	if s.HasReady() {
		t.Error("nothing was read, and something is ready")
	}
	for s.WantsMore() {
		offer(t, s, 1500)
	}
	take(g, 1, start)
	if !s.AtLimit() || !s.HasReady() {
		t.Errorf("one message was handed out: at the limit %t, something is ready %t", s.AtLimit(), s.HasReady())
	}
	take(g, MaxOutstanding, start)
	if s.HasReady() {
		t.Error("as many messages as may be outstanding were handed out, and something is ready")
	}
	s.Nack(1, 1, 0, nil, 0, start)
	save(s, start)
	if !s.HasReady() {
		t.Error("a retry is not ready")
	}
}

// TestState_Standing reads back what a share has saved.
func TestState_Standing(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2}, 5)
	take(g, 4, start)
	s.Ack(1, 1, 1, start, nil)
	s.Nack(2, 1, time.Hour, []byte("why"), 0, start)
	s.Reject(3, 1, nil, start)
	st, err := DecodeState(save(s, start))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Standing{
		{Seq: 1, Place: PlaceDone},
		{Seq: 2, Place: PlaceRetryQueue, Attempts: 1, Failure: Nacked, Text: "why", Until: start.Add(time.Hour)},
		{Seq: 3, Place: PlaceDeadLettering, Attempts: 1, Failure: Rejected},
		{Seq: 4, Place: PlaceInFlight, Attempts: 1, Until: start.Add(time.Minute)},
		{Seq: 5, Place: PlaceUnread},
	} {
		if diff := cmp.Diff(want, st.Standing(core.Seq(i+1))); diff != "" {
			t.Errorf("seq %d (-want +got):\n%s", i+1, diff)
		}
	}
}

// TestShare_LastAttemptIsNotHeld: a last attempt goes out like any other, although nothing has succeeded. Once it
// failed, too, the message waits for five seconds, in which something may succeed, or the breaker open.
func TestShare_LastAttemptIsNotHeld(t *testing.T) {
	for name, x := range map[string]struct {
		then  func(g *Group, s *Share)
		until time.Duration
	}{
		"nothing happens":        {until: 5 * time.Second},
		"another one succeeds":   {then: func(_ *Group, s *Share) { s.Ack(2, 1, 1, start, nil) }},
		"another one is refused": {then: func(_ *Group, s *Share) { _ = s.Reject(2, 1, nil, start) }},
	} {
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2}, 2)
		take(g, 9, start)
		nack := func(attempt uint16) {
			if err := s.Nack(1, attempt, 0, nil, 0, start); err != nil {
				t.Fatal(err)
			}
			save(s, start)
		}
		nack(1)
		want(t, "the last attempt", take(g, 9, start), "1+1@2")
		nack(2)
		if n := s.Leaving(); n != 0 || takeDead(g, 9) != nil {
			t.Fatalf("%s: %d leave at once", name, n)
		}
		now := start.Add(x.until)
		if x.then != nil {
			x.then(g, s)
		} else {
			deadline(t, g, now)
		}
		g.Tick(now)
		if n := s.Leaving(); n == 0 {
			t.Errorf("%s: none leaves after %s", name, x.until)
		}
		save(s, now)
		if dead := takeDead(g, 9); len(dead) == 0 || dead[0].Seq != 1 || dead[0].Attempts != 2 {
			t.Errorf("%s: dead letters are %+v", name, dead)
		}
	}
}

// TestStanding_AppendUnknown: a message that a queue may have says until when it is not appended again.
func TestStanding_AppendUnknown(t *testing.T) {
	for _, to := range []Destination{DeadLetterQueue, RetryQueue} {
		g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, Breaker: core.BreakerOff}, 1)
		take(g, 1, start)
		if to == DeadLetterQueue {
			if err := s.Reject(1, 1, nil, start); err != nil {
				t.Fatal(err)
			}
		} else if err := s.Nack(1, 1, time.Hour, nil, 0, start); err != nil {
			t.Fatal(err)
		}
		save(s, start)
		if n := len(g.TakeTransfers(to, 1, nil)); n != 1 || !s.Standing(1).Certain.IsZero() {
			t.Fatalf("%s: %d leave, %+v", to, n, s.Standing(1))
		}
		s.TransferFailed(1, true, start.Add(time.Second), start)
		certain := start.Add(TransferDoubt)
		if at := s.Standing(1).Certain; !at.Equal(certain) {
			t.Errorf("%s: it is certain at %s, want %s", to, at, certain)
		}
		g.Tick(certain)
		if at := s.Standing(1).Certain; !at.IsZero() {
			t.Errorf("%s: it is certain at %s, and it is later", to, at)
		}
		g.TakeTransfers(to, 1, nil)
		s.Transferred(1, certain)
	}
}
