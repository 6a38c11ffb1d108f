package outputhost

import (
	"math"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/outputhost/inspect"
	"github.com/columbamq/columba/wire/ws"
)

// countShares asks as a controller does, and answers the shares by extent.
func (b *harness) countShares(req *pb.CountSharesRequest) (map[string]*pb.ShareCounts, *pb.CountSharesResponse) {
	b.t.Helper()
	run := b.deps.Members.Self().Run
	if req.Run == nil {
		req.Run = run.ID[:]
	}
	resp, err := (&service{b.Host}).CountShares(b.t.Context(), connect.NewRequest(req))
	if err != nil {
		b.t.Fatal(convert.FromRPC(err))
	}
	out := make(map[string]*pb.ShareCounts)
	for _, g := range resp.Msg.Groups {
		for _, s := range g.Shares {
			out[string(s.Extent)] = s
		}
	}
	return out, resp.Msg
}

// TestCountShares_OnlyWhatChanged: everything at first and to another run, then what has changed since, in pages.
func TestCountShares_OnlyWhatChanged(t *testing.T) {
	b := newHarness(t)
	var list []*pb.Assignment
	const groups = 20
	for range groups {
		_, a := b.group()
		list = append(list, a)
	}
	if err := b.give(1, list...); err != nil {
		t.Fatal(err)
	}
	all, first := b.countShares(&pb.CountSharesRequest{})
	if len(all) != groups {
		t.Fatalf("%d shares, want all", len(all))
	}
	if some, _ := b.countShares(&pb.CountSharesRequest{Since: first.Position}); len(some) != 0 {
		t.Errorf("%d shares although nothing has changed", len(some))
	}
	g := b.groupList()[0]
	for _, s := range g.mu.shares {
		s.rules.AckProven(1, b.deps.Now())
	}
	some, second := b.countShares(&pb.CountSharesRequest{Since: first.Position})
	if len(some) != 1 {
		t.Fatalf("%d shares, want the one that has changed", len(some))
	}
	for _, s := range some {
		if s.Settled != 1 || s.Counter != 1 {
			t.Errorf("got %v", s)
		}
	}
	if some, _ := b.countShares(&pb.CountSharesRequest{Since: second.Position}); len(some) != 0 {
		t.Errorf("%d shares are told again", len(some))
	}
	if some, _ := b.countShares(&pb.CountSharesRequest{Since: first.Position}); len(some) != 1 {
		t.Errorf("another controller is told of %d shares", len(some))
	}
	other := core.NewID(b.deps.Now())
	if all, _ := b.countShares(&pb.CountSharesRequest{Run: other[:], Since: second.Position}); len(all) != groups {
		t.Errorf("who asks another run is told of %d shares", len(all))
	}
	after := g.id.ID[:]
	if rest, _ := b.countShares(&pb.CountSharesRequest{After: after}); len(rest) >= groups || rest[string(after)] != nil {
		t.Errorf("%d shares after a group", len(rest))
	}
}

// TestCountShares_AsDepthCounts: what is told agrees with depth, of messages that were read, of delayed ones, and of
// those that a group keeps back.
func TestCountShares_AsDepthCounts(t *testing.T) {
	b := newHarness(t)
	s, r := b.timerShare()
	if err := r.position(false, 10); err != nil {
		t.Fatal(err)
	}
	compare := func(what string) {
		t.Helper()
		told, _ := b.countShares(&pb.CountSharesRequest{})
		c := told[string(s.extent.ID.ID[:])]
		p := backlog.Progress{
			Settled: c.Settled, Ready: c.Ready, InFlight: c.InFlight, Delayed: backlog.Delayed{Publish: c.DelayedPublish, Retry: c.DelayedRetry, Group: c.DelayedGroup}, Blocked: c.Blocked, Unread: backlog.Class(c.Unread), Due: c.Due,
		}
		got, want := backlog.Of(backlog.Extent{Last: s.last}, p), depthOf(t, r.g)
		if got.Ready != want.Ready || got.InFlight != want.InFlight || got.Delayed.Sum() != want.Delayed || got.Delayed.Publish != want.DelayedPublish || got.Delayed.Retry != want.DelayedRetry || got.Blocked != want.Blocked {
			t.Errorf("%s: %+v of %v; depth says %v", what, got, c, want)
		}
	}
	compare("nothing was read")
	frame := func(more bool, seqs ...core.Seq) {
		t.Helper()
		body := dueBody(t, seqs...)
		if err := r.due(body, more, ws.Copy(body)); err != nil {
			t.Fatal(err)
		}
	}
	frame(true, 9, 2, 7)
	compare("more is due")
	frame(false, 1)
	compare("the others are not due")
	s.rules.AckProven(2, b.deps.Now())
	compare("one is settled")
	r.g.mu.Lock()
	s.reader = nil
	r.g.mu.Unlock()
	compare("nobody reads on")
	s.rules.Returning()
	compare("they are in the retry queue")
}

// TestCountShares_Refuses: who asks to look at more than the bound, or at nothing that can be.
func TestCountShares_Refuses(t *testing.T) {
	b := newHarness(t)
	record, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	look := &pb.CountSharesRequest_Look{Group: record.ID.ID[:], Extent: a.Extent.Id, Last: 5}
	most := make([]*pb.CountSharesRequest_Look, inspect.MaxLooks)
	for i := range most {
		most[i] = look
	}
	if all, _ := b.countShares(&pb.CountSharesRequest{Look: most}); len(all) != 1 { // no store is there that could be asked
		t.Errorf("%d shares", len(all))
	}
	for code, looks := range map[core.Code][]*pb.CountSharesRequest_Look{core.CodeTooLarge: append(most, look), core.CodeBadID: {{Group: []byte("x")}}} {
		_, err := (&service{b.Host}).CountShares(t.Context(), connect.NewRequest(&pb.CountSharesRequest{Look: looks}))
		if core.CodeOf(convert.FromRPC(err)) != code {
			t.Errorf("got %v, want %s", err, code)
		}
	}
}

// TestCountShares_BelievesNoCaller: how far an extent goes is for stores to say. A share that is to have more messages
// than there are leaves one store after the other, since none sends them.
func TestCountShares_BelievesNoCaller(t *testing.T) {
	b := newHarness(t)
	g, s := b.given()
	before := s.last
	b.countShares(&pb.CountSharesRequest{Look: []*pb.CountSharesRequest_Look{{Group: g.id.ID[:], Extent: s.extent.ID.ID[:], Last: math.MaxUint64}}})
	if s.last != before {
		t.Errorf("the extent goes up to %d, as a caller says", s.last)
	}
}
