package controller

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

const (
	keepConsumed   = 10 * time.Minute
	keepUnconsumed = 30 * time.Minute
)

// calm has the controller look at what these tests do not change less often: they take hours.
func calm(c *Config) {
	c.DescribeEvery, c.ReconcileEvery, c.CountEvery = 2*time.Minute, 20*time.Second, 10*time.Minute
}

// keeping is a queue with retentions.
func (r *harness) keeping(consumed, unconsumed time.Duration) core.QueueID {
	r.t.Helper()
	id := r.queue(3, 2)
	_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(id), func(q *metadata.QueueRecord) error {
		q.Spec.ConsumedRetention, q.Spec.UnconsumedRetention = consumed, unconsumed
		return nil
	})
	r.ok(err)
	return id
}

// done records that a group has consumed an extent.
func (r *harness) done(group core.GroupID, e core.Extent) {
	r.t.Helper()
	r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Dones, metadata.DoneKey(group, e.ID, 0), metadata.DoneRecord{L: r.row(e).L}, time.Now(), 0, metadata.One))
}

// stays checks that an extent is whole, and that nobody has begun to retire it.
func (r *harness) stays(e core.Extent, l core.Seq, why string) {
	r.t.Helper()
	if row := r.row(e); row.State != core.ExtentSealed {
		r.t.Fatalf("%s: the extent is %s", why, row.State)
	}
	r.whole(e, l, len(e.Replicas))
}

func (r *harness) held(e core.Extent) (n int) {
	for _, s := range r.stores {
		if s.has(e.ID) != nil {
			n++
		}
	}
	return n
}

// goes checks that nothing is left of an extent some minutes later.
func (r *harness) goes(e core.Extent) {
	r.t.Helper()
	r.eventually("the extent is removed", 5*time.Minute, func() bool { _, live := r.ctl.extents.Get(e.ID); return !live })
	if n := r.held(e); n > 0 {
		r.t.Errorf("%d stores hold it still", n)
	}
	if row := r.row(e); row.State != core.ExtentRetired {
		r.t.Errorf("its tombstone says %s", row.State)
	}
	if n := rows(r, metadata.Extents, e.Queue.String()); n > 0 {
		r.t.Errorf("%d create rows are left", n)
	}
	if open, live := hints(r, metadata.HintOpen), hints(r, metadata.HintLive); open+live > 0 {
		r.t.Errorf("%d open and %d live hints are left", open, live)
	}
}

// value of a counter or a gauge.
func (r *harness) value(c prometheus.Collector) float64 {
	r.t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	r.ok(err)
	m := families[0].Metric[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

// edit changes a group's row.
func (r *harness) edit(queue core.QueueID, name string, f func(*metadata.GroupRecord)) {
	r.t.Helper()
	_, err := metadata.Change(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, name), func(g *metadata.GroupRecord) error { f(g); return nil })
	r.ok(err)
}

// TestRetain_ConsumedByAll: a group that is behind keeps an extent, also while it is disabled.
func TestRetain_ConsumedByAll(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.keeping(keepConsumed, keepUnconsumed)
		fast, slow := r.group(queue, "fast"), r.group(queue, "slow")
		r.edit(queue, "slow", func(g *metadata.GroupRecord) { g.Spec.Status = core.StatusDisabled })
		e := r.sealed(queue, 5)
		r.done(fast, e)
		r.sleep(keepUnconsumed - 5*time.Minute)
		r.stays(e, 5, "one group is behind")
		r.done(slow, e)
		state := dispatch.StartAfter(3)
		left := metadata.CheckpointKey(slow, e.ID, 0, newRun())
		r.ok(r.meta.Put(r.t.Context(), metadata.Checkpoints, left, state.Append(nil), time.Now(), 0, metadata.One))
		r.sleep(4 * time.Minute)
		r.stays(e, 5, "consumed a moment ago")
		r.sleep(keepConsumed - 4*time.Minute)
		r.goes(e)
		if n := rows(r, metadata.Checkpoints, left.Partition); n > 0 {
			t.Errorf("%d checkpoints stay behind", n)
		}
		if n := r.value(r.ctl.metrics.expired); n != 0 {
			t.Errorf("%v extents expired, all was consumed", n)
		}
		r.ctl.end()
		r.sleep(progress.DoneFor)
		r.ctl = r.startController(calm)
		if n := rows(r, metadata.Dones, fast.String()) + rows(r, metadata.Dones, slow.String()); n > 0 {
			t.Errorf("%d done rows stay behind", n)
		}
	})
}

