package frontend

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// losing is metadata that lose their majority after a number of changes. Notes for the audit and hints for controllers
// do not count.
type losing struct {
	metadata.Store
	majority metadata.Majority
	mu       struct {
		sync.Mutex
		left    int // changes until the majority is lost; -1: it stays
		changed int
		lost    func() bool // it is lost, too; nil: it is not
	}
}

func (s *losing) Majority() *metadata.Majority { return &s.majority }

// lose has the majority lost after some changes, and forgets those of before.
func (s *losing) lose(after int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.left, s.mu.changed = after, 0
}

func (s *losing) changed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.changed
}

func (s *losing) answer(c metadata.Consistency) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != metadata.One && (s.mu.left == 0 || s.mu.lost != nil && s.mu.lost()) {
		return core.Errorf(core.CodeUnavailable, "too few copies answer")
	}
	return nil
}

func (s *losing) change(t metadata.Table, do func() error) error {
	if err := s.answer(metadata.Quorum); err != nil {
		return err
	}
	err := do()
	if err == nil && t != metadata.Audit && t != metadata.Work {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.changed++
		if s.mu.left > 0 {
			s.mu.left--
		}
	}
	return err
}

func (s *losing) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := s.answer(c); err != nil {
		return metadata.Row{}, err
	}
	return s.Store.Get(ctx, t, k, c)
}

func (s *losing) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := s.answer(c); err != nil {
		return nil, false, err
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

func (s *losing) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return s.change(t, func() error { return s.Store.Insert(ctx, t, k, value) })
}

func (s *losing) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return s.change(t, func() error { return s.Store.Update(ctx, t, k, old, value, ttl) })
}

func (s *losing) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return s.change(t, func() error { return s.Store.Delete(ctx, t, k, old) })
}

func (s *losing) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.change(t, func() error { return s.Store.Put(ctx, t, k, value, at, ttl, c) })
}

func (s *losing) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return s.change(t, func() error { return s.Store.Remove(ctx, t, k, at, c) })
}

// stepsCase is a command of several steps.
type stepsCase struct {
	limited bool // the namespace may have two queues
	do      func(*testing.T, *harness) error
	again   core.Code                       // what the command answers when it is run again after it was done
	always  bool                            // or when it had some steps to do
	done    func(*testing.T, *harness) bool // it has done all of its steps
	stands  string                          // part of the sentence after each first step
}

func pathFree(path string) func(*testing.T, *harness) bool {
	return func(t *testing.T, c *harness) bool {
		name, _, err := metadata.Read[metadata.NameRecord](t.Context(), c.store, metadata.Names, metadata.NameKey(path), metadata.Serial)
		return core.CodeOf(err) == core.CodeNotFound || err == nil && name.Queue.IsZero()
	}
}

// hasQueue looks at the rows: to ask for a half-made queue finishes it.
func hasQueue(path string, replicas int) func(*testing.T, *harness) bool {
	return func(t *testing.T, c *harness) bool {
		name, _, err := metadata.Read[metadata.NameRecord](t.Context(), c.store, metadata.Names, metadata.NameKey(path), metadata.Serial)
		if err != nil {
			return false
		}
		q, _, err := metadata.Read[metadata.QueueRecord](t.Context(), c.store, metadata.Queues, metadata.QueueKey(name.Queue), metadata.Serial)
		return err == nil && q.Spec.Replicas == replicas && q.Spec.Status == core.StatusEnabled
	}
}

var stepsCases = map[string]stepsCase{
	"create queue": {
		do: func(t *testing.T, c *harness) error {
			return asks(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/new", MaxMessage: 99}})()
		},
		again: core.CodeExists, done: hasQueue("/t/new", 1), stands: "queue /t/new is half made",
	},
	"create the last queue of a namespace": {
		limited: true,
		do: func(t *testing.T, c *harness) error {
			return asks(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/new"}})()
		},
		again: core.CodeExists, done: hasQueue("/t/new", 1), stands: "queue /t/new",
	},
	"update queue": {
		do: func(t *testing.T, c *harness) error {
			return asks(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Replicas: 2, MinReplicas: 1}, Fields: []string{"replicas", "min_replicas"}})()
		},
		done: hasQueue("/t/a/g.dlq", 2), stands: "queue /t/a is changed",
	},
	"delete queue": {
		do: func(t *testing.T, c *harness) error {
			return asks(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"})()
		},
		again: core.CodeNotFound, done: pathFree("/t/a"), stands: "queue /t/a is deleted",
	},
	"delete group": {
		do: func(t *testing.T, c *harness) error {
			return asks(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"})()
		},
		again: core.CodeNotFound, always: true, done: pathFree("/t/a/g.dlq"), stands: "group g of queue /t/a is deleted",
	},
	"create group": {
		do: func(t *testing.T, c *harness) error {
			return asks(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "h"}})()
		},
		again: core.CodeExists, stands: "group h of queue /t/a is half made",
		done: func(t *testing.T, c *harness) bool {
			_, err := call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a", Name: "h"})
			return err == nil
		},
	},
}

