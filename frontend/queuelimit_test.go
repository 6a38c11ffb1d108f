package frontend

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// counting is a store that counts the rows of names that are listed. A list of them takes 100 ms of the clock.
type counting struct {
	metadata.Store
	rows, serial atomic.Int64
	ahead        atomic.Int64 // of the clock
	refused      func(k metadata.Key)
}

func (s *counting) List(ctx context.Context, t metadata.Table, p, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	rows, more, err := s.Store.List(ctx, t, p, after, limit, c)
	if t == metadata.Names {
		s.rows.Add(int64(len(rows)))
		s.ahead.Add(int64(100 * time.Millisecond))
		if c == metadata.Serial {
			s.serial.Add(int64(len(rows)))
		}
	}
	return rows, more, err
}

func (s *counting) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	err := s.Store.Insert(ctx, t, k, value)
	if core.CodeOf(err) == core.CodeExists && t == metadata.Names && s.refused != nil {
		s.refused(k)
	}
	return err
}

func newCounting(t *testing.T) (*harness, *counting) {
	s := &counting{Store: memory.New()}
	c := newHarness(t, s)
	began := time.Now()
	c.host.svc.now = func() time.Time { return began.Add(time.Duration(s.ahead.Load())) }
	return c, s
}

// names adds names of queues to namespace /t.
func (c *harness) names(n int) {
	c.t.Helper()
	for i := range n {
		path := fmt.Sprintf("/t/there%d", i)
		name := metadata.NameRecord{Queue: core.QueueID{ID: core.NewID(time.Now())}, Spec: core.QueueSpec{Path: path}.WithDefaults(1, 1)}
		if err := metadata.Create(c.t.Context(), c.store, metadata.Names, metadata.NameKey(path), name); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *harness) limitQueues(most int64) {
	c.t.Helper()
	must(call(c.t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MaxQueues: most}}))(c.t)
}

// TestNamespaces_QueuesFarBelowTheLimit are counted once for a hundred creations, and no count asks for a Paxos read of
// each name.
func TestNamespaces_QueuesFarBelowTheLimit(t *testing.T) {
	c, s := newCounting(t)
	const there, made = 1500, 150
	c.names(there)
	c.limitQueues(there + farBelow + made)
	for i := range made {
		c.createQueue(fmt.Sprintf("/t/q%d", i))
	}
	if n := s.rows.Load(); n > 3*(there+made+10) {
		t.Errorf("%d names were read for %d creations beside %d queues", n, made, there)
	}
	if n := s.serial.Load(); n > 0 {
		t.Errorf("%d names were read at SERIAL", n)
	}
	s.rows.Store(0)
	s.ahead.Add(int64(mostCountHolds))
	c.createQueue("/t/later")
	if n := s.rows.Load(); n < there {
		t.Errorf("%d names were read when the count was old", n)
	}
}

// TestNamespaces_QueuesNearTheLimit are counted once for each creation, and there are never more.
func TestNamespaces_QueuesNearTheLimit(t *testing.T) {
	c, s := newCounting(t)
	const there, room, made = 1200, 6, 20
	c.names(there)
	c.limitQueues(there + room)
	var wg sync.WaitGroup
	var ok, refused atomic.Int64
	for i := range made {
		wg.Go(func() {
			_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: fmt.Sprintf("/t/q%d", i)}})
			switch core.CodeOf(err) {
			case "":
				ok.Add(1)
			case core.CodeConflict:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ok.Load() != room || refused.Load() != made-room {
		t.Errorf("%d were made and %d refused, want %d and %d", ok.Load(), refused.Load(), room, made-room)
	}
	if n := s.rows.Load(); n > (made+2)*(there+room+10) {
		t.Errorf("%d names were read for %d creations beside %d queues", n, made, there)
	}
	if n := must(call(t, c.admin.GetNamespace, &pb.GetNamespaceRequest{Name: "/t"}))(t); n.Queues != there+room {
		t.Errorf("there are %d queues, want %d", n.Queues, there+room)
	}
}

// named is a store that calls a function once, after a name of a queue was written.
type named struct {
	metadata.Store
	then func()
}

func (s *named) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	err := s.Store.Insert(ctx, t, k, value)
	if then := s.then; then != nil && t == metadata.Names {
		s.then = nil
		then()
	}
	return err
}

