package outputhost

import (
	"context"
	"math"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// TestToken_OfAnEarlierOwner settles, with tokens of a generation before, what this owner has inherited, and what it
// has handed out itself under the same attempt: there only an ack counts, as the delivery is another consumer's.
func TestToken_OfAnEarlierOwner(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 4)
	token := func(seq core.Seq) string {
		g.mu.Lock()
		defer g.mu.Unlock()
		return core.DeliveryToken(s.deliveryTokenLocked(1, 0, 0).SealExtent(b.keys), seq, 1)
	}
	tokens := []string{token(1), token(2), token(3), token(4)}
	settle := func(verb, token string) error {
		req := &pb.SettleRequest{Verb: verb, Delay: durationpb.New(time.Minute), Reason: "no"}
		return b.settleToken(t.Context(), req, token, map[core.ExtentID]bool{})
	}
	if err := settle("extend", tokens[0]); err != nil {
		t.Errorf("extend in the same generation: %v", err)
	}
	g.mu.Lock()
	s.generation++
	g.mu.Unlock()
	for _, verb := range []string{"nack", "reject", "extend", "return"} {
		if err := settle(verb, tokens[1]); core.CodeOf(err) != core.CodeStale {
			t.Errorf("%s of what this owner has handed out to another consumer: %v, want stale", verb, err)
		}
	}
	g.mu.Lock()
	state := s.rules.State(b.deps.Now())
	s.rules.Owner = nil
	g.mu.rules.RemoveShare(s.rules)
	s.rules = g.mu.rules.AddShare(s.extent.ID, state, b.deps.Now())
	s.rules.Owner = s
	g.mu.Unlock()
	for i, verb := range []string{"extend", "return", "nack", "reject"} {
		if err := settle(verb, tokens[i]); err != nil {
			t.Errorf("%s of what was inherited: %v", verb, err)
		}
	}
	if err := settle("ack", tokens[0]); err != nil {
		t.Errorf("ack: %v", err)
	}
	if s.inheritedLocked(2) || dispatch.EarlierSession == pullSession {
		t.Error("what was returned is inherited no more")
	}
}

// TestToken_OfADeliveryThatWasGivenBack gives a message back twice, since the first answer was lost. Meanwhile it was
// handed out again, under the same attempt, to another session, which keeps it.
func TestToken_OfADeliveryThatWasGivenBack(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 4)
	g.mu.Lock()
	tokens := map[string]string{
		"stream": core.DeliveryToken(s.deliveryTokenLocked(1, 0, 0).SealExtent(b.keys), 1, 1),
		"sealed": s.tokenLocked(1, 2, 1),
	}
	g.mu.Unlock()
	settle := func(verb, token string) error {
		req := &pb.SettleRequest{Verb: verb, Delay: durationpb.New(time.Minute), Reason: "no"}
		return b.settleToken(t.Context(), req, token, map[core.ExtentID]bool{})
	}
	for name, token := range tokens {
		if err := settle("return", token); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	g.mu.Lock()
	g.mu.rules.Want(dispatch.Credit{Messages: 2, Bytes: 1 << 20}, true)
	g.mu.rules.Take(2, dispatch.Credit{Messages: 2, Bytes: 1 << 20}, b.deps.Now(), nil)
	g.mu.Unlock()
	for name, token := range tokens {
		for _, verb := range []string{"return", "nack", "reject", "extend"} {
			if err := settle(verb, token); core.CodeOf(err) != core.CodeStale {
				t.Errorf("%s: %s of a delivery that was given back: %v, want stale", name, verb, err)
			}
		}
	}
	if n := g.mu.rules.InFlightOf(2); n != 2 {
		t.Errorf("the other session has %d messages, want its 2", n)
	}
}