// TestSteps_MajorityLostInBetween: the majority is lost after each number of changes. A command that has changed
// something does not say that nothing was done, but what stands, and does the rest when it is run again.
func TestSteps_MajorityLostInBetween(t *testing.T) {
	for name, x := range stepsCases {
		for after := 0; after < 8; after++ {
			t.Run(fmt.Sprintf("%s/%d", name, after), func(t *testing.T) { x.run(t, after) })
		}
	}
}

func (x stepsCase) run(t *testing.T, after int) {
	store := &losing{Store: memory.New()}
	store.lose(-1)
	c := newHarness(t, store)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	if x.limited {
		must(call(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MaxQueues: 2}}))(t)
	}
	store.lose(after)
	err := x.do(t, c)
	changed := store.changed()
	store.lose(-1)
	switch {
	case err == nil:
		if !x.done(t, c) {
			t.Error("it was not done, and said so of none of its steps")
		}
		return
	case changed == 0:
		wantCode(t, "before the first change", err, core.CodeNoMajority)
	default:
		wantCode(t, fmt.Sprintf("after %d changes", changed), err, core.CodeUnknown)
		if !strings.Contains(err.Error(), x.stands) || !strings.Contains(err.Error(), "; ") || !strings.Contains(err.Error(), "again") {
			t.Errorf("does not say that %q, or what to do: %v", x.stands, err)
		}
	}
	wasDone := x.done(t, c)
	if err = x.do(t, c); err != nil && (core.CodeOf(err) != x.again || !wasDone && !x.always) {
		t.Errorf("run again: %v", err)
	}
	if !x.done(t, c) {
		t.Error("it is not done after it was run again")
	}
}

// TestSteps_MajorityLostAfterTheController: a controller has done what it was asked for, and the majority is lost
// before the frontend reads what came of it. The answer says that it was done.
func TestSteps_MajorityLostAfterTheController(t *testing.T) {
	store := &losing{Store: memory.New()}
	store.lose(-1)
	c := newHarness(t, store)
	c.createQueue("/t/a")
	e := newExtent(c.createGroup("/t/a", "g"))
	c.addExtent(e)
	id := core.NewID(time.Now())
	running := metadata.OperationRecord{ID: id, Kind: metadata.OperationPurge, Path: "/t/a", State: metadata.OperationRunning}
	if err := metadata.Create(t.Context(), store, metadata.Operations, metadata.OperationKey(id), running); err != nil {
		t.Fatal(err)
	}
	calls := func() int {
		c.ctl.mu.Lock()
		defer c.ctl.mu.Unlock()
		return len(c.ctl.mu.asked)
	}
	for what, x := range map[string]struct {
		do     func() error
		stands string
	}{
		"seek":   {asks(t, c.admin.SeekGroup, &pb.SeekGroupRequest{Queue: "/t/a", Group: "g", To: "earliest"}), "the seek of group g was begun"},
		"purge":  {asks(t, c.admin.StartOperation, &pb.StartOperationRequest{Kind: "purge", Queue: "/t/a"}), "was begun"},
		"cancel": {asks(t, c.admin.CancelOperation, &pb.CancelOperationRequest{Id: id.String()}), "was cancelled"},
	} {
		before := calls()
		store.mu.Lock()
		store.mu.lost = func() bool { return calls() > before }
		store.mu.Unlock()
		err := x.do()
		wantCode(t, what, err, core.CodeUnknown)
		if err != nil && !strings.Contains(err.Error(), x.stands) {
			t.Errorf("%s: %v", what, err)
		}
		store.mu.Lock()
		store.mu.lost = nil
		store.mu.Unlock()
	}
}