// TestRetain_Unconsumed: what goes unconsumed is counted and recorded.
func TestRetain_Unconsumed(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.keeping(keepConsumed, keepUnconsumed)
		fast, slow := r.group(queue, "fast"), r.group(queue, "slow")
		e := r.sealed(queue, 5)
		r.done(fast, e)
		state := dispatch.StartAfter(3)
		r.ok(r.meta.Put(r.t.Context(), metadata.Checkpoints, metadata.CheckpointKey(slow, e.ID, 0, newRun()), state.Append(nil), time.Now(), 0, metadata.One))
		r.sleep(keepUnconsumed - 2*time.Second)
		r.stays(e, 5, "not old enough")
		r.goes(e)
		if n, messages := r.value(r.ctl.metrics.expired), r.value(r.ctl.metrics.expiredMessages); n != 1 || messages != 2 {
			t.Errorf("%v extents expired with %v messages, want 1 with 2", n, messages)
		}
		if n := rows(r, metadata.Audit, metadata.AuditPartition(time.Now())); n != 1 {
			t.Errorf("%d rows of audit, want 1", n)
		}
	})
}

// TestRetain_NoGroup: only unconsumed retention counts, and without that nothing goes.
func TestRetain_NoGroup(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		forever := r.sealed(r.keeping(keepConsumed, 0), 3)
		r.sleep(2 * keepUnconsumed)
		e := r.sealed(r.keeping(keepConsumed, keepUnconsumed), 5)
		r.sleep(keepUnconsumed - 2*time.Second)
		r.stays(e, 5, "not old enough")
		r.eventually("it goes", 5*time.Minute, func() bool { return r.held(e) == 0 })
		if n := r.value(r.ctl.metrics.expiredMessages); n != 5 {
			t.Errorf("%v messages expired, want 5", n)
		}
		r.stays(forever, 3, "no limit")
	})
}

// marked waits until an extent that is due is marked.
func (r *harness) marked(e core.Extent) {
	r.t.Helper()
	r.eventually("it is marked", keepConsumed+2*time.Minute, func() bool { return r.row(e).State == core.ExtentRetiring })
}

// halfMade is a group that is not started yet.
func (r *harness) halfMade(queue core.QueueID, name string) core.GroupID {
	r.t.Helper()
	id := core.GroupID{ID: core.NewID(time.Now())}
	g := metadata.GroupRecord{ID: id, Queue: queue, Spec: core.GroupSpec{Name: name, Status: core.StatusEnabled, Start: core.Start{Mode: core.StartEarliest}}}
	r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, name), g))
	return id
}

// TestRetain_GroupMadeMeanwhile: its row is there before the second look, which therefore undoes the mark; but the
// group met the mark.
func TestRetain_GroupMadeMeanwhile(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 1, edit: calm}, func(r *harness) {
		queue := r.keeping(keepConsumed, 2*keepUnconsumed)
		old := r.group(queue, "old")
		e := r.sealed(queue, 5)
		r.done(old, e)
		r.marked(e)
		fresh := r.halfMade(queue, "fresh")
		r.eventually("the mark is undone", time.Minute, func() bool { return r.row(e).State == core.ExtentSealed })
		r.sleep(keepConsumed)
		r.stays(e, 5, "a group is half made")
		r.ok(r.startGroup(r.ctl, queue, "fresh"))
		r.eventually("the group gets it whole", time.Minute, func() bool { return r.outputs[0].shares()[e.ID] != nil })
		r.stays(e, 5, "the new group has it before it")
		r.done(fresh, e)
		r.marked(e)
		late := r.halfMade(queue, "late")
		r.ok(r.startGroup(r.ctl, queue, "late"))
		d, _, err := metadata.Read[metadata.DoneRecord](r.t.Context(), r.meta, metadata.Dones, metadata.DoneKey(late, e.ID, 0), metadata.Serial)
		r.ok(err)
		if d.L != 5 {
			t.Errorf("the group that met the mark has %+v, want that it gets nothing", d)
		}
		for range 200 {
			if a := r.outputs[0].shares()[e.ID]; a != nil {
				r.t.Fatalf("group %s is given an extent that is being retired", a.Name)
			}
			r.sleep(5 * time.Second)
		}
		r.goes(e)
	})
}

// TestRetain_RewindMeetsTheMark: the group's epoch is raised between the two looks.
func TestRetain_RewindMeetsTheMark(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.keeping(keepConsumed, 2*keepUnconsumed)
		g := r.group(queue, "g")
		e := r.sealed(queue, 5)
		r.done(g, e)
		r.marked(e)
		r.edit(queue, "g", func(g *metadata.GroupRecord) { g.Epoch++ })
		r.eventually("the mark is undone", time.Minute, func() bool { return r.row(e).State == core.ExtentSealed })
		r.sleep(keepConsumed)
		r.stays(e, 5, "the group begins again")
	})
}

// TestRetain_LongerRetentionMeetsTheMark: the queue's owner changes his mind between the two looks.
func TestRetain_LongerRetentionMeetsTheMark(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		queue := r.keeping(keepConsumed, keepUnconsumed)
		r.done(r.group(queue, "g"), r.sealed(queue, 1))
		e := r.ctl.extents.Of(queue)[0].Extent
		r.marked(e)
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(queue), func(q *metadata.QueueRecord) error {
			q.Spec.ConsumedRetention, q.Spec.UnconsumedRetention = time.Hour, time.Hour
			return nil
		})
		r.ok(err)
		r.sleep(2 * time.Minute)
		r.stays(e, 1, "it is kept longer now")
	})
}

