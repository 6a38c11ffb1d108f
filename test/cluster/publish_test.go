package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/metadata"
)

// extents are those of the queue, by their state.
func (w *world) extents(path string) map[core.ExtentState]int {
	w.t.Helper()
	out := make(map[core.ExtentState]int)
	for e, err := range w.Client.Admin().ListExtents(w.t.Context(), path) {
		w.ok(err)
		out[e.State]++
	}
	return out
}

func rollAt(bytes uint64) func(*inputhost.Config) {
	return func(c *inputhost.Config) { c.RollBytes = bytes }
}

func TestCluster_RollsUnderLoad(t *testing.T) {
	bubble(t, Options{Stores: 2, Input: rollAt(5_000)}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		stop := w.load(10)
		sleep(2 * time.Second)
		acked := stop()
		w.all(w.collect(con, len(acked)), acked, true)
		w.close(con)
		n := w.extents(queue)
		total := 0
		for _, k := range n {
			total += k
		}
		// Records are some 60 bytes: each extent holds what it should, a roll does not make a second one.
		if most := len(acked)*100/5_000 + 4; total < 5 || total > most {
			t.Errorf("%d messages in %d extents %v, want up to %d", len(acked), total, n, most)
		}
	})
}

func TestCluster_IdleExtentIsSealed(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		if n := w.extents(queue); n[core.ExtentOpen] != 1 {
			t.Fatalf("extents %v, want one open", n)
		}
		sleep(70 * time.Second)
		if n := w.extents(queue); n[core.ExtentSealed] != 1 || len(n) != 1 {
			t.Errorf("extents %v after a minute without a message, want one, sealed", n)
		}
		w.publish("b")
		con := w.consumer("g")
		w.all(w.collect(con, 2), []string{"a", "b"}, true)
		w.close(con)
	})
}

func TestCluster_BrokenStoreLinksUnderLoad(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		stop := w.load(4)
		for i := range 10 {
			sleep(300 * time.Millisecond)
			w.Cut(Input, Store(i%2))
		}
		sleep(time.Second)
		acked := stop()
		w.all(w.collect(con, len(acked)), acked, true)
		w.close(con)
	})
}

func TestCluster_StoreRestartsUnderLoad(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		stop := w.load(4)
		for range 3 {
			sleep(500 * time.Millisecond)
			w.Crash(Store(0))
			sleep(2 * time.Second)
			w.Up(Store(0))
		}
		sleep(time.Second)
		acked := stop()
		w.all(w.collect(con, len(acked)), acked, true)
		w.close(con)
	})
}

func TestCluster_ControllerAwayUnderLoad(t *testing.T) {
	bubble(t, Options{Input: rollAt(10_000)}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		stop := w.load(3)
		sleep(time.Second)
		release := w.Hold(Controller)
		sleep(6 * time.Second)
		w.Cut(Input, Store(0)) // nothing can be published until the controller is back
		sleep(3 * time.Second)
		release()
		sleep(5 * time.Second)
		acked := stop()
		w.all(w.collect(con, len(acked)), acked, true)
		w.close(con)
	})
}

func TestCluster_ControllerRestartsAlone(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		w.publish("a")
		w.next(con, "a", 1).Ack()
		w.Restart(Controller)
		sleep(2 * time.Minute) // the extent of before is sealed
		w.publish("b")
		began := time.Now()
		w.ok(w.next(con, "b", 1).Ack())
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a message to a new extent came after %s", took)
		}
		w.close(con)
	})
}

func TestCluster_CrashesOfAllUnderLoad(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 5 * time.Second })
		con := w.consumer("g")
		stop := w.load(5)
		for range 3 {
			sleep(time.Second)
			w.Crash(w.All()...)
			sleep(time.Second)
			w.Up(w.All()...)
		}
		sleep(2 * time.Second)
		acked := stop()
		got := w.collect(con, len(acked))
		missing := 0
		for _, b := range acked {
			if got[b] == 0 {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("of %d acknowledged messages %d never came", len(acked), missing)
		}
		w.close(con)
	})
}

func TestCluster_InputHostRestartSealsItsExtents(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		w.Crash(Input)
		w.eventually("the extent of the dead run is sealed", 10*time.Second, func() bool {
			n := w.extents(queue)
			return n[core.ExtentSealed] == 1 && len(n) == 1
		})
		w.Up(Input)
		w.publish("b")
		con := w.consumer("g")
		w.all(w.collect(con, 2), []string{"a", "b"}, true)
		w.close(con)
	})
}

// TestCluster_SealResumesAfterRestart leaves a seal row that says sealing, with its store away, and restarts the
// controller.
func TestCluster_SealResumesAfterRestart(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		w.Crash(Store(0))
		w.Crash(Input)
		w.Up(Input)
		w.eventually("the seal has begun", 10*time.Second, func() bool { return w.extents(queue)[core.ExtentSealing] == 1 })
		w.Crash(Controller)
		w.Up(Controller)
		sleep(5 * time.Second)
		if n := w.extents(queue); n[core.ExtentSealing] != 1 {
			t.Fatalf("extents %v without a store, want one that is sealing", n)
		}
		w.Up(Store(0))
		w.eventually("the extent is sealed", 10*time.Second, func() bool { return w.extents(queue)[core.ExtentSealed] == 1 })
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Ack())
		w.close(con)
	})
}

