package outputhost

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// TestLimitRetries: groups that are told of are at their limit, others are not, and the next call replaces this one.
func TestLimitRetries(t *testing.T) {
	b := newHarness(t)
	record, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	run := b.deps.Members.Self().Run
	call := func(req *pb.LimitRetriesRequest) core.Code {
		_, err := (&service{b.Host}).LimitRetries(t.Context(), connect.NewRequest(req))
		return core.CodeOf(convert.FromRPC(err))
	}
	told := func(groups ...*pb.GroupRetries) *pb.LimitRetriesRequest {
		return &pb.LimitRetriesRequest{Run: run.ID[:], Groups: groups, Hosts: 2}
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
	if code := call(&pb.LimitRetriesRequest{Run: other[:]}); code != core.CodeStale || !reached() {
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