// TestRetain_ClocksDiffer: nothing is retired, and marks are undone, while a host's clock is far off.
func TestRetain_ClocksDiffer(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
		var ahead atomic.Int64
		r.serve("odd:1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(time.Duration(ahead.Load())).UTC().Format(http.TimeFormat))
		}))
		r.join(membership.Host{ID: "odd", Roles: []string{"frontend"}, Address: "odd:1", Run: newRun()})
		queue := r.keeping(keepConsumed, keepUnconsumed)
		e := r.sealed(queue, 5)
		r.done(r.group(queue, "g"), e)
		r.marked(e)
		ahead.Store(int64(-2 * time.Minute))
		r.sleep(2 * time.Minute)
		r.stays(e, 5, "a clock is behind")
		ahead.Store(int64(2 * time.Minute))
		r.sleep(keepUnconsumed)
		r.stays(e, 5, "a clock is ahead")
		if n := r.value(r.ctl.metrics.retentionStopped); n != 1 {
			t.Errorf("stopped is %v", n)
		}
		ahead.Store(int64(30 * time.Second))
		r.goes(e)
		if n := r.value(r.ctl.metrics.retentionStopped); n != 0 {
			t.Errorf("stopped is %v", n)
		}
	})
}

// overdueAtOnce has extents of some queues, each its own part, become due together.
func (r *harness) overdueAtOnce(queues, each int) (all []core.QueueID) {
	r.t.Helper()
	for range queues {
		q := r.keeping(keepConsumed, 100*time.Hour)
		for range each {
			r.sealed(q, 1)
		}
		all = append(all, q)
	}
	for _, q := range all {
		_, err := metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(q), func(q *metadata.QueueRecord) error {
			q.Spec.UnconsumedRetention = time.Second
			return nil
		})
		r.ok(err)
		r.ok(r.ctl.takeInHere(r.t.Context(), q, nil)) // as a frontend tells
	}
	return all
}

// in counts the extents in a state that the controller knows.
func (r *harness) in(state core.ExtentState) (n int) {
	for e := range r.ctl.extents.All(func(e *catalog.Extent) bool { return e.State == state }) {
		_ = e
		n++
	}
	return n
}

// TestRetain_AllThatIsDue: with metadata as far away as Cassandra, all that is due in many queues goes within the time
// that one extent takes.
func TestRetain_AllThatIsDue(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: calm, meta: distant{memory.New()}}, func(r *harness) {
		all := r.overdueAtOnce(30, 10)
		r.sleep(4 * time.Minute)
		left := 0
		for _, q := range all {
			left += len(r.ctl.extents.Of(q))
		}
		if left > 0 {
			t.Errorf("4 minutes later %d extents of %d are left", left, 30*10)
		}
		if n := r.value(r.ctl.metrics.overdue); n != 0 {
			t.Errorf("%v extents are overdue", n)
		}
	})
}

// slowSeals has each change of a seal row take long, once it is on.
type slowSeals struct {
	metadata.Store
	on *atomic.Bool
}

func (s slowSeals) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if t == metadata.Seals && s.on.Load() {
		<-time.After(2 * time.Second)
	}
	return s.Store.Update(ctx, t, k, old, value, ttl)
}

// TestRetain_TimeOfARound: a round begins nothing more once half of the time to the next one is over, and the gauge
// tells what it left.
func TestRetain_TimeOfARound(t *testing.T) {
	on := new(atomic.Bool)
	bubble(t, harnessOptions{stores: 3, edit: calm, meta: slowSeals{memory.New(), on}}, func(r *harness) {
		const n = 3*retirement.AtOnce + 8
		queue := r.overdueAtOnce(1, n)[0]
		on.Store(true)
		r.eventually("the first is marked", time.Minute, func() bool { return r.in(core.ExtentRetiring) > 0 })
		r.sleep(20 * time.Second) // 64 take 8 s, 16 side by side: so there is time for two such parts
		if got := r.in(core.ExtentRetiring); got != 2*retirement.AtOnce {
			t.Errorf("a round marked %d extents, want %d", got, 2*retirement.AtOnce)
		}
		if left := r.value(r.ctl.metrics.overdue); left != n-2*retirement.AtOnce {
			t.Errorf("%v extents are overdue, want %d", left, n-2*retirement.AtOnce)
		}
		on.Store(false)
		r.eventually("all are removed", 5*time.Minute, func() bool { return !r.ctl.extents.Has(queue) })
		r.sleep(time.Minute)
		if left := r.value(r.ctl.metrics.overdue); left != 0 {
			t.Errorf("%v extents are overdue, and none is there", left)
		}
	})
}