// TestNamespaces_QueueOfTwoFrontendsStays: one frontend writes the name, another one makes the queue and answers, and
// then the first one counts too many.
func TestNamespaces_QueueOfTwoFrontendsStays(t *testing.T) {
	store := &named{Store: memory.New()}
	both := twoFrontends(t, store)
	both[0].limitQueues(1)
	var made *pb.Queue
	store.then = func() {
		made = both[1].createQueue("/t/a")
		must(call(t, both[1].admin.UpdateNamespace, &pb.UpdateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MaxQueues: 2}}))(t)
		both[1].createQueue("/t/c")
	}
	q, err := call(t, both[0].admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}})
	if err != nil || q.GetId() != made.GetId() {
		t.Errorf("the first frontend answers %q, %v; the other one has made %q", q.GetId(), err, made.GetId())
	}
	if now := must(call(t, both[0].admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"}))(t); now.GetId() != made.GetId() {
		t.Errorf("queue %s is there, and %s was answered", now.GetId(), made.GetId())
	}
}

// TestNamespaces_QueueTooManyIsNeverThere: no call meets a queue that its frontend gives up, and its path is free then.
func TestNamespaces_QueueTooManyIsNeverThere(t *testing.T) {
	store := &named{Store: memory.New()}
	both := twoFrontends(t, store)
	both[0].limitQueues(1)
	store.then = func() {
		must(call(t, both[1].admin.UpdateNamespace, &pb.UpdateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/t", MaxQueues: 2}}))(t)
		both[1].createQueue("/t/c")
	}
	_, err := call(t, both[0].admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}})
	wantCode(t, "one too many", err, core.CodeConflict)
	_, err = call(t, both[1].admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"})
	wantCode(t, "its queue", err, core.CodeNotFound)
	_, err = store.Get(t.Context(), metadata.Names, metadata.NameKey("/t/a"), metadata.Serial)
	wantCode(t, "its name", err, core.CodeNotFound)
}

// TestNamespaces_QueueThatIsBeingDeleted does not count, also when the names are as many as there may be.
func TestNamespaces_QueueThatIsBeingDeleted(t *testing.T) {
	c, s := newCounting(t)
	q := c.createQueue("/t/a")
	c.limitQueues(1)
	id, err := core.ParseID(q.Id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := metadata.Change(t.Context(), s, metadata.Queues, metadata.QueueKey(core.QueueID{ID: id}), func(q *metadata.QueueRecord) error {
		q.Spec.Status = core.StatusDeleted
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.createQueue("/t/b")
}

// TestDeleteQueue_ItsNameGoes: a namespace whose queues have ever new names does not grow.
func TestDeleteQueue_ItsNameGoes(t *testing.T) {
	c, s := newCounting(t)
	var last metadata.Version
	for range 3 {
		c.createQueue("/t/a")
		row, err := s.Get(t.Context(), metadata.Names, metadata.NameKey("/t/a"), metadata.Serial)
		if err != nil || row.Version <= last {
			t.Fatalf("version %d after %d: %v", row.Version, last, err)
		}
		last = row.Version
		must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t)
		_, err = s.Get(t.Context(), metadata.Names, metadata.NameKey("/t/a"), metadata.Serial)
		wantCode(t, "the name of a deleted queue", err, core.CodeNotFound)
	}
}

// TestCreateQueue_NameGoesMeanwhile: between two looks at the name its queue was deleted.
func TestCreateQueue_NameGoesMeanwhile(t *testing.T) {
	c, s := newCounting(t)
	old := c.createQueue("/t/a")
	s.refused = func(k metadata.Key) {
		s.refused = nil
		row, err := s.Get(context.Background(), metadata.Names, k, metadata.Serial)
		if err == nil {
			err = s.Delete(context.Background(), metadata.Names, k, row.Version)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if q := c.createQueue("/t/a"); q.Id == old.Id {
		t.Error("the old queue was answered")
	}
}
