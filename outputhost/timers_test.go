package outputhost

import (
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// timerShare makes a group with a share of a timer extent, and a reader of it.
func (b *harness) timerShare() (*share, *reader) {
	b.t.Helper()
	_, a := b.group()
	a.Extent.Kind = string(core.KindTimer)
	if err := b.give(1, a); err != nil {
		b.t.Fatal(err)
	}
	g := b.groupList()[0]
	for _, s := range g.mu.shares {
		s.reader = &reader{g: g, s: s, store: "store", granted: 1000}
		return s, s.reader
	}
	b.t.Fatal("no share")
	return nil, nil
}

// dueBody is a frame of timers with these seqs.
func dueBody(t *testing.T, seqs ...core.Seq) []byte {
	t.Helper()
	var d wire.Due
	for _, seq := range seqs {
		var err error
		if d.Records, err = wire.AppendRecord(d.Records, &wire.Record{DeliverAt: 5, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		d.Entries = append(d.Entries, wire.DueEntry{Seq: seq, Enqueued: 3000})
	}
	return d.Append(nil)
}

func depthOf(t *testing.T, g *group) *pb.Depth {
	t.Helper()
	d, err := g.h.inspector.Depth(t.Context(), inspectedGroup{g})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReader_Timers(t *testing.T) {
	b := newHarness(t)
	s, r := b.timerShare()
	if err := r.position(false, 10); err != nil {
		t.Fatal(err)
	}
	body := dueBody(t, 9, 2, 7)
	if err := r.due(body, true, ws.Copy(body)); err != nil {
		t.Fatal(err)
	}
	if d := depthOf(t, r.g); d.Ready != 10 || d.Delayed != 0 || r.granted != 1000-len(body) {
		t.Errorf("there is more than the credit: %+v, credit %d", d, r.granted)
	}
	body = dueBody(t, 9, 1)
	if err := r.due(body, false, ws.Copy(body)); err != nil {
		t.Fatal(err)
	}
	if d := depthOf(t, r.g); d.Ready != 4 || d.Delayed != 6 {
		t.Errorf("the others are not due: %+v", d)
	}
	s.rules.AckProven(2, b.deps.Now())
	known, _, rest, err := acklevel.Decode(s.knownLocked(), 100)
	if err != nil || len(rest) > 0 {
		t.Fatal(err)
	}
	for seq := core.Seq(1); seq <= 10; seq++ {
		want := seq == 1 || seq == 2 || seq == 7 || seq == 9
		if got := known.Done(seq); got != want {
			t.Errorf("seq %d is known: %v, want %v", seq, got, want)
		}
	}
	if err := r.due([]byte{1, 2}, false, ws.Copy([]byte{1, 2})); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("a damaged frame: %v", err)
	}
}

// The end of a timer extent is not believed from a store that has not sent all of it.
func TestReader_EndOfTimers(t *testing.T) {
	b := newHarness(t)
	s, r := b.timerShare()
	body := dueBody(t, 3, 1)
	if err := r.due(body, false, ws.Copy(body)); err != nil {
		t.Fatal(err)
	}
	if err := r.position(true, 3); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("one is missing: %v", err)
	}
	if s.exhausted() {
		t.Error("the share is not read on")
	}
	body = dueBody(t, 2)
	if err := r.due(body, false, ws.Copy(body)); err != nil {
		t.Fatal(err)
	}
	if err := r.position(true, 3); err != nil || !s.exhausted() || s.finished() {
		t.Errorf("%v, exhausted %v, finished %v", err, s.exhausted(), s.finished())
	}
	for seq := core.Seq(1); seq <= 3; seq++ {
		s.rules.AckProven(seq, b.deps.Now())
	}
	if !s.finished() {
		t.Error("all is acked, and the share is not finished")
	}
}

// A timer extent is read beside all others, however many of those there are.
func TestGroup_ReadsTimersBesideLogs(t *testing.T) {
	b := newHarness(t)
	record, first := b.group()
	list := []*pb.Assignment{first}
	for i := range 2 * readersAtOnce {
		_, a := b.group()
		a.Group, a.Name, a.Extent.Queue = first.Group, first.Name, first.Extent.Queue
		if i >= readersAtOnce+2 {
			a.Extent.Kind = string(core.KindTimer)
		}
		list = append(list, a)
	}
	if err := b.give(1, list...); err != nil {
		t.Fatal(err)
	}
	g, err := b.groupOf(t.Context(), record.Queue, "g", core.GroupID{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.release()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joinPullLocked(make(chan struct{}, 1), 1) // somebody wants messages
	g.readLocked()
	logs, timers := 0, 0
	for _, s := range g.mu.shares {
		switch {
		case s.reader == nil:
		case s.timers():
			timers++
		default:
			logs++
		}
		s.reader = nil
	}
	if logs != readersAtOnce || timers != readersAtOnce-2 {
		t.Errorf("%d logs and %d timer extents are read, want %d and %d", logs, timers, readersAtOnce, readersAtOnce-2)
	}
}

// TestTimers_LastOwed: what is due is counted as far as there is something to wait for: what was given up at the end is
// on no store.
func TestTimers_LastOwed(t *testing.T) {
	b := newHarness(t)
	s, r := b.timerShare()
	if err := r.position(false, 10); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ from, last, want core.Seq }{{3, 4, 10}, {8, 10, 7}, {5, 7, 2}} {
		var gone acklevel.Window
		gone.AckRange(x.from, uint64(x.last-x.from)+1)
		s.rules.Absorb(dispatch.StateDone(&gone), b.deps.Now())
		if got := s.lastOwedLocked(); got != x.want {
			t.Errorf("without %d to %d: up to %d, want %d", x.from, x.last, got, x.want)
		}
	}
}

// TestHoldTimers_EachGroupOnce: a call that names a group thousands of times costs, and is answered, no more than one
// that names it once.
func TestHoldTimers_EachGroupOnce(t *testing.T) {
	b := newHarness(t)
	s, _ := b.timerShare()
	req := &pb.HoldTimersRequest{Extent: s.extent.ID.ID[:], Messages: []*pb.HoldTimersRequest_Timer{{Seq: 1, Due: 1 << 50}}}
	for range 10_000 {
		req.Groups = append(req.Groups, s.group.id.ID[:])
	}
	resp, err := (&service{b.Host}).HoldTimers(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resp.Msg.Groups); n != 1 {
		t.Errorf("%d groups are answered, want 1", n)
	}
	req.Messages = make([]*pb.HoldTimersRequest_Timer, maxTokens+1)
	if _, err := (&service{b.Host}).HoldTimers(t.Context(), connect.NewRequest(req)); core.CodeOf(convert.FromRPC(err)) != core.CodeBadArgument {
		t.Errorf("%d messages: %v", len(req.Messages), err)
	}
}
