package frontend

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// stands has a host say that this message holds the group up.
func stands(receipt core.Receipt, age time.Duration) func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
	return func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
		m := &pb.Standing{Receipt: receipt.String(), State: "in_flight"}
		if age > 0 {
			m.Enqueued = timestamppb.New(time.Now().Add(-age))
		}
		return &pb.WhyStuckResponse{Reason: "in_flight", Text: "held", Extents: 1, Message: m}, nil
	}
}

// TestWhyStuck_NamesTheOldest asks two owners, one of which is silent at the end, and looks at an extent that nobody
// owns.
func TestWhyStuck_NamesTheOldest(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	b := c.addOutput("b")
	req := &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}
	nothing := func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
		return &pb.WhyStuckResponse{Reason: "nothing_waits"}, nil
	}
	c.out.onStuck, b.onStuck = nothing, nothing
	why := func() *pb.WhyStuckResponse {
		t.Helper()
		return must(call(t, c.admin.WhyStuck, req))(t)
	}
	if w := why(); w.Reason != "nothing_waits" || w.Text == "" || w.Message != nil || w.Queue != "/t/a" || w.Group != "g" {
		t.Errorf("a group without extents: %v", w)
	}
	for _, part := range []string{"starts at latest, which was 20", "published before", "`columba seek /t/a g --to earliest --dry-run`"} {
		if w := why(); !strings.Contains(w.Detail, part) {
			t.Errorf("of a group that starts at latest it does not say %q: %q", part, w.Detail)
		}
	}
	all := &pb.WhyStuckRequest{Queue: "/t/a", Group: "all"}
	must(call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "all", Start: "earliest"}}))(t)
	if w := must(call(t, c.admin.WhyStuck, all))(t); w.Reason != "nothing_waits" || w.Detail != "" {
		t.Errorf("a group that starts at earliest: %v", w)
	}
	first, second := newExtent(g), newExtent(g)
	for owner, e := range map[core.HostID]core.Extent{"a": first, "b": second} {
		c.addExtent(e)
		c.assign(g, e, 1, owner)
	}
	one, other := core.Receipt{Extent: first.ID, Seq: 1}, core.Receipt{Extent: second.ID, Seq: 2}
	c.out.onStuck, b.onStuck = stands(one, time.Minute), stands(other, time.Hour)
	if w := why(); w.Reason != "in_flight" || w.Message.GetReceipt() != other.String() || w.Extents != 2 || w.Message.AgeMs < time.Hour.Milliseconds() {
		t.Errorf("the second is older: %v", w)
	}
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", Status: "disabled"}}))(t)
	if w := why(); w.Reason != "disabled" || len(w.Also) != 1 || w.Also[0] != "in_flight" || w.Message.GetReceipt() != other.String() || w.Detail != "the group is disabled" {
		t.Errorf("a disabled group: %v", w)
	}
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", Status: "enabled"}}))(t)
	alone := newExtent(g)
	alone.ID.ID[0] = 0 // made long before all others
	c.addExtent(alone)
	if w := why(); w.Reason != "no_owner" || w.Message.GetReceipt() != (core.Receipt{Extent: alone.ID, Seq: 1}).String() || w.Extents != 3 {
		t.Errorf("an extent without an owner: %v", w)
	}
	c.assign(g, alone, 1, "b")
	b.onStuck = func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
		return nil, core.Errorf(core.CodeUnavailable, "down")
	}
	if w := why(); w.Reason != "owner_unreachable" || w.Detail == "" || w.Extents != 3 {
		t.Errorf("a silent owner: %v", w)
	}
	_, err := call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "none"})
	wantCode(t, "no such group", err, core.CodeNotFound)
}

// TestDepth_AgeWithoutAnOwner: a backlog that no output host has is as old as its extent at most, and never of age 0.
func TestDepth_AgeWithoutAnOwner(t *testing.T) {
	c := newHarness(t, nil)
	c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) { return &pb.GetDepthResponse{}, nil }
	c.createQueue("/t/a")
	e := newExtent(c.createGroup("/t/a", "g"))
	e.ID.ID = core.NewID(time.Now().Add(-time.Hour))
	c.addExtent(e)
	d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t).Groups[0]
	if age := time.Duration(d.OldestReadyMs) * time.Millisecond; d.Ready == 0 || age < time.Hour || age > 2*time.Hour {
		t.Errorf("%d messages are ready, the oldest for %s, want about an hour", d.Ready, age)
	}
}