// TestToken_OfAPullThatGaveItBack gives back twice what was pulled, since the first answer was lost. Meanwhile another
// pull got it, under the same attempt, and keeps it.
func TestToken_OfAPullThatGaveItBack(t *testing.T) {
	b := newHarness(t)
	g, s := b.given()
	b.offer(g, s, recordOf(t, "1"))
	pull := func() string {
		t.Helper()
		messages, err := g.takeForPull(t.Context(), 1)
		if err != nil || len(messages) != 1 || messages[0].Attempt != 1 {
			t.Fatalf("pulled %v, %v; want one message, as attempt 1", messages, err)
		}
		return messages[0].Token
	}
	settle := func(verb, token string) error {
		req := &pb.SettleRequest{Verb: verb, Delay: durationpb.New(time.Minute), Reason: "no"}
		return b.settleToken(t.Context(), req, token, map[core.ExtentID]bool{})
	}
	first := pull()
	if err := settle("return", first); err != nil {
		t.Fatal(err)
	}
	second := pull()
	for _, verb := range []string{"return", "nack", "reject", "extend"} {
		if err := settle(verb, first); core.CodeOf(err) != core.CodeStale {
			t.Errorf("%s of a pull that was given back: %v, want stale", verb, err)
		}
	}
	for _, verb := range []string{"extend", "nack"} {
		if err := settle(verb, second); err != nil {
			t.Errorf("%s of the pull that has the message: %v", verb, err)
		}
	}
}

// TestToken_OfAShareThatCameBack settles, by the tokens of the extents that its stream named, what a consumer was
// handed before the share was elsewhere, and what it was handed after that: its stream has been the same.
func TestToken_OfAShareThatCameBack(t *testing.T) {
	b := newHarness(t)
	_, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	c := &consumer{h: b.Host, id: 7, resumes: true}
	g.mu.Lock()
	g.mu.consumers = append(g.mu.consumers, c)
	g.mu.rules.Want(dispatch.Credit{Messages: 10, Bytes: 1 << 20}, true)
	g.mu.Unlock()
	names := make(map[uint32]string)     // by handle
	handles := make(map[core.Seq]uint32) // of what was delivered
	deliver := func(last int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		s := g.mu.shares[core.ExtentID{ID: core.ID(a.Extent.Id)}]
		records := dispatch.Records{Base: 1, Offsets: make([]uint32, last+1), Bytes: make([]byte, last*wire.RecordHeaderLen)}
		for i := range records.Offsets {
			records.Offsets[i] = uint32(i * wire.RecordHeaderLen)
		}
		if err := s.rules.Offer(records, b.deps.Now()); err != nil {
			t.Fatal(err)
		}
		runs := g.mu.rules.Take(c.id, dispatch.Credit{Messages: 4, Bytes: 1 << 20}, b.deps.Now(), nil)
		for _, d := range c.deliverLocked(runs, b.deps.Now(), nil) {
			for rest := append(d.head, d.records...); len(rest) > 0; {
				f, next, err := wire.NextFrame(rest)
				if err != nil {
					t.Fatal(err)
				}
				rest = next
				var name wire.Handle
				var in wire.Deliver
				switch {
				case f.Type == wire.TypeHandle && name.Decode(f.Body) == nil:
					names[name.Handle] = string(name.Token)
				case f.Type == wire.TypeDeliver && in.Decode(f.Body) == nil:
					for _, r := range in.Runs {
						for i := range r.Count {
							handles[r.Base+core.Seq(i)] = in.Handle
						}
					}
				}
			}
		}
	}
	deliver(4)
	a.Counter += 2
	if err := b.give(2, a); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.mu.rules.Want(dispatch.Credit{Messages: 10, Bytes: 1 << 20}, true)
	g.mu.Unlock()
	deliver(8)
	if len(handles) != 8 {
		t.Fatalf("%d messages were delivered, want 8", len(handles))
	}
	settle := func(verb string, seq core.Seq) {
		t.Helper()
		req := &pb.SettleRequest{Verb: verb, Delay: durationpb.New(time.Minute), Reason: "no"}
		if err := b.settleToken(t.Context(), req, core.DeliveryToken(names[handles[seq]], seq, 1), map[core.ExtentID]bool{}); err != nil {
			t.Errorf("%s of message %d: %v", verb, seq, err)
		}
	}
	for _, seq := range []core.Seq{1, 5} {
		for i, verb := range []string{"extend", "nack", "return", "ack"} {
			settle(verb, seq+core.Seq(i))
		}
	}
}

// TestToken_SettlesSoManyAtOnce: a call names at most as many tokens as one of the public API.
func TestToken_SettlesSoManyAtOnce(t *testing.T) {
	b := newHarness(t)
	settle := func(n int) error {
		_, err := (&service{b.Host}).Settle(t.Context(), connect.NewRequest(&pb.SettleRequest{Verb: "ack", Tokens: make([]string, n)}))
		return convert.FromRPC(err)
	}
	if err := settle(1000); err != nil {
		t.Errorf("1,000 tokens: %v", err)
	}
	if err := settle(1001); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("1,001 tokens: %v, want %s", err, core.CodeBadArgument)
	}
}

