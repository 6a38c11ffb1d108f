package outputhost

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// TestLimitRetries: groups that are told of are at their limit, others are not, and the next call replaces this one.
func TestLimitRetries(t *testing.T) {
	b := newHarness(t)
	record, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	b.seesControllers("a")
	run := b.deps.Members.Self().Run
	call := func(req *pb.LimitRetriesRequest) core.Code {
		_, err := (&service{b.Host}).LimitRetries(t.Context(), connect.NewRequest(req))
		return core.CodeOf(convert.FromRPC(err))
	}
	told := func(groups ...*pb.GroupRetries) *pb.LimitRetriesRequest {
		return &pb.LimitRetriesRequest{Run: run.ID[:], Groups: groups, Hosts: 2, Controller: "a"}
	}
	reached := func() bool {
		g := b.groupList()[0]
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.mu.rules.RetryLimit().Reached
	}
	full := &pb.GroupRetries{Group: record.ID.ID[:], Retries: core.DefaultMaxDelayedRetries, Owners: 2}
	if code := call(told(full)); code != "" || !reached() {
		t.Errorf("%q; reached: %v", code, reached())
	}
	other := core.NewID(b.deps.Now())
	if code := call(&pb.LimitRetriesRequest{Run: other[:], Controller: "a"}); code != core.CodeStale || !reached() {
		t.Errorf("of another run: %q; reached: %v", code, reached())
	}
	if code := call(told(&pb.GroupRetries{Group: []byte("x")})); code != core.CodeBadID || !reached() {
		t.Errorf("of no group: %q; reached: %v", code, reached())
	}
	if code := call(told(make([]*pb.GroupRetries, maxRetryCounts+1)...)); code != core.CodeTooLarge || !reached() {
		t.Errorf("of too many: %q; reached: %v", code, reached())
	}
	if code := call(told()); code != "" || reached() {
		t.Errorf("of none: %q; reached: %v", code, reached())
	}
}

// seesControllers has the host see controllers beside itself.
func (b *harness) seesControllers(ids ...core.HostID) {
	b.t.Helper()
	all := []membership.Host{b.deps.Members.Self()}
	for _, id := range ids {
		all = append(all, membership.Host{ID: id, Roles: []string{"controller"}, Address: string(id) + ":1", Run: core.RunID{ID: core.NewID(time.Now())}})
	}
	if err := b.deps.Members.(*static.Monitor).Set(all); err != nil {
		b.t.Fatal(err)
	}
}

// TestLimitRetries_OfNoController: a caller that is not among the controllers does not count for a group. The count of
// the controller stands.
func TestLimitRetries_OfNoController(t *testing.T) {
	b := newHarness(t)
	record, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	b.seesControllers("a")
	run := b.deps.Members.Self().Run
	for _, name := range []string{"evil", "out", ""} {
		req := &pb.LimitRetriesRequest{Run: run.ID[:], Groups: []*pb.GroupRetries{{Group: record.ID.ID[:], Retries: math.MaxUint64, Owners: 1}}, Hosts: 1, Controller: name}
		_, err := (&service{b.Host}).LimitRetries(t.Context(), connect.NewRequest(req))
		if code := core.CodeOf(convert.FromRPC(err)); code != core.CodeStale {
			t.Errorf("%q may count: %v", name, err)
		}
	}
	g := b.groupList()[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.rules.RetryLimit().Reached || g.mu.counter != nil {
		t.Errorf("the limit is reached: %v; counted by %+v", g.mu.rules.RetryLimit().Reached, g.mu.counter)
	}
}

// TestMadeNow: a group that was just made has no retries, and the host has the part of one of the output hosts that it
// knows of. Of one that was made before it knows nothing, until it is told.
func TestMadeNow(t *testing.T) {
	for _, age := range []time.Duration{0, madeNow + time.Second} {
		b := newHarness(t)
		if age > 0 {
			b.deps.Now = func() time.Time { return time.Now().Add(age) }
		}
		g, s := b.share(1, 1)
		g.mu.Lock()
		if err := s.rules.Nack(1, 1, 0, nil, 0, b.deps.Now()); err != nil {
			t.Fatal(err)
		}
		l := g.mu.rules.RetryLimit()
		g.mu.Unlock()
		if one := l.Retries == 1; one != (age == 0) {
			t.Errorf("made %s ago, one message has failed: %d retries are known", age, l.Retries)
		}
	}
}

// TestLimitRetries_OfTheControllerThatCounts: a second controller, which does not count the group, tells nothing of it.
// That takes nothing back, but for a while after the one that counts has told last. One that hands the group over says
// so.
func TestLimitRetries_OfTheControllerThatCounts(t *testing.T) {
	b := newHarness(t)
	record, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	b.seesControllers("a", "b")
	var ahead atomic.Int64
	b.deps.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	run := b.deps.Members.Self().Run
	tells := func(controller string, left bool, groups ...*pb.GroupRetries) {
		t.Helper()
		req := &pb.LimitRetriesRequest{Run: run.ID[:], Groups: groups, Hosts: 1, Controller: controller}
		if left {
			req.Left = [][]byte{record.ID.ID[:]}
		}
		if _, err := (&service{b.Host}).LimitRetries(t.Context(), connect.NewRequest(req)); err != nil {
			t.Fatal(err)
		}
	}
	reached := func(what string, want bool) {
		t.Helper()
		g := b.groupList()[0]
		g.mu.Lock()
		defer g.mu.Unlock()
		if got := g.mu.rules.RetryLimit().Reached; got != want {
			t.Errorf("%s: the limit is reached: %v, want %v", what, got, want)
		}
	}
	full := &pb.GroupRetries{Group: record.ID.ID[:], Retries: core.DefaultMaxDelayedRetries, Owners: 1}
	tells("a", false, full)
	tells("b", false)
	reached("another one tells nothing", true)
	tells("a", false)
	reached("it has few", false)
	tells("a", false, full)
	tells("a", true)
	tells("a", false)
	tells("b", false)
	reached("it was handed over", true)
	tells("b", false, full)
	tells("a", true)
	tells("b", false)
	reached("the new one counts few", false)
	tells("a", false, full)
	ahead.Store(int64(dispatch.RetriesKnownFor))
	tells("b", false)
	reached("nobody has told of it for long", false)
}
