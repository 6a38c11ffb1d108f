package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

func TestEnsure_NamesTheDisks(t *testing.T) {
	bubble(t, harnessOptions{stores: 5, zones: []string{"a", "a", "a", "b", "c"}}, func(r *harness) {
		queue := r.queue(3, 2)
		for range 20 {
			e, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
			r.ok(err)
			if len(e.Replicas) != 3 || len(e.Disks) != 3 || !slices.Contains(e.Replicas, "s3") || !slices.Contains(e.Replicas, "s4") {
				t.Fatalf("replicas %v, disks %v: want one in each zone", e.Replicas, e.Disks)
			}
			for i, s := range r.replicas(e) {
				if e.Disks[i] != s.disk {
					t.Errorf("disk of %s is %s, want %s", s.id, e.Disks[i], s.disk)
				}
			}
		}
	})
}

func TestEnsure_AnotherOneThanThoseItHas(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		w := r.wish(r.queue(3, 2))
		first, err := r.ctl.ensureExtent(r.t.Context(), w)
		r.ok(err)
		again, err := r.ctl.ensureExtent(r.t.Context(), w)
		r.ok(err)
		if again.ID != first.ID {
			t.Error("a second extent was made for one that has none")
		}
		w.have = []core.ExtentID{first.ID}
		second, err := r.ctl.ensureExtent(r.t.Context(), w)
		r.ok(err)
		if second.ID == first.ID {
			t.Error("answered one that it has")
		}
		if n := r.ctl.openExtents(w); n != 2 {
			t.Errorf("%d open extents wanted, want 2 in a cluster", n)
		}
	})
}

func TestEnsure_AvoidsStoresWhileOthersAreLeft(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		w := r.wish(r.queue(3, 2))
		first, err := r.ctl.ensureExtent(r.t.Context(), w)
		r.ok(err)
		w.have, w.avoid = []core.ExtentID{first.ID}, []core.HostID{"s1"}
		e, err := r.ctl.ensureExtent(r.t.Context(), w)
		r.ok(err)
		if len(e.Replicas) != 2 || slices.Contains(e.Replicas, "s1") {
			t.Errorf("replicas %v, want the two others", e.Replicas)
		}
		w.have, w.avoid = append(w.have, e.ID), []core.HostID{"s1", "s2"}
		e, err = r.ctl.ensureExtent(r.t.Context(), w)
		r.ok(err)
		if len(e.Replicas) != 2 || !slices.Contains(e.Replicas, "s0") {
			t.Errorf("replicas %v, want two, s0 among them", e.Replicas)
		}
	})
}

// TestEnsure_WorstAvoidedStoreLast: one store was killed and is back, another was killed a moment ago, and nobody but
// the input host has met that.
func TestEnsure_WorstAvoidedStoreLast(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		w := r.wish(r.queue(3, 2))
		w.avoid = []core.HostID{"s1", "s0"}
		for range 20 {
			e, err := r.ctl.createExtent(r.t.Context(), w)
			r.ok(err)
			if len(e.Replicas) != 2 || slices.Contains(e.Replicas, "s1") {
				t.Fatalf("replicas %v, want s2 and s0", e.Replicas)
			}
		}
		w.avoid = []core.HostID{"s2", "s1", "s0"}
		e, err := r.ctl.createExtent(r.t.Context(), w)
		r.ok(err)
		if len(e.Replicas) != 2 || slices.Contains(e.Replicas, "s2") {
			t.Errorf("replicas %v, want s0 and s1", e.Replicas)
		}
	})
}

// TestEnsure_StoreThatIsBackNextToOneThatIsGone: the controller knows of neither; one question finds the first, and the
// one that hangs in between holds nobody up.
func TestEnsure_StoreThatIsBackNextToOneThatIsGone(t *testing.T) {
	for name, gone := range map[string]func(r *harness, s *fakeStore){
		"killed": func(r *harness, s *fakeStore) { r.kill(s.id) },
		"hangs":  func(r *harness, s *fakeStore) { r.hang(s) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, edit: func(c *Config) { c.DescribeEvery = time.Hour }}, func(r *harness) {
				w := r.wish(r.queue(3, 2))
				r.kill("s0")
				r.ctl.describeStores(r.t.Context())
				r.up(r.stores[0])
				gone(r, r.stores[1])
				w.avoid = []core.HostID{"s1"}
				for range 10 {
					began := time.Now()
					e, err := r.ctl.createExtent(r.t.Context(), w)
					r.ok(err)
					if len(e.Replicas) != 2 || slices.Contains(e.Replicas, "s1") {
						t.Fatalf("replicas %v, want s0 and s2", e.Replicas)
					}
					if took := time.Since(began); took > 10*time.Millisecond {
						t.Fatalf("it took %s", took)
					}
				}
			})
		})
	}
}

