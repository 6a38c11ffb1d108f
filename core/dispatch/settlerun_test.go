package dispatch

import (
	"math"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
)

// TestShare_SettlesTheHighestSeqs: a consumer may name any seq. Those behind the last message are refused, up to the
// highest there is.
func TestShare_SettlesTheHighestSeqs(t *testing.T) {
	const base = math.MaxUint64 - 100
	_, s := newShare(t, core.GroupSpec{}, 1)
	want := []Refusal{{base, 100, core.CodeStale}}
	if diff := cmp.Diff(want, s.Ack(base, 100, 1, start, nil)); diff != "" {
		t.Errorf("acks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, s.Return(1, base, 100, 1, start, nil)); diff != "" {
		t.Errorf("returns (-want +got):\n%s", diff)
	}
}

// TestShare_ReturnSkipsWhatIsNotHere: a return of seqs that were never handed out costs about what an ack of them
// costs, which looks at 64 of them at a time.
func TestShare_ReturnSkipsWhatIsNotHere(t *testing.T) {
	_, s := newShare(t, core.GroupSpec{}, 1)
	took := func(settle func(base core.Seq)) time.Duration {
		least := time.Duration(math.MaxInt64)
		for range 5 {
			began := time.Now()
			for i := range core.Seq(50) {
				settle(1000 + i*MaxSettleRun)
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	var bad []Refusal
	acks := took(func(base core.Seq) { bad = s.Ack(base, MaxSettleRun, 1, start, bad[:0]) })
	returns := took(func(base core.Seq) { bad = s.Return(1, base, MaxSettleRun, 1, start, bad[:0]) })
	if diff := cmp.Diff([]Refusal{{1000 + 49*MaxSettleRun, MaxSettleRun, core.CodeStale}}, bad); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if returns > 8*acks {
		t.Errorf("returns took %s, acks of the same seqs %s", returns, acks)
	}
}

// TestShare_AcksOfARunCountEachMessage: one ack may name messages of several batches, sessions and attempts, and some
// that were settled before. Each that is not settled counts once, for the session that holds it.
func TestShare_AcksOfARunCountEachMessage(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 70)
	offer(t, s, 70)
	all := Credit{Messages: 100, Bytes: 1 << 20}
	g.Take(1, all, start, nil)
	g.Take(2, Credit{Messages: 30, Bytes: 1 << 20}, start, nil)
	if bad := s.Return(1, 5, 3, 1, start, nil); len(bad) > 0 {
		t.Fatal(bad)
	}
	s.Ack(20, 1, 1, start, nil)
	bad := s.Ack(1, 140, 1, start, nil)
	refused := []Refusal{{5, 3, core.CodeStale}, {20, 1, core.CodeStale}, {131, 10, core.CodeStale}}
	if diff := cmp.Diff(refused, bad); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if one, two, acked := g.InFlightOf(1), g.InFlightOf(2), g.Counters().Acked; one != 0 || two != 0 || acked != 127 {
		t.Errorf("the sessions hold %d and %d messages, %d are acked; want 0, 0 and 127", one, two, acked)
	}
	want(t, "returned, then those that were not handed out", take(g, 100, start), "5+3@1", "131+10@1")
}

// TestShare_BlockedTakesLateAcks: a message that is blocked since its attempts are used up takes an ack of any of its
// deliveries. One that was rejected takes none, nor one that the dead letter queue may have.
func TestShare_BlockedTakesLateAcks(t *testing.T) {
	blocks := core.GroupSpec{Exhausted: core.ExhaustedBlock, MaxDeliveries: 2, LockTimeout: 10 * time.Second, Breaker: core.BreakerOff}
	last := func(spec core.GroupSpec) (*Group, *Share) {
		g, s := newShare(t, spec, 1)
		take(g, 1, start)
		g.Tick(second(10))
		save(s, second(10))
		want(t, "the last attempt", take(g, 1, second(10)), "1+1@2")
		return g, s
	}
	for what, x := range map[string]struct {
		block func() *Share
		acked bool
	}{
		"exhausted": {func() *Share {
			g, s := last(blocks)
			g.Tick(second(20))
			return s
		}, true},
		"rejected": {func() *Share {
			_, s := last(blocks)
			if err := s.Reject(1, 2, nil, second(11)); err != nil {
				t.Fatal(err)
			}
			return s
		}, false},
		"perhaps a dead letter": {func() *Share {
			letters := blocks
			letters.Exhausted = core.ExhaustedDLQ
			g, s := last(letters)
			g.Tick(second(20))
			st := decode(t, save(s, second(20)))
			return NewGroup(blocks.WithDefaults()).AddShare(extent(1), st, second(30))
		}, false},
	} {
		for attempt := range uint16(3) { // 0: by a token
			s := x.block()
			acked := false
			if d := s.Depth(); d.Blocked != 1 {
				t.Fatalf("%s: %+v, want one blocked", what, d)
			}
			if attempt == 0 {
				acked = s.AckProven(1, second(40))
			} else {
				acked = s.Ack(1, 1, attempt, second(40), nil) == nil
			}
			if acked != x.acked || s.Done(1) != x.acked {
				t.Errorf("%s: an ack of attempt %d is taken: %v, want %v", what, attempt, acked, x.acked)
			}
		}
	}
}

// TestReturn_OfASession: a session gives back what it has, or an earlier owner has handed out, and of a run with
// others' messages no more than that.
func TestReturn_OfASession(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 3)
	for session := range SessionID(3) {
		g.Take(1+session, Credit{Messages: 1, Bytes: 1 << 20}, start, nil)
	}
	if diff := cmp.Diff([]Refusal{{1, 1, core.CodeStale}, {3, 1, core.CodeStale}}, s.Return(2, 1, 3, 1, start, nil)); diff != "" {
		t.Error(diff)
	}
	next := NewGroup(g.spec).AddShare(s.extent, s.State(start), start)
	if diff := cmp.Diff([]Refusal{{2, 1, core.CodeStale}}, next.Return(2, 1, 3, 1, start, nil)); diff != "" {
		t.Errorf("by the next owner: %s", diff)
	}
}
