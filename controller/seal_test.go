package controller

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func TestSeal_OneStoreThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	for name, fault := range map[string]func(r *harness, s *fakeStore){
		"killed":  func(r *harness, s *fakeStore) { r.kill(s.id) },
		"stopped": func(r *harness, s *fakeStore) { r.hang(s) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				e := r.extent(r.queue(3, 2), 5)
				fault(r, r.stores[1])
				began := time.Now()
				got, err := r.seal(e, 3)
				r.ok(err)
				if took := time.Since(began); took > 50*time.Millisecond {
					t.Errorf("it took %s", took)
				}
				if got.L != 5 || len(got.Holders) != 2 || slices.Contains(got.Holders, "s1") {
					t.Errorf("got %v", got)
				}
				r.sleep(time.Second)
				r.whole(e, 5, 2)
			})
		})
	}
}

func TestSeal_ShortReplicasAreCompleted(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		r.stores[0].write(e, numbers(6, 9)...)
		r.stores[2].write(e, "6")
		got, err := r.seal(e, 5)
		r.ok(err)
		if got.L != 9 || len(got.Holders) != 3 {
			t.Errorf("got %v", got)
		}
		r.sleep(time.Second)
		r.whole(e, 9, 3)
		if n := hints(r, metadata.HintOpen); n != 0 {
			t.Errorf("%d hints of a seal that is finished", n)
		}
	})
}

// hints counts the hints of a kind.
func hints(r *harness, h metadata.Hint) (n int) {
	r.t.Helper()
	for _, err := range metadata.Hints(r.t.Context(), r.meta, h, metadata.One) {
		r.ok(err)
		n++
	}
	return n
}

func rows(r *harness, t metadata.Table, partition string) int {
	r.t.Helper()
	list, _, err := r.meta.List(r.t.Context(), t, partition, "", 1000, metadata.One)
	r.ok(err)
	return len(list)
}

func TestSeal_WipedDiskIsNoCopy(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		wiped := r.stores[1]
		r.kill(wiped.id)
		wiped.wipe()
		r.restart(wiped)
		r.hang(r.stores[0])
		r.hang(r.stores[2])
		if _, err := r.seal(e, 0); err == nil {
			t.Fatal("an empty disk decided the end of an extent")
		}
		r.wake(r.stores[0])
		r.wake(r.stores[2])
		r.eventually("it is sealed", 40*time.Second, func() bool { return r.row(e).State == core.ExtentSealed })
		r.eventually("the new disk has a copy", 40*time.Second, func() bool { return len(r.row(e).Holders) == 3 })
		r.sleep(5 * time.Second) // those that hung are told with the next round
		r.whole(e, 5, 3)
	})
}

func TestSeal_NothingBelowTheFloor(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 5)
		if _, err := r.seal(e, 6); core.CodeOf(err) == "" {
			t.Fatal("acknowledged records were cut off")
		}
		if row := r.row(e); row.State != core.ExtentSealing || row.Floor != 6 {
			t.Errorf("row %+v", row)
		}
	})
}

// TestSeal_FloorThatRoseMeanwhile: a decision taken by an older floor is not recorded.
func TestSeal_FloorThatRoseMeanwhile(t *testing.T) {
	bubble(t, harnessOptions{stores: 2, meta: distant{memory.New()}}, func(r *harness) { // which says the version of the row that was made
		e := r.extent(r.queue(2, 2), 5)
		row, made, err := r.ctl.beginSeal(r.t.Context(), order{extent: e, floor: 3})
		r.ok(err)
		if made.Version == 0 {
			t.Error("the version of the new row is not known")
		}
		in := r.ctl.fence(r.t.Context(), order{extent: e}, row.Floor)
		d := seal.Decide(in)
		_, _, err = r.ctl.beginSeal(r.t.Context(), order{extent: e, floor: 6})
		r.ok(err)
		if _, err := r.ctl.endSeal(r.t.Context(), made, d, nil, 0); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("recorded the end %d below the floor: %v", d.L, err)
		}
	})
}

// TestSeal_OneHolderIsRepairedAtOnce: the writer asks until two stores hold what it may acknowledge.
func TestSeal_OneHolderIsRepairedAtOnce(t *testing.T) {
	bubble(t, harnessOptions{stores: 4}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		dead := r.replicas(e)[1:]
		for _, s := range dead {
			r.kill(s.id)
		}
		began := time.Now()
		got, err := r.seal(e, 5)
		r.ok(err)
		for len(got.Holders) < 2 {
			if time.Since(began) > 2*time.Second {
				t.Fatalf("still %v after %s", got.Holders, time.Since(began))
			}
			r.sleep(10 * time.Millisecond)
			got, err = r.seal(e, 5)
			r.ok(err)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("two copies after %s", took)
		}
		r.whole(e, 5, 2)
	})
}

// TestSeal_TwoControllersConverge: one reaches only the longer replica, the other only the shorter one.
func TestSeal_TwoControllersConverge(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 5)
		r.stores[0].write(e, "6")
		other := r.startController(nil)
		defer other.end()
		ends := make([]core.Seq, 2)
		var wg sync.WaitGroup
		for i, c := range []*running{r.ctl, other} {
			wg.Go(func() {
				row, err := c.Host.seal(r.t.Context(), order{extent: e, floor: 5, reason: "test"})
				if err != nil {
					t.Error(err)
				}
				ends[i] = row.L
			})
		}
		wg.Wait()
		if row := r.row(e); ends[0] != ends[1] || row.L != ends[0] {
			t.Fatalf("ends %v, row %d", ends, row.L)
		}
		r.sleep(time.Minute)
		r.whole(e, ends[0], 2)
	})
}

