package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/retell"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// looksAt counts the looks at queues: each lists the groups of one.
type looksAt struct {
	metadata.Store
	n atomic.Int64
}

func (x *looksAt) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Groups {
		x.n.Add(1)
	}
	return x.Store.List(ctx, t, partition, after, limit, c)
}

// TestRounds_RestWhileNothingChanges: a queue with work in which nothing changes is looked at ever less often, each
// forty minutes at least, and soon again after it was touched.
func TestRounds_RestWhileNothingChanges(t *testing.T) {
	meta := &looksAt{Store: memory.New()}
	bubble(t, harnessOptions{stores: 1, outputs: 1, meta: meta, edit: calm}, func(r *harness) {
		queue := r.queue(1, 1)
		r.group(queue, "g")
		r.extent(queue, 1)
		before := int64(0)
		looks := func(during time.Duration) int64 { // since it was called last, too
			r.sleep(during)
			n := meta.n.Load() - before
			before += n
			return n
		}
		looks(time.Second)
		if n := looks(6 * time.Minute); n < 4 || n > 6 {
			t.Errorf("%d looks in six minutes without a change, want after 10, 20, 40, 80 and 160 s", n)
		}
		if n := looks(time.Hour); n < 2 || n > 4 {
			t.Errorf("%d looks in the hour after that, want after 5, 10 and 20 minutes", n)
		}
		if n := looks(5 * time.Hour); n < 7 || n > 8 {
			t.Errorf("%d looks in five hours, want each forty minutes", n)
		}
		r.ctl.shares.touch(queue)
		if n := looks(time.Minute); n < 3 || n > 4 {
			t.Errorf("%d looks in the minute after it was touched, want at once, after 10 and after 20 s", n)
		}
	})
}

// TestRounds_RestWithoutOutputHosts: nobody consumes while there is no output host, so that queues rest that are
// behind. They are looked at soon again once there is one.
func TestRounds_RestWithoutOutputHosts(t *testing.T) {
	meta := &looksAt{Store: memory.New()}
	bubble(t, harnessOptions{stores: 1, outputs: 1, meta: meta}, func(r *harness) {
		queue := r.queue(1, 1)
		group := r.group(queue, "g")
		old := r.sealed(queue, 1)
		r.eventually("it has an owner", 5*time.Second, func() bool { return len(r.shared(old)) == 1 })
		output := r.outputs[0]
		member := r.mu.members[output.id]
		r.sleep(10 * time.Minute)
		before := meta.n.Load()
		if r.sleep(time.Minute); meta.n.Load()-before < 5 {
			t.Errorf("%d looks in a minute beside an output host, want each ten seconds", meta.n.Load()-before)
		}
		r.kill(output.id)
		r.leave(output.id)
		r.sleep(15 * time.Minute)
		before = meta.n.Load()
		if r.sleep(time.Hour); meta.n.Load()-before > 13 {
			t.Errorf("%d looks in an hour without output hosts, want each as seldom as it may", meta.n.Load()-before)
		}
		member.Run = newRun()
		r.upOutput(output)
		r.join(member)
		r.sleep(time.Second)
		r.done(group, old)
		r.eventually("the consumed share has no owner any more", 15*time.Second, func() bool { return r.ownerOf(group, old.ID) == "" })
	})
}

// TestRounds_AnotherControllerStartsAGroup: the controller that is responsible for a queue hears of a group that
// another one started, and does not wait for its next look.
func TestRounds_AnotherControllerStartsAGroup(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1, edit: calm}, func(r *harness, both [2]*running) {
		queue := r.queue(1, 1)
		responsible := of(both, queue)
		e, err := both[responsible].ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		r.sleep(16 * time.Minute) // it looks seldom by now
		g := metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(time.Now())}, Queue: queue, Created: time.Now(), Spec: core.GroupSpec{Name: "g"}.WithDefaults()}
		r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), g))
		r.ok(r.startGroup(both[1-responsible], queue, "g"))
		r.eventually("its share has an owner", 3*time.Second, func() bool {
			return both[responsible].shares.Get(catalog.Share{Group: g.ID, Extent: e.ID}).Owner.Host != ""
		})
	})
}