// TestEnsure_StoreThatIsStarting refuses for a moment and is wanted.
func TestEnsure_StoreThatIsStarting(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: func(c *Config) { c.DescribeEvery = time.Hour }}, func(r *harness) {
		w := r.wish(r.queue(3, 2))
		r.kill("s0")
		r.ctl.describeStores(r.t.Context())
		r.kill("s1")
		w.avoid = []core.HostID{"s1"}
		r.wg.Go(func() {
			<-time.After(100 * time.Millisecond)
			r.up(r.stores[0])
		})
		began := time.Now()
		e, err := r.ctl.createExtent(r.t.Context(), w)
		r.ok(err)
		if took := time.Since(began); len(e.Replicas) != 2 || slices.Contains(e.Replicas, "s1") || took > 150*time.Millisecond {
			t.Errorf("replicas %v after %s, want s0 and s2 as soon as s0 is there", e.Replicas, took)
		}
	})
}

func TestEnsure_StoresThatTakeNothing(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		r.stores[0].with(func() { r.stores[0].refuses = true })
		r.stores[1].with(func() { r.stores[1].free = 4 })
		r.sleep(5 * time.Second)
		e, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		if len(e.Replicas) != 2 || slices.Contains(e.Replicas, "s0") {
			t.Errorf("replicas %v, want those that take something", e.Replicas)
		}
		r.stores[1].with(func() { r.stores[1].refuses = true })
		r.sleep(5 * time.Second)
		_, err = r.ctl.createExtent(r.t.Context(), r.wish(queue))
		if core.CodeOf(err) != core.CodeNoSpace {
			t.Errorf("with one store that takes something: %v", err)
		}
		for _, want := range []string{"can get 1 now", "s0 refuses writes", "its log failed", "s1 has no space left", "start more stores"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q lacks %q", err, want)
			}
		}
		for full, want := range map[bool]core.Code{false: core.CodeUnavailable, true: core.CodeNoSpace} {
			r.stores[1].with(func() { r.stores[1].free, r.stores[1].full = 50, full }) // a store may have no room on a small disk that is half empty
			r.sleep(5 * time.Second)
			if _, err := r.ctl.createExtent(r.t.Context(), r.wish(queue)); core.CodeOf(err) != want {
				t.Errorf("of two stores that take nothing, one is full %t: %v, want %s", full, err, want)
			}
		}
		r.sleep(2 * refusalHolds)
		r.stores[0].with(func() { r.stores[0].refuses = false })
		if _, err := r.ctl.createExtent(r.t.Context(), r.wish(queue)); err != nil {
			t.Errorf("a store that takes extents again was not asked: %v", err)
		}
	})
}

// TestEnsure_NamesStoresThatDoNotAnswer: of many, the error names some.
func TestEnsure_NamesStoresThatDoNotAnswer(t *testing.T) {
	bubble(t, harnessOptions{stores: 6}, func(r *harness) {
		queue := r.queue(3, 2)
		for _, s := range r.stores {
			r.hang(s)
		}
		r.sleep(time.Minute)
		_, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
		for _, want := range []string{"s0 does not answer", "2 more stores"} {
			if core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v lacks %q", err, want)
			}
		}
	})
}

func TestEnsure_StoreThatWasNeverDescribed(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		r.ctl.end()
		r.hang(r.stores[2])
		r.ctl = r.startController(nil)
		began := time.Now()
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(r.queue(3, 2)))
		r.ok(err)
		if len(e.Replicas) != 2 || slices.Contains(e.Replicas, "s2") {
			t.Errorf("replicas %v, want the two that are known", e.Replicas)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestEnsure_KilledStoreIsNotChosenAgain(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		queue := r.queue(3, 2)
		e := r.extent(queue, 1)
		dead := r.replicas(e)[0]
		r.kill(dead.id)
		_, err := r.seal(e, 1)
		r.ok(err)
		for range 10 { // the seal has shown it, membership and descriptions have not yet
			next, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
			r.ok(err)
			if slices.Contains(next.Replicas, dead.id) {
				t.Fatalf("replicas %v, %s is dead", next.Replicas, dead.id)
			}
		}
	})
}