func TestSeal_AdoptedEndBelowLongerReplicas(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		r.stores[1].write(e, "6")
		r.stores[2].write(e, "6")
		r.stores[0].edit(e.ID, func(x *fakeReplica) { x.fenced, x.sealed, x.l, x.batches = true, true, 5, x.batches[:3] })
		got, err := r.seal(e, 4)
		r.ok(err)
		if got.L != 5 {
			t.Fatalf("got %v, want the end that a replica has persisted", got)
		}
		r.eventually("all are complete", time.Minute, func() bool { return len(r.row(e).Holders) == 3 })
		r.sleep(time.Second)
		r.whole(e, 5, 3)
	})
}

func TestSeal_ForceIsRecorded(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 5)
		ended, err := r.ctl.audit(r.t.Context(), slog.LevelWarn, "operator", "force seal", e.ID.String())
		r.ok(err)
		row, err := r.ctl.Host.seal(r.t.Context(), order{extent: e, floor: 7, reason: "operator", force: true})
		ended(r.t.Context(), err)
		r.ok(err)
		if row = r.row(e); !row.Forced || row.Lost != 2 || row.L != 5 {
			t.Errorf("row %+v, want it flagged with two records lost", row)
		}
		var found []metadata.AuditRecord
		for a, err := range metadata.All[metadata.AuditRecord](r.t.Context(), r.meta, metadata.Audit, metadata.AuditPartition(time.Now()), metadata.One) {
			r.ok(err)
			found = append(found, a.Value)
		}
		if len(found) != 1 || found[0].Result != "ok" || found[0].Object != e.ID.String() || found[0].Who != "operator" {
			t.Errorf("audit %+v", found)
		}
	})
}

// TestSeal_ForceAcceptsAnEndBelowTheFloor: a sealer that did not know what was acknowledged has fixed the end below it.
// The writer is refused until an operator accepts that.
func TestSeal_ForceAcceptsAnEndBelowTheFloor(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 5)
		_, err := r.seal(e, 0)
		r.ok(err)
		force := func() error {
			_, err := (&service{r.ctl.Host}).SealExtent(r.t.Context(), connect.NewRequest(&pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Force: true, Reason: "operator"}))
			return convert.FromRPC(err)
		}
		if err := force(); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("force of an extent that lacks nothing: %v", err)
		}
		for range 2 {
			if _, err := r.seal(e, 7); core.CodeOf(err) != core.CodeConflict {
				t.Fatalf("two acknowledged records were cut off: %v", err)
			}
		}
		if row := r.row(e); row.Floor != 7 || row.Forced || row.L != 5 {
			t.Errorf("row %+v, want the floor in it", row)
		}
		for range 2 { // the first answer may be lost
			r.ok(force())
		}
		if row := r.row(e); !row.Forced || row.Lost != 2 || row.L != 5 {
			t.Errorf("row %+v, want it flagged with two records lost", row)
		}
		got, err := r.seal(e, 7)
		r.ok(err)
		if got.L != 5 || len(got.Holders) != 2 {
			t.Errorf("the writer got %v", got)
		}
		r.sleep(time.Second)
		r.whole(e, 5, 2)
	})
}

func TestSeal_RepeatIsCheap(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 5)
		_, err := r.seal(e, 5)
		r.ok(err)
		r.sleep(time.Second)
		before := r.stores[0].count("Fence") + r.stores[0].count("/Seal")
		version := r.row(e).Version
		for range 100 {
			_, err := r.seal(e, 5)
			r.ok(err)
		}
		if after := r.stores[0].count("Fence") + r.stores[0].count("/Seal"); after != before || r.row(e).Version != version {
			t.Errorf("%d calls to a store more, version %d after %d", after-before, r.row(e).Version, version)
		}
	})
}

// TestPatience_EndsOnlyWhenADecisionIsPossible over a few sets of answers.
func TestPatience_EndsOnlyWhenADecisionIsPossible(t *testing.T) {
	ok := func(id core.HostID, health core.Health, last core.Seq) core.FenceAnswer {
		return core.FenceAnswer{Identity: core.StoreIdentity{Store: id}, Health: health, Last: last, Checksum: uint32(last)}
	}
	for _, tc := range []struct {
		name    string
		answers []core.FenceAnswer
		want    time.Duration
	}{
		{"nobody", nil, time.Minute},
		{"one weak", []core.FenceAnswer{ok("a", core.HealthWeak, 3)}, time.Minute},
		{"one", []core.FenceAnswer{ok("a", core.HealthOK, 3)}, graceMore},
		{"two", []core.FenceAnswer{ok("a", core.HealthOK, 3), ok("b", core.HealthWeak, 3)}, graceEnough},
		{"below the floor", []core.FenceAnswer{ok("a", core.HealthOK, 1)}, time.Minute},
	} {
		in := seal.Input{Replicas: []core.HostID{"a", "b", "c"}, Floor: 2, Answers: make(map[core.HostID]core.FenceAnswer)}
		if tc.name == "one weak" {
			in.Floor = 0
		}
		for _, a := range tc.answers {
			in.Answers[a.Identity.Store] = a
		}
		if got := patienceFor(in, time.Minute); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestAudit_OperationsAreNoWarnings logs what an operator does to operations at info: it gives up no messages of
// stores.
func TestAudit_OperationsAreNoWarnings(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		_, err := (&service{r.ctl.Host}).EndOperation(r.t.Context(), connect.NewRequest(&pb.EndOperationRequest{Id: core.NewID(time.Now()).String(), Who: "operator"}))
		if err == nil {
			t.Error("an operation that is not there was cancelled")
		}
		if text := r.log.text(); !strings.Contains(text, `level=INFO msg="an operator changes the cluster" `) || strings.Contains(text, `level=WARN msg="an operator`) {
			t.Errorf("the log: %s", text)
		}
	})
}
