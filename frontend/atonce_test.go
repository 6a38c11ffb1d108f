package frontend

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// lent is a store that another host closes.
type lent struct{ metadata.Store }

func (lent) Close() error { return nil }

// twoFrontends are two frontends over one store, each with a controller of its own.
func twoFrontends(t *testing.T, store metadata.Store, change ...func(*Config)) []*harness {
	t.Helper()
	first := newHarness(t, store, change...)
	return []*harness{first, newHarness(t, lent{store}, change...)}
}

// TestNames_ConsistentThroughTwoFrontends: calls of all kinds through two frontends, which read old rows and lose no
// answers. In the end every live queue and group is whole, what was deleted is gone with all that belongs to it, and a
// dead letter queue has as many copies as its queue.
func TestNames_ConsistentThroughTwoFrontends(t *testing.T) {
	behind := memory.New()
	store := faulty.New(behind, faulty.Faults{Seed: rand.Uint64(), Stale: 0.2, Delay: time.Millisecond})
	both := twoFrontends(t, store, func(cfg *Config) { cfg.CallTimeout = 10 * time.Second })
	for range 20 {
		callAtOnce(t, both, 3)
		checkNames(t, behind)
		checkBuiltIn(t, behind)
	}
}

// callAtOnce makes calls that change two queues and a group of each: so many one after another, eight times at once
// through two frontends.
func callAtOnce(t *testing.T, both []*harness, calls int) {
	t.Helper()
	paths := []string{"/t/a", "/t/b"}
	var wg sync.WaitGroup
	for i := range 8 {
		c := both[i%2]
		wg.Go(func() {
			for range calls {
				path := paths[rand.IntN(len(paths))]
				switch rand.IntN(16) {
				case 0:
					call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: path})
				case 1, 2, 3:
					call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: path, Replicas: 1 + rand.Int32N(3), MinReplicas: 1}})
				case 4, 5:
					call(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: path, Name: "g"})
				case 6, 7, 8:
					call(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: path, Replicas: 1 + rand.Int32N(7)}})
				case 9:
					call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: path, Name: "g", MaxDeliveries: 1 + rand.Int32N(9)}})
				default:
					call(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: path, Name: "g"}})
				}
			}
		})
	}
	wg.Wait()
}

// checkBuiltIn checks what belongs to groups: a dead letter queue that is there is that of a live group and has the
// copies of its queue, and a deleted queue has no live group.
func checkBuiltIn(t *testing.T, s metadata.Store) {
	t.Helper()
	owned, queues := make(map[core.GroupID]metadata.QueueRecord), make(map[core.QueueID]metadata.QueueRecord)
	for q, err := range metadata.All[metadata.QueueRecord](t.Context(), s, metadata.Queues, metadata.PartitionID, metadata.Serial) {
		if err != nil {
			t.Fatal(err)
		}
		queues[q.Value.ID] = q.Value
		if !q.Value.Owner.IsZero() && q.Value.Spec.Status != core.StatusDeleted {
			owned[q.Value.Owner] = q.Value
		}
	}
	for _, q := range queues {
		for g, err := range metadata.All[metadata.GroupRecord](t.Context(), s, metadata.Groups, q.ID.String(), metadata.Serial) {
			if err != nil {
				t.Fatal(err)
			}
			dlq, there := owned[g.Value.ID]
			delete(owned, g.Value.ID)
			switch live := g.Value.Spec.Status != core.StatusDeleted; {
			case live && q.Spec.Status == core.StatusDeleted:
				t.Errorf("group %s is there, and queue %s was deleted", g.Value.ID, q.Spec.Path)
			case live && g.Value.Started != there || there && dlq.ID != g.Value.DLQ:
				t.Errorf("group %+v has dead letter queue %+v", g.Value, dlq)
			case there && !live:
				t.Errorf("group %s was deleted, and %s is there", g.Value.ID, dlq.Spec.Path)
			case there && !dlq.Spec.SameCopies(q.Spec):
				t.Errorf("%s has %d replicas, and %s has %d", dlq.Spec.Path, dlq.Spec.Replicas, q.Spec.Path, q.Spec.Replicas)
			}
		}
	}
	for group, dlq := range owned {
		t.Errorf("%s, %s, is of group %s, which no row has", dlq.Spec.Path, dlq.ID, group)
	}
}

// TestNamespaces_LimitThroughTwoFrontends: queues are created under few paths through two frontends until the namespace
// is full, and none is deleted. There are never too many, and a creation that was acknowledged has made the queue that
// is there.
func TestNamespaces_LimitThroughTwoFrontends(t *testing.T) {
	behind := memory.New()
	store := faulty.New(behind, faulty.Faults{Seed: rand.Uint64(), Stale: 0.2, Delay: time.Millisecond})
	both := twoFrontends(t, store, func(cfg *Config) { cfg.CallTimeout = 10 * time.Second })
	const most = 2
	for round := range 10 {
		namespace := fmt.Sprintf("/t%d", round)
		must(call(t, both[0].admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: namespace, MaxQueues: most}}))(t)
		var mu sync.Mutex
		acknowledged := make(map[string]string)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				path := fmt.Sprintf("%s/q%d", namespace, rand.IntN(most+1))
				q, err := call(t, both[i%2].admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: path}})
				if err == nil {
					mu.Lock()
					acknowledged[q.Id] = path
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		live := 0
		for q, err := range metadata.All[metadata.QueueRecord](t.Context(), behind, metadata.Queues, metadata.PartitionID, metadata.Serial) {
			switch {
			case err != nil:
				t.Fatal(err)
			case core.Namespace(q.Value.Spec.Path) != namespace || q.Value.Spec.Status == core.StatusDeleted:
				continue
			}
			live++
			delete(acknowledged, q.Value.ID.String())
		}
		if live > most {
			t.Errorf("%d queues are there, and the limit is %d", live, most)
		}
		for id, path := range acknowledged {
			t.Errorf("%s was acknowledged as %s, and is not there", path, id)
		}
	}
}

// TestCreateQueue_DeletedMeanwhile: a queue is deleted before the call that made its name has made its row. So does
// another creation of it that finds its namespace full. The queue is not acknowledged.
func TestCreateQueue_DeletedMeanwhile(t *testing.T) {
	store := &made{Store: memory.New()}
	c := newHarness(t, store)
	store.then = func() { must(call(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}))(t) }
	_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}})
	wantCode(t, "create a queue that was deleted meanwhile", err, core.CodeConflict)
	c.createQueue("/t/a")
}