// TestToken_OfUnreadMessagesLeavesRoom: a consumer derives tokens of messages all over a long extent, which the new
// owner has not read. The checkpoint has room for so many acks of those only.
func TestToken_OfUnreadMessagesLeavesRoom(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 4)
	g.mu.Lock()
	defer g.mu.Unlock()
	s.last = 1 << 40
	token := deliverytoken.Token{Queue: g.queue, Group: g.id, Extent: s.extent.ID, Attempt: 1, Generation: s.generation - 1, Derived: true}
	ack := func(seq core.Seq) error {
		token.Seq = seq
		return s.settleTokenLocked(&pb.SettleRequest{Verb: "ack"}, token, b.deps.Now())
	}
	var err error
	acks := 0
	for ; err == nil && acks < 20_000; acks++ {
		err = ack(core.Seq(100 + 1_000_000*acks))
	}
	if core.CodeOf(err) != core.CodeUnavailable || acks < 1000 {
		t.Errorf("after %d acks: %v, want unavailable, and not before some thousand", acks, err)
	}
	if blob, _ := s.rules.Checkpoint(nil, false, b.deps.Now()); len(blob) > dispatch.MaxCheckpoint/2 {
		t.Errorf("the checkpoint has %d bytes", len(blob))
	}
	for _, seq := range []core.Seq{2, 7} { // in flight, and read
		if err := ack(seq); err != nil {
			t.Errorf("message %d, which was read here: %v", seq, err)
		}
	}
}

// remade is a store in which a group is deleted, and made again under its name, after its row was listed.
type remade struct {
	metadata.Store
	before []metadata.Row
}

func (r remade) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Groups {
		return r.before, false, nil
	}
	return r.Store.List(ctx, t, partition, after, limit, c)
}

// TestToken_OfAGroupThatIsMadeAgain: an ack with a token of the old group settles nothing of the new one, which has the
// same extents.
func TestToken_OfAGroupThatIsMadeAgain(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 4)
	old := metadata.GroupRecord{ID: core.GroupID{ID: core.ID{15: 1}}, Queue: g.queue, Spec: g.mu.record.Spec, Started: true}
	row, err := metadata.NewRow(metadata.Groups, metadata.GroupKey(g.queue, g.name), old, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	b.deps.Meta = remade{b.meta, []metadata.Row{row}}
	token := deliverytoken.Token{Queue: g.queue, Group: old.ID, Extent: s.extent.ID, Seq: 1, Attempt: 1, Generation: s.generation}
	err = b.settleToken(t.Context(), &pb.SettleRequest{Verb: "ack"}, token.Seal(b.keys), map[core.ExtentID]bool{})
	if core.CodeOf(err) != core.CodeStale || s.rules.Frontier() > 0 {
		t.Errorf("an ack for the old group: %v, and the new one has settled %d messages; want stale, and none", err, s.rules.Frontier())
	}
}

// TestToken_OfMessagesThatNobodyWasHanded acks, with the token of an extent from an earlier owner, messages that no
// owner can have handed out: they lie behind what is committed. The group gets each of them when it is published.
func TestToken_OfMessagesThatNobodyWasHanded(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 4)
	g.mu.Lock()
	s.last = 10
	extent := s.deliveryTokenLocked(1, 0, 0).SealExtent(b.keys)
	s.generation++
	g.mu.Unlock()
	ack := func(seq core.Seq) error {
		return b.settleToken(t.Context(), &pb.SettleRequest{Verb: "ack"}, core.DeliveryToken(extent, seq, 1), map[core.ExtentID]bool{})
	}
	if err := ack(10); err != nil {
		t.Errorf("ack of the last one that is committed: %v", err)
	}
	for _, seq := range []core.Seq{11, 13, 1 << 40, math.MaxUint64} {
		if err := ack(seq); err == nil {
			t.Errorf("ack of %d is taken, though the extent has 10 messages", seq)
		}
	}
	for seq := core.Seq(20); seq < 100_000; seq += 2 {
		_ = ack(seq)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := s.rules.Consumed(); n != 1 {
		t.Errorf("%d messages are settled, want 1", n)
	}
	if blob, _ := s.rules.Checkpoint(nil, false, b.deps.Now()); len(blob) > 1000 {
		t.Errorf("the checkpoint has %d bytes", len(blob))
	}
}