// TestCluster_AbsentReplicaIsToldLater seals while one of two stores is away.
func TestCluster_AbsentReplicaIsToldLater(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		w.group("g", nil)
		w.publish(numbers(1, 100)...)
		w.Crash(Store(1))
		w.Crash(Input)
		w.Up(Input)
		w.eventually("the extent is sealed", 20*time.Second, func() bool { return w.extents(queue)[core.ExtentSealed] == 1 })
		open := func() int { return w.hints(metadata.HintOpen) }
		if open() != 1 {
			t.Errorf("%d hints of extents with something to do, want one: a replica was not told", open())
		}
		w.Up(Store(1))
		w.eventually("both know the end", 20*time.Second, func() bool { return open() == 0 })
	})
}

// TestCluster_DeletedQueueEndsPublishers makes a queue again under its name at once.
func TestCluster_DeletedQueueEndsPublishers(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		p := w.publisher()
		publish := func() error {
			_, err := p.Publish(w.t.Context(), client.Message{Body: []byte("a")})
			return err
		}
		w.ok(publish())
		w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue})
		w.ok(err)
		w.group("g", nil)
		other := w.publisher() // of the queue made again
		_, err = other.Publish(w.t.Context(), client.Message{Body: []byte("b")})
		w.ok(err)
		sleep(5 * time.Second)
		// The first publisher must be cut off from the deleted queue: what it publishes is refused, or goes to the new one.
		con := w.consumer("g")
		w.ok(w.next(con, "b", 1).Ack())
		if err := publish(); err == nil {
			w.ok(w.next(con, "a", 1).Ack())
		} else if core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("publish to a deleted queue: %v, want %s", err, core.CodeNotFound)
		}
		w.close(con)
		w.ok(other.Close(w.t.Context()))
		p.Close(w.t.Context())
	})
}

// TestCluster_ReplicaSetThatIsGone creates an extent on a store that goes away before it is opened.
func TestCluster_ReplicaSetThatIsGone(t *testing.T) {
	bubble(t, Options{Stores: 3}, func(w *world) {
		w.group("g", nil)
		spec := core.QueueSpec{Path: "/t/two", Replicas: 2, MinReplicas: 1}
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), spec)
		w.ok(err)
		var writes atomic.Int32
		first := make(chan struct{})
		w.OnMeta(Controller, func(_ context.Context, op Op) error {
			if op.Table == metadata.Extents.Name && op.Name == "Put" && writes.Add(1) == 1 {
				close(first)
				sleep(time.Second) // so that a store can go away between
			}
			return nil
		})
		p, err := w.Client.Publisher(w.t.Context(), spec.Path)
		w.ok(err)
		done := make(chan error, 1)
		w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: []byte("a")}, func(_ client.Receipt, err error) { done <- err }))
		<-first
		sleep(100 * time.Millisecond) // the hint is written meanwhile
		for r, err := range metadata.Hints(w.t.Context(), w.Meta, metadata.HintLive, metadata.One) {
			w.ok(err)
			w.Crash(r.Value.Replicas[0])
			break
		}
		if err := <-done; err != nil {
			t.Errorf("publish with a store gone: %v", err)
		}
		w.ok(p.Close(w.t.Context()))
	})
}

// TestCluster_ExtentThatIsNotMadeLeavesNothing fails in the middle of making one.
func TestCluster_ExtentThatIsNotMadeLeavesNothing(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		var failed atomic.Bool
		w.OnMeta(Controller, func(_ context.Context, op Op) error {
			if op.Name == "Put" && op.Table == metadata.Extents.Name && !failed.Swap(true) {
				return core.Errorf(core.CodeUnavailable, "injected")
			}
			return nil
		})
		w.publish("a")
		sleep(2 * time.Second)
		if n := w.hints(metadata.HintLive); n != 1 || !failed.Load() {
			t.Errorf("%d live extents, want the one that was published to", n)
		}
	})
}

// TestCluster_ExtentThatIsNeverOpenedIsSealed makes an extent whose input host does not hear of it.
func TestCluster_ExtentThatIsNeverOpenedIsSealed(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		q, err := w.Client.Admin().GetQueue(w.t.Context(), queue)
		w.ok(err)
		p := w.peers()
		defer p.Close()
		run := w.hosts[Input].run
		_, err = p.Controller(w.hosts[Controller].addr).EnsureExtent(w.t.Context(), connect.NewRequest(&pb.EnsureExtentRequest{
			Queue: q.ID.ID[:], Input: string(Input), InputRun: run.ID[:], Kind: string(core.KindLog),
		}))
		w.ok(err)
		if n := w.extents(queue); n[core.ExtentOpen] != 1 {
			t.Fatalf("extents %v, want an open one", n)
		}
		sleep(4 * time.Minute)
		if n := w.extents(queue); n[core.ExtentOpen] != 0 {
			t.Errorf("extents %v four minutes later, want none open", n)
		}
	})
}