// TestGetMessage_AsTheOwnerOrTheCheckpointSays asks for one message while its share has an owner that answers, and
// while it has none.
func TestGetMessage_AsTheOwnerOrTheCheckpointSays(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	_, r, err := c.host.svc.group(t.Context(), "/t/a", "g")
	if err != nil {
		t.Fatal(err)
	}
	e := newExtent(g)
	c.addExtent(e)
	at := core.Receipt{Extent: e.ID, Seq: 3}
	c.out.onPeek = func(req *pb.PeekRequest) (*pb.PeekResponse, error) {
		if req.After != (core.Receipt{Extent: e.ID, Seq: 2}).String() || req.Limit != 1 {
			t.Errorf("asked for %v", req)
		}
		m := &pb.Message{Id: core.NewID(time.Now()).String(), Payload: []byte("hello")}
		return &pb.PeekResponse{Messages: []*pb.StoredMessage{{Receipt: at.String(), Enqueued: timestamppb.New(time.Now().Add(-time.Minute)), Message: m}}}, nil
	}
	var letters []*pb.DeadLetter
	c.out.onDead = func(*pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error) {
		return &pb.ListDeadLettersResponse{DeadLetters: letters}, nil
	}
	get := func() (*pb.MessageInfo, *pb.Standing) {
		t.Helper()
		m := must(call(t, c.admin.GetMessage, &pb.GetMessageRequest{Receipt: at.String()}))(t)
		if len(m.Groups) != 1 || m.Groups[0].Group != "g" || m.Groups[0].Receipt != at.String() {
			t.Fatalf("groups are %v", m.Groups)
		}
		return m, m.Groups[0]
	}
	state := dispatch.StartAfter(2)
	key := metadata.CheckpointKey(r.ID, e.ID, r.Epoch, core.RunID{})
	if err := c.store.Put(t.Context(), metadata.Checkpoints, key, state.Append(nil), time.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	m, s := get()
	if m.Stored != "committed" || m.Queue != "/t/a" || m.ExtentState != "open" || len(m.Stores) != 1 || m.Bytes != 5 || m.Message == nil || s.State != "unread" || s.AgeMs < 60_000 {
		t.Errorf("without an owner: %v", m)
	}
	c.assign(g, e, 1, "a")
	c.out.onStand = func(req *pb.StandingRequest) (*pb.Standing, error) {
		return &pb.Standing{State: "in_flight", Attempts: 2, Holder: &pb.Holder{Consumer: "w"}}, nil
	}
	if _, s := get(); s.State != "in_flight" || s.Attempts != 2 || s.Holder.GetConsumer() != "w" {
		t.Errorf("by its owner it stands at %v", s)
	}
	c.out.onStand = func(*pb.StandingRequest) (*pb.Standing, error) { return &pb.Standing{State: "settled"}, nil }
	if _, s := get(); s.State != "before_start" { // the group begins at latest, and was made after it
		t.Errorf("settled, of before the group: %v", s)
	}
	letters = []*pb.DeadLetter{{Origin: "another"}, {Origin: at.String(), Receipt: "there:1", Attempts: 4, Reason: "nack", Error: "no"}}
	if _, s := get(); s.State != "dead" || s.DeadLetter != "there:1" || s.Attempts != 4 || s.LastError != "no" {
		t.Errorf("a dead letter stands at %v", s)
	}
	for receipt, code := range map[string]core.Code{
		"x": core.CodeBadID, (core.Receipt{Extent: e.ID}).String(): core.CodeNotFound, (core.Receipt{Extent: newExtent(g).ID, Seq: 1}).String(): core.CodeNotFound,
	} {
		_, err := call(t, c.admin.GetMessage, &pb.GetMessageRequest{Receipt: receipt})
		wantCode(t, receipt, err, code)
	}
	at.Seq = 6 // the store has committed 5
	c.out.onPeek = func(*pb.PeekRequest) (*pb.PeekResponse, error) { return &pb.PeekResponse{}, nil }
	if m, _ := get(); m.Stored != "not_committed" || m.Message != nil || m.Detail == "" {
		t.Errorf("what is not committed: %v", m)
	}
}

// TestPendingSeek: a seek that is under way is shown, whatever else holds the group up.
func TestPendingSeek(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	queue, _ := core.ParseID(g.QueueId)
	began := time.Now().UTC()
	_, err := metadata.Change(t.Context(), c.store, metadata.Groups, metadata.GroupKey(core.QueueID{ID: queue}, "g"), func(g *metadata.GroupRecord) error {
		g.Rewind = &metadata.Rewind{Epoch: 1, To: core.Start{Mode: core.StartLatest}, Began: began}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := must(call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	if got.PendingSeek != "latest" || !got.PendingSeekSince.AsTime().Equal(began) {
		t.Errorf("the group is %v, want that a seek to latest is under way", got)
	}
	why := func() *pb.WhyStuckResponse {
		t.Helper()
		return must(call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}))(t)
	}
	if w := why(); w.Reason != "seek_pending" || w.Text == "" || len(w.Also) > 0 {
		t.Errorf("of a group that has all: %v", w)
	}
	e := newExtent(g)
	c.addExtent(e)
	c.assign(g, e, 1, "a")
	c.out.onStuck = stands(core.Receipt{Extent: e.ID, Seq: 1}, time.Minute)
	if w := why(); w.Reason != "in_flight" || len(w.Also) != 1 || w.Also[0] != "seek_pending" {
		t.Errorf("of a message that is in flight: %v", w)
	}
}
