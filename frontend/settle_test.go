package frontend

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

func (c *harness) token(g *pb.Group, e core.Extent, seq core.Seq) string {
	c.t.Helper()
	keys, err := metadata.TokenKeys(c.t.Context(), c.store, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	return deliverytoken.Token{Queue: e.Queue, Group: groupID(g), Extent: e.ID, Seq: seq, Attempt: 1}.Seal(keys)
}

func TestSettle_EachVerb(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	tok := c.token(g, newExtent(g), 1)
	must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{tok}}))(t)
	must(call(t, c.msgs.Nack, &pb.NackRequest{Tokens: []string{tok}, Reason: "why"}))(t)
	must(call(t, c.msgs.Nack, &pb.NackRequest{Tokens: []string{tok}, Delay: durationpb.New(0)}))(t)
	must(call(t, c.msgs.Reject, &pb.RejectRequest{Tokens: []string{tok}, Reason: "bad"}))(t)
	must(call(t, c.msgs.Extend, &pb.ExtendRequest{Tokens: []string{tok}, By: durationpb.New(time.Minute)}))(t)
	got := c.out.settled()
	verbs := make([]string, len(got))
	for i, r := range got {
		verbs[i] = r.Verb
	}
	if !slices.Equal(verbs, []string{"ack", "nack", "nack", "reject", "extend"}) {
		t.Fatalf("got %v", verbs)
	}
	if got[1].Delay != nil || got[1].Reason != "why" || got[2].Delay == nil || got[3].Reason != "bad" || got[4].Delay.AsDuration() != time.Minute {
		t.Errorf("delay or reason changed on the way: %v", got)
	}
}

// TestSettle_ARepeatedTokenIsAppliedOnce, so that its second place in the call is not refused as stale.
func TestSettle_ARepeatedTokenIsAppliedOnce(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	first, second := c.token(g, newExtent(g), 1), c.token(g, newExtent(g), 2)
	must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{first, second, first}}))(t)
	var got []string
	for _, r := range c.out.settled() {
		got = append(got, r.GetTokens()...)
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values([]string{first, second})); !slices.Equal(got, want) {
		t.Errorf("settled %d tokens, want each of 2 once", len(got))
	}
}

func TestSettle_BadTokensAreListedGoodOnesApply(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	good, stale := c.token(g, newExtent(g), 1), c.token(g, newExtent(g), 2)
	foreign := deliverytoken.Token{Seq: 1}.Seal(deliverytoken.Keys{Current: deliverytoken.NewKey()})
	bad := []string{"", "forged", good[:len(good)-1], foreign, strings.Repeat("A", 100_000), "\x00\n"}
	c.out.onSettle = func(r *pb.SettleRequest) (*pb.SettleResponse, error) {
		return &pb.SettleResponse{Failures: []*pb.SettleResponse_Failure{{Token: stale, Error: convert.ErrorToProto(core.ErrStale)}}}, nil
	}
	res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: append(bad, good, stale)}))(t)
	failed := make(map[string]core.Code)
	for _, f := range res.Failures {
		failed[f.Token] = core.Code(f.Error.Code)
	}
	for _, b := range bad {
		if failed[b] != core.CodeBadToken {
			t.Errorf("%.20q: got %q, want bad_token", b, failed[b])
		}
	}
	if len(failed) != len(bad)+1 || failed[stale] != core.CodeStale {
		t.Errorf("got %v", failed)
	}
	if got := c.out.settled(); len(got) != 1 || !slices.Equal(got[0].Tokens, []string{good, stale}) {
		t.Errorf("forwarded %v", got)
	}
}

func TestSettle_GoesToTheOwners(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	b := c.addOutput("b")
	e1, e2 := newExtent(g), newExtent(g)
	c.assign(g, e1, 1, "a")
	c.assign(g, e2, 1, "b")
	t1, t2, t3 := c.token(g, e1, 1), c.token(g, e2, 1), c.token(g, e1, 2)
	if res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{t1, t2, t3}}))(t); len(res.Failures) > 0 {
		t.Fatalf("failed: %v", res.Failures)
	}
	if got := c.out.settled(); len(got) != 1 || !slices.Equal(got[0].Tokens, []string{t1, t3}) {
		t.Errorf("host a got %v", got)
	}
	if got := b.settled(); len(got) != 1 || !slices.Equal(got[0].Tokens, []string{t2}) {
		t.Errorf("host b got %v", got)
	}
}

// A token of a queue that was deleted is stale: to try it again is no use.
func TestSettle_QueueDeleted(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	e := newExtent(g)
	c.addExtent(e)
	tok := c.token(g, e, 1)
	c.out.onSettle = func(*pb.SettleRequest) (*pb.SettleResponse, error) {
		return &pb.SettleResponse{Failures: []*pb.SettleResponse_Failure{{Token: tok, Error: convert.ErrorToProto(core.ErrMoved)}}}, nil
	}
	settle := func() core.Code {
		res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{tok}}))(t)
		if len(res.Failures) != 1 {
			t.Fatalf("got %v, want one failure", res)
		}
		return core.Code(res.Failures[0].Error.Code)
	}
	if code := settle(); code != core.CodeMoved {
		t.Errorf("while the queue is there: %s", code)
	}
	must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t)
	if code := settle(); code != core.CodeStale {
		t.Errorf("of a deleted queue: %s", code)
	}
}