// TestHear_WithoutAWait: a caller that waits for no lists hears at once that the queue is to be looked at, and need not
// tell again.
func TestHear_WithoutAWait(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: calm}, func(r *harness) {
		queue := r.queue(1, 1)
		e := r.extent(queue, 1)
		r.sleep(16 * time.Minute)
		group := r.halfMade(queue, "g")
		r.edit(queue, "g", func(g *metadata.GroupRecord) { g.Started = true })
		r.ok(call(r.t.Context(), (&service{r.ctl.Host}).HearShares, &pb.HearSharesRequest{Queue: queue.ID[:]}))
		r.eventually("its share has an owner", 3*time.Second, func() bool { return r.ownerOf(group, e.ID) != "" })
	})
}

// TestRounds_AnUnreachableControllerHearsLater: the controller that is responsible for a queue cannot be reached when
// another one starts a group. It hears of the group once it can be, and the group does not wait for its next look.
func TestRounds_AnUnreachableControllerHearsLater(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1, edit: calm}, func(r *harness, both [2]*running) {
		queue := r.queue(1, 1)
		responsible := of(both, queue)
		e, err := both[responsible].ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		r.sleep(16 * time.Minute)
		group := r.halfMade(queue, "g")
		r.kill(both[responsible].deps.Members.Self().ID) // its address; the controller goes on
		r.ok(r.startGroup(both[1-responsible], queue, "g"))
		r.sleep(time.Minute)
		r.answer(both[responsible])
		owned := func() bool {
			return both[responsible].shares.Get(catalog.Share{Group: group, Extent: e.ID}).Owner.Host != ""
		}
		if owned() {
			t.Error("it has heard of the group while nobody reached it: the test shows nothing")
		}
		r.eventually("its share has an owner", retell.Every+2*time.Second, owned)
	})
}

// TestRounds_ConsumedExtentsOfABusyQueue: shares that are consumed leave the lists also while something else happens in
// their queue every few seconds.
func TestRounds_ConsumedExtentsOfABusyQueue(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		queue := r.queue(1, 1)
		group := r.group(queue, "g")
		old := r.sealed(queue, 1)
		r.extent(queue, 1)
		r.eventually("it has an owner", 5*time.Second, func() bool { return len(r.shared(old)) == 1 })
		r.done(group, old)
		for range 20 {
			r.sleep(3 * time.Second)
			r.ctl.shares.touch(queue)
		}
		if n := len(r.shared(old)); n > 0 {
			t.Errorf("%d groups have the consumed extent after a minute", n)
		}
	})
}

// duringRewind is metadata that a controller is cut off from once its rewind of a group has begun.
type duringRewind struct {
	metadata.Store
	cut atomic.Pointer[refusing]
}

func (x *duringRewind) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	err := x.Store.Update(ctx, t, k, old, value, ttl)
	if t == metadata.Groups {
		if cut := x.cut.Swap(nil); cut != nil {
			cut.on.Store(true)
		}
	}
	return err
}

// TestRewind_LeftInAQuietQueue: a rewind whose controller fails in the middle is finished as soon in a queue that is
// looked at seldom.
func TestRewind_LeftInAQuietQueue(t *testing.T) {
	meta := &duringRewind{Store: memory.New()}
	two(t, harnessOptions{stores: 1, outputs: 1, meta: meta}, func(r *harness, both [2]*running) {
		queue := r.queueOf(both, 0)
		r.group(queue, "g")
		r.extent(queue, 1)
		r.sleep(4*time.Minute + 15*time.Second) // the next look is a minute later, nearly
		meta.cut.Store(r.cut)
		began := time.Now()
		if _, err := r.rewindGroup(both[1], queue, "g", core.Start{Mode: core.StartEarliest}, 0); err == nil {
			t.Fatal("it was rewound without metadata")
		}
		r.eventually("it is finished", 5*time.Minute, func() bool {
			g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
			r.ok(err)
			return g.Rewind == nil && g.LastSeek != nil
		})
		if took := time.Since(began); took > abandonedAfter+lookEvery+5*time.Second {
			t.Errorf("it is finished after %s", took)
		}
	})
}

// queueOf makes a queue that one of two controllers is responsible for.
func (r *harness) queueOf(both [2]*running, responsible int) core.QueueID {
	r.t.Helper()
	for {
		if q := r.queue(1, 1); of(both, q) == responsible {
			return q
		}
		r.sleep(time.Millisecond)
	}
}
