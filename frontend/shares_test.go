package frontend

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// countedStore counts reads, and fails them while it is away.
type countedStore struct {
	metadata.Store
	lists, rows atomic.Int64
	away        atomic.Bool
}

var errMetadataAway = core.Errorf(core.CodeUnavailable, "the metadata are away")

func (s *countedStore) List(ctx context.Context, t metadata.Table, p, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if s.away.Load() {
		return nil, false, errMetadataAway
	}
	rows, more, err := s.Store.List(ctx, t, p, after, limit, c)
	s.lists.Add(1)
	s.rows.Add(int64(len(rows)))
	return rows, more, err
}

func (s *countedStore) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if s.away.Load() {
		return metadata.Row{}, errMetadataAway
	}
	return s.Store.Get(ctx, t, k, c)
}

// since tells the reads since the last call.
func (s *countedStore) since() (lists, rows int64) { return s.lists.Swap(0), s.rows.Swap(0) }

func (c *harness) consumed(g *pb.Group, e core.Extent) {
	c.t.Helper()
	if err := metadata.Write(c.t.Context(), c.store, metadata.Dones, metadata.DoneKey(groupID(g), e.ID, 0), metadata.DoneRecord{L: 1}, time.Now(), 0, metadata.One); err != nil {
		c.t.Fatal(err)
	}
}

// twoOwners is a group with a share on each of two hosts, and with shares that it has consumed.
func twoOwners(t *testing.T, consumed int) (c *harness, s *countedStore, b *fakeOutput, g *pb.Group, e core.Extent) {
	s = &countedStore{Store: memory.New()}
	c = newHarness(t, s)
	c.createQueue("/t/a")
	g = c.createGroup("/t/a", "g")
	b = c.addOutput("b")
	for range consumed {
		old := newExtent(g)
		c.assign(g, old, 1, "a")
		c.consumed(g, old)
	}
	e = newExtent(g)
	c.assign(g, e, 1, "a")
	c.assign(g, newExtent(g), 1, "b")
	return c, s, b, g, e
}

func TestShares_AnAckDoesNotReadWhatTheGroupHasConsumed(t *testing.T) {
	c, s, _, g, e := twoOwners(t, 300)
	s.since()
	for seq := range core.Seq(100) {
		must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{c.token(g, e, seq+1)}}))(t)
	}
	if lists, rows := s.since(); lists > 5 || rows > 20 { // one each ownerFresh, of the owner alone
		t.Errorf("100 acks made %d lists of %d rows, want at most 5 of 20", lists, rows)
	}
}

func TestShares_WaitingPullsReadConsumedExtentsOnce(t *testing.T) {
	const done = 300
	c, s, b, _, _ := twoOwners(t, done)
	waits := func(ctx context.Context, r *pb.PullRequest) (*pb.PullResponse, error) {
		select {
		case <-time.After(r.Wait.AsDuration()):
		case <-ctx.Done():
		}
		return &pb.PullResponse{}, nil
	}
	c.out.onPull, b.onPull = waits, waits
	s.since()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			must(call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(2 * time.Second)}))(t)
		})
	}
	wg.Wait()
	// Each reads its queue and group, in a few rows. The shares are read about once a second for all.
	if lists, rows := s.since(); rows > 6*done {
		t.Errorf("20 pulls for 2 s made %d lists of %d rows, want at most %d rows", lists, rows, 6*done)
	}
	key := groupEpoch{}
	read := func(old groupShares) groupShares {
		t.Helper()
		out, err := c.host.svc.readShares(t.Context(), key, old)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	g := must(call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	key.group = groupID(g)
	c.consumedAll(g)
	first := read(groupShares{})
	s.since()
	second := read(first)
	if lists, rows := s.since(); len(first.owners) > 0 || len(first.consumed) != done+2 || lists > 3 || rows > done+5 {
		t.Errorf("the second read of an idle group: %d lists of %d rows after %d consumed extents, want the assignments alone", lists, rows, len(first.consumed))
	}
	if !slices.Equal(first.consumed, second.consumed) {
		t.Error("the second read knows other consumed extents than the first")
	}
}

// consumedAll has the group consume all that it is assigned.
func (c *harness) consumedAll(g *pb.Group) {
	c.t.Helper()
	all, err := metadata.Assigned(c.t.Context(), c.store, groupID(g), metadata.One)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range all {
		c.consumed(g, a.Extent)
	}
}

func TestShares_AnAckWorksWhileTheMetadataAreAway(t *testing.T) {
	c, s, b, g, e := twoOwners(t, 0)
	other := newExtent(g) // of which a pull tells
	c.assign(g, other, 1, "b")
	b.onPull = func(context.Context, *pb.PullRequest) (*pb.PullResponse, error) {
		return &pb.PullResponse{Messages: []*pb.PulledMessage{{Receipt: core.Receipt{Extent: other.ID, Seq: 1}.String()}}}, nil
	}
	c.out.onPull = none
	must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{c.token(g, e, 1)}}))(t)
	must(call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(time.Second)}))(t)
	first, second, third := c.token(g, e, 2), c.token(g, other, 1), c.token(g, newExtent(g), 1)
	s.away.Store(true)
	later := time.Now().Add(time.Minute)
	c.host.svc.now = func() time.Time { return later }
	if res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{first, second}}))(t); len(res.Failures) > 0 {
		t.Errorf("a minute without metadata: %v", res.Failures)
	}
	if got := b.settled(); len(got) != 1 || !slices.Equal(got[0].Tokens, []string{second}) {
		t.Errorf("host b got %v", got)
	}
	late := later.Add(sharesStale + 1)
	c.host.svc.now = func() time.Time { late = late.Add(settleRetry); return late }
	for _, tok := range []string{first, third} {
		res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{tok}}))(t)
		if len(res.Failures) != 1 || core.Code(res.Failures[0].Error.Code) != core.CodeUnavailable {
			t.Errorf("nothing is known of the owner: %v, want unavailable", res.Failures)
		}
	}
}

func TestShares_AMovedShareIsFoundAgainAtOnce(t *testing.T) {
	c, s, b, g, e := twoOwners(t, 0)
	var asked atomic.Int32
	must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{c.token(g, e, 1)}}))(t)
	c.out.onSettle = func(r *pb.SettleRequest) (*pb.SettleResponse, error) {
		asked.Add(1)
		return &pb.SettleResponse{Failures: []*pb.SettleResponse_Failure{{Token: r.Tokens[0], Error: convert.ErrorToProto(core.ErrMoved)}}}, nil
	}
	c.assign(g, e, 2, "b")
	tok := c.token(g, e, 2)
	s.since()
	if res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{tok}}))(t); len(res.Failures) > 0 {
		t.Errorf("failed: %v", res.Failures)
	}
	if got := b.settled(); len(got) != 1 || !slices.Equal(got[0].Tokens, []string{tok}) || asked.Load() != 1 {
		t.Errorf("host b got %v, and the owner before was asked %d times, want once", got, asked.Load())
	}
	c.host.svc.known.owners.Outdate(share{groupID(g), e.ID}, time.Time{}) // an answer of before the read
	must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{tok}}))(t)
	if asked.Load() != 1 {
		t.Error("the frontend forgot the new owner")
	}
}