// TestEnsure_StoresThatAreBackAtOnce were killed and started again, and nobody has asked them since.
func TestEnsure_StoresThatAreBackAtOnce(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		e := r.extent(queue, 1)
		for _, s := range r.stores {
			r.kill(s.id)
		}
		if _, err := r.seal(e, 1); err == nil {
			t.Fatal("sealed without stores")
		}
		for _, s := range r.stores {
			s.with(func() { s.run = newRun() })
			r.up(s)
		}
		began := time.Now()
		_, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

// TestEnsure_ExtentsThatFailAtOnceSlowDown: stores accept the creation and refuse every open.
func TestEnsure_ExtentsThatFailAtOnceSlowDown(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		w := r.wish(r.queue(1, 1))
		made := 0
		for began := time.Now(); time.Since(began) < time.Minute; r.sleep(20 * time.Millisecond) {
			e, err := r.ctl.ensureExtent(r.t.Context(), w)
			if err != nil {
				if core.CodeOf(err).Class() != core.ClassRetryable {
					t.Fatal(err)
				}
				continue
			}
			made++
			_, err = r.seal(e, 0)
			r.ok(err)
		}
		if made > 25 {
			t.Errorf("%d extents made and sealed in a minute", made)
		}
		r.sleep(10 * time.Second)
		e := r.extent(w.queue, 1)
		_, err := r.seal(e, 1)
		r.ok(err)
		_, err = r.ctl.ensureExtent(r.t.Context(), w)
		r.ok(err) // it worked: the next one does not wait
	})
}

func TestEnsure_FullExtentsDoNotSlowDown(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		for range 20 {
			e := r.extent(queue, 1)
			_, err := r.seal(e, 1)
			r.ok(err)
		}
	})
}

// TestEnsure_ManyQueuesAtOnce creates for a thousand queues side by side.
func TestEnsure_ManyQueuesAtOnce(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		var wg sync.WaitGroup
		began := time.Now()
		for range 1000 {
			w := r.wish(r.queue(3, 2))
			wg.Go(func() {
				if _, err := r.ctl.ensureExtent(r.t.Context(), w); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s of virtual time", took)
		}
	})
}

func TestEnsure_RPC(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.queue(3, 2)
		req := &pb.EnsureExtentRequest{Queue: queue.ID[:], Input: "in", InputRun: r.input.Run.ID[:], Kind: "log", Avoid: []string{"s0"}}
		resp, err := (&service{r.ctl.Host}).EnsureExtent(r.t.Context(), connect.NewRequest(req))
		r.ok(err)
		if len(resp.Msg.Stores) != 2 || len(resp.Msg.Extent.Disks) != 2 || resp.Msg.Open != 2 {
			t.Errorf("got %v", resp.Msg)
		}
		for i, at := range resp.Msg.Stores {
			if at.Id != resp.Msg.Extent.Replicas[i] || at.Address != fmt.Sprintf("%s:1", at.Id) {
				t.Errorf("address %v", at)
			}
		}
		req.QueueRow = []byte("no record")
		if _, err := (&service{r.ctl.Host}).EnsureExtent(r.t.Context(), connect.NewRequest(req)); core.CodeOf(convert.FromRPC(err)) != core.CodeCorrupt {
			t.Errorf("a row that is no record: %v", err)
		}
	})
}

// TestHosts_AddressOfAnother: a host dies, and another one gets its address: who answers there is not the dead one.
func TestHosts_AddressOfAnother(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 1)
		r.leave(r.input.ID)
		r.join(membership.Host{ID: "in2", Roles: []string{"inputhost"}, Address: r.input.Address, Run: newRun()})
		r.eventually("its extent is sealed", 10*time.Second, func() bool { return r.row(e).State == core.ExtentSealed })
	})
}

// TestEnsure_NothingOfAnotherController: another controller made an extent and may be about to unmake it, since it did
// not hear that its rows were written. A writer gets an extent of which the controller that it asks knows the rows.
func TestEnsure_NothingOfAnotherController(t *testing.T) {
	two(t, harnessOptions{stores: 1}, func(r *harness, both [2]*running) {
		q := r.queue(1, 1)
		e, err := both[0].createExtent(r.t.Context(), r.wish(q))
		r.ok(err)
		r.loads(both[1])
		got, err := both[1].ensureExtent(r.t.Context(), r.wish(q))
		r.ok(err)
		if got.ID == e.ID {
			t.Error("the writer gets the other controller's extent")
		}
		if again, err := both[1].ensureExtent(r.t.Context(), r.wish(q)); err != nil || again.ID != got.ID {
			t.Errorf("a writer that asks again gets %s, %v, want %s", again.ID, err, got.ID)
		}
	})
}