// A token of a group that was deleted is stale at once, though another group has its name by now.
func TestSettle_GroupDeleted(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	e := newExtent(g)
	c.addExtent(e)
	tok := c.token(g, e, 1)
	asked := 0
	c.out.onSettle = func(*pb.SettleRequest) (*pb.SettleResponse, error) {
		asked++
		return &pb.SettleResponse{Failures: []*pb.SettleResponse_Failure{{Token: tok, Error: convert.ErrorToProto(core.ErrMoved)}}}, nil
	}
	must(call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"}))(t)
	c.createGroup("/t/a", "g")
	res := must(call(t, c.msgs.Nack, &pb.NackRequest{Tokens: []string{tok}}))(t)
	if len(res.Failures) != 1 || core.Code(res.Failures[0].Error.Code) != core.CodeStale || asked != 1 {
		t.Errorf("got %v after %d calls, want stale after one", res, asked)
	}
}

func TestSettle_HostFails(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	tok := c.token(g, newExtent(g), 1)
	settle := func() core.Code {
		res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{tok}}))(t)
		if len(res.Failures) != 1 || res.Failures[0].Token != tok {
			t.Fatalf("got %v, want one failure", res)
		}
		return core.Code(res.Failures[0].Error.Code)
	}
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	set := func(addr string) {
		self := c.members.Self()
		self.Roles = []string{"frontend"}
		out := membership.Host{ID: "b", Roles: []string{"outputhost"}, Address: addr}
		if err := c.members.Set([]membership.Host{self, out}); err != nil {
			t.Fatal(err)
		}
	}
	set(cut.Listener.Addr().String())
	if got := settle(); got != core.CodeUnknown {
		t.Errorf("answer lost: got %q, want unknown_outcome", got)
	}
	cut.Close()
	if got := settle(); got != core.CodeUnavailable {
		t.Errorf("never connected: got %q, want unavailable", got)
	}
	c.members.Set([]membership.Host{{ID: "a", Roles: []string{"frontend"}}})
	if got := settle(); got != core.CodeUnavailable {
		t.Errorf("no host: got %q, want unavailable", got)
	}
}

func TestSettle_RefusesBadRequests(t *testing.T) {
	c := newHarness(t, nil)
	long := strings.Repeat("x", 1025)
	hours := durationpb.New(13 * time.Hour)
	check := func(name string, err error, code core.Code) { t.Helper(); wantCode(t, name, err, code) }
	_, err := call(t, c.msgs.Ack, &pb.AckRequest{})
	check("no token", err, core.CodeBadArgument)
	_, err = call(t, c.msgs.Ack, &pb.AckRequest{Tokens: make([]string, 1001)})
	check("1001 tokens", err, core.CodeBadArgument)
	_, err = call(t, c.msgs.Nack, &pb.NackRequest{Tokens: []string{"x"}, Delay: hours})
	check("delay of 13 hours", err, core.CodeBadArgument)
	_, err = call(t, c.msgs.Nack, &pb.NackRequest{Tokens: []string{"x"}, Delay: durationpb.New(-1)})
	check("negative delay", err, core.CodeBadArgument)
	_, err = call(t, c.msgs.Nack, &pb.NackRequest{Tokens: []string{"x"}, Delay: &durationpb.Duration{Seconds: 1, Nanos: -5}})
	check("malformed delay", err, core.CodeBadArgument)
	_, err = call(t, c.msgs.Nack, &pb.NackRequest{Tokens: []string{"x"}, Reason: long})
	check("long reason", err, core.CodeTooLarge)
	_, err = call(t, c.msgs.Reject, &pb.RejectRequest{Tokens: []string{"x"}, Reason: long})
	check("long reject reason", err, core.CodeTooLarge)
	_, err = call(t, c.msgs.Extend, &pb.ExtendRequest{Tokens: []string{"x"}})
	check("extend by nothing", err, core.CodeBadArgument)
	_, err = call(t, c.msgs.Extend, &pb.ExtendRequest{Tokens: []string{"x"}, By: hours})
	check("extend by 13 hours", err, core.CodeBadArgument)
}

func TestSettle_SeesRotatedKeys(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	now := time.Now()
	c.host.svc.now = func() time.Time { return now }
	_, err := metadata.Change(t.Context(), c.store, metadata.Settings, metadata.SettingKey("ack-token-keys"), func(r *metadata.TokenKeysRecord) error {
		r.Previous, r.Current = r.Current, deliverytoken.NewKey()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	req := &pb.AckRequest{Tokens: []string{c.token(g, newExtent(g), 1)}}
	if res := must(call(t, c.msgs.Ack, req))(t); len(res.Failures) != 1 {
		t.Errorf("the keys were read again at once: %v; forged tokens must not cause a read each", res)
	}
	now = now.Add(keysEvery)
	if res := must(call(t, c.msgs.Ack, req))(t); len(res.Failures) > 0 {
		t.Errorf("after %s: %v", keysEvery, res.Failures)
	}
}

// TestSettle_FollowsAShareThatMoves has the old owner refuse, and the new one answer.
func TestSettle_FollowsAShareThatMoves(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	b := c.addOutput("b")
	e := newExtent(g)
	c.assign(g, e, 1, "a")
	c.out.onSettle = func(r *pb.SettleRequest) (*pb.SettleResponse, error) {
		c.assign(g, e, 2, "b")
		out := &pb.SettleResponse{}
		for _, tok := range r.Tokens {
			out.Failures = append(out.Failures, failure(tok, core.Errorf(core.CodeMoved, "not here")))
		}
		return out, nil
	}
	if res := must(call(t, c.msgs.Ack, &pb.AckRequest{Tokens: []string{c.token(g, e, 1)}}))(t); len(res.Failures) > 0 || len(b.settled()) != 1 {
		t.Errorf("failures %v, %d calls to the new owner", res.Failures, len(b.settled()))
	}
	_, err := call(t, c.msgs.Reject, &pb.RejectRequest{Tokens: []string{c.token(g, e, 1)}})
	wantCode(t, "a reject without a reason", err, core.CodeBadArgument)
}
