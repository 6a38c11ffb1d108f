package client

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// An extent has no owner for a while. Settlements of another extent do not wait for it.
func TestSettler_AnExtentWithoutOwnerHoldsUpNoOther(t *testing.T) {
	var settled atomic.Int32
	f := startFake(t, &fake{settle: func(tokens []string) *pb.SettleResponse {
		out := &pb.SettleResponse{}
		for _, token := range tokens {
			if !strings.HasPrefix(token, "away") {
				settled.Add(1)
				continue
			}
			err := core.Errorf(core.CodeMoved, "nobody has the extent now")
			out.Failures = append(out.Failures, &pb.SettleResponse_Failure{Token: token, Error: convert.ErrorToProto(err)})
		}
		return out
	}})
	con := consume(t, dial(t, f))
	now := con.now()
	of := func(token string, verb wire.FrameType, base core.Seq, count uint32) settlement {
		return settlement{
			verb: verb, extent: &extentRef{id: core.ExtentID{ID: core.NewID(time.Now())}, token: token},
			run: wire.SeqRun{Base: base, Count: count, Attempt: 1}, asked: now, until: now + int64(time.Minute),
		}
	}
	con.settler.add(of("away", wire.TypeAck, 1, settleAtOnce), of("here", wire.TypeAck, 1, 1), of("here", wire.TypeNack, 2, 1))
	eventually(t, "the ack and the nack of the other extent are settled", func() bool { return settled.Load() == 2 })
}

// A host that dies loses its shares to another one after 2.5 seconds and more. A message that was given back to it is
// given back to the next owner, unless its lock ends before.
func TestSettler_ReturnsOutliveAMove(t *testing.T) {
	s := newSettler(&Consumer{})
	moved := core.Errorf(core.CodeMoved, "nobody has the extent now")
	for _, c := range []struct{ lock, tried time.Duration }{{time.Minute, 6 * time.Second}, {4 * time.Second, 4 * time.Second}, {time.Second, 2 * time.Second}} {
		s.add(settlement{verb: wire.TypeReturn, extent: &extentRef{token: "away"}, run: wire.SeqRun{Base: 1, Count: 1, Attempt: 1}, asked: 1, until: 1 + int64(c.lock)})
		x := s.next()[0]
		for _, after := range []time.Duration{c.tried - time.Millisecond, c.tried} {
			got := x.until > 1+int64(after)
			if want := after < c.tried; got != want || got && !s.retry(&x, moved, 1+int64(after)) {
				t.Errorf("lock of %s: after %s it is tried again: %t, want %t", c.lock, after, got, want)
			}
		}
	}
}

// A pause ends with the first of the settlements that wait, and is not shorter than that after the first failure.
func TestSettler_PausesEndWithTheSettlements(t *testing.T) {
	ends := func(all ...time.Duration) (again []settlement) {
		for _, until := range all {
			again = append(again, settlement{until: 7 + int64(until)})
		}
		return again
	}
	for _, c := range []struct {
		pause time.Duration
		again []settlement
		want  time.Duration
	}{
		{2 * time.Second, ends(time.Minute, 3*time.Second), 2 * time.Second},
		{2 * time.Second, ends(time.Minute, time.Second), time.Second},
		{2 * time.Second, ends(time.Millisecond, time.Second), settleAgain.Min},
		{2 * time.Second, ends(-time.Second), settleAgain.Min},
		{settleAgain.Min / 2, ends(time.Minute), settleAgain.Min / 2},
	} {
		if got := waitBetween(c.pause, c.again, 7); got != c.want {
			t.Errorf("the pause is %s, want %s", got, c.want)
		}
	}
}

// A reason may be any bytes, of any length, as on the stream: a call takes text, of 1 KiB at most, and of a rejection
// some.
func TestSettle_ReasonsAreMadeText(t *testing.T) {
	f := startFake(t, &fake{settle: func([]string) *pb.SettleResponse { return &pb.SettleResponse{} }})
	c := dial(t, f)
	con := consume(t, c)
	cut := strings.Repeat("x", wire.MaxReason-1)
	for reason, want := range map[string]string{"no \xff good": "no \uFFFD good", cut + "ä": cut} {
		if _, err := c.Nack(t.Context(), []string{"token"}, Reason(reason)); err != nil {
			t.Errorf("nack: %v", err)
		}
		if _, err := c.Reject(t.Context(), []string{"token"}, reason); err != nil {
			t.Errorf("reject: %v", err)
		}
		now := con.now()
		for _, verb := range []wire.FrameType{wire.TypeNack, wire.TypeReject} {
			con.settler.add(settlement{
				verb: verb, extent: &extentRef{id: core.ExtentID{ID: core.NewID(time.Now())}, token: "moved"}, reason: reason,
				run: wire.SeqRun{Base: 1, Count: 1, Attempt: 1}, asked: now, until: now + int64(time.Minute),
			})
		}
		var got []string
		eventually(t, "all are settled", func() bool {
			f.state(func() { got = slices.Clone(f.mu.reasons) })
			return len(got) == 4
		})
		for _, reason := range got {
			if reason != want {
				t.Errorf("got %q, want %q", reason, want)
			}
		}
		f.state(func() { f.mu.reasons = nil })
	}
	con.settler.add(settlement{
		verb: wire.TypeReject, extent: &extentRef{id: core.ExtentID{ID: core.NewID(time.Now())}, token: "moved"},
		run: wire.SeqRun{Base: 1, Count: 1, Attempt: 1}, asked: con.now(), until: con.now() + int64(time.Minute),
	})
	eventually(t, "a rejection without a reason has one", func() (ok bool) {
		f.state(func() { ok = len(f.mu.reasons) == 1 && f.mu.reasons[0] != "" })
		return ok
	})
}
