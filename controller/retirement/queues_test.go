package retirement

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/deletion"
	"github.com/columbamq/columba/metadata/memory"
)

// doomed is a store whose user crashes after some writes: all that follow fail.
type doomed struct {
	metadata.Store
	left atomic.Int64
}

func (s *doomed) Insert(ctx context.Context, t metadata.Table, k metadata.Key, v []byte) error {
	if s.left.Add(-1) < 0 {
		return errCrashed
	}
	return s.Store.Insert(ctx, t, k, v)
}

func (s *doomed) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, v []byte, ttl time.Duration) error {
	if s.left.Add(-1) < 0 {
		return errCrashed
	}
	return s.Store.Update(ctx, t, k, old, v, ttl)
}

func (s *doomed) Put(ctx context.Context, t metadata.Table, k metadata.Key, v []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if s.left.Add(-1) < 0 {
		return errCrashed
	}
	return s.Store.Put(ctx, t, k, v, at, ttl, c)
}

func (s *doomed) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if s.left.Add(-1) < 0 {
		return errCrashed
	}
	return s.Store.Remove(ctx, t, k, at, c)
}

// estate is a queue with two groups, which have dead letter queues; one has a retry queue, too. The dead letter queue
// of the other one has a group.
type estate struct {
	t    *testing.T
	meta metadata.Store
	name metadata.NameRecord
	now  time.Time
}

func newEstate(t *testing.T) *estate {
	x := &estate{t: t, meta: memory.New(), now: time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)}
	t.Cleanup(func() { x.meta.Close() })
	x.name = x.queue("/t/a", core.GroupID{})
	x.group(x.name, "one", true)
	letters := x.group(x.name, "two", false)
	x.group(letters, "reader", true)
	return x
}

func (x *estate) ok(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *estate) queue(path string, owner core.GroupID) metadata.NameRecord {
	x.t.Helper()
	name := metadata.NameRecord{Queue: core.QueueID{ID: core.NewID(x.now)}, Spec: core.QueueSpec{Path: path}.WithDefaults(1, 1), Owner: owner}
	x.ok(metadata.Create(x.t.Context(), x.meta, metadata.Names, metadata.NameKey(path), name))
	x.ok(metadata.Create(x.t.Context(), x.meta, metadata.Queues, metadata.QueueKey(name.Queue), name.Record()))
	return name
}

// group answers its dead letter queue, if it has one.
func (x *estate) group(q metadata.NameRecord, name string, retry bool) (dlq metadata.NameRecord) {
	x.t.Helper()
	g := metadata.GroupRecord{
		ID: core.GroupID{ID: core.NewID(x.now)}, Queue: q.Queue, Started: true, Spec: core.GroupSpec{Queue: q.Spec.Path, Name: name}.WithDefaults(),
	}
	if !g.Spec.OnDLQ() {
		dlq = x.queue(core.DLQPath(q.Spec.Path, name), g.ID)
		g.DLQ = dlq.Queue
	}
	if retry {
		g.Retry = x.queue(core.RetryPath(q.Spec.Path, name), g.ID).Queue
	}
	x.ok(metadata.Create(x.t.Context(), x.meta, metadata.Groups, metadata.GroupKey(q.Queue, name), g))
	return dlq
}

// live are the paths, the queues and the groups that are not deleted, and the hints to queues that are.
func (x *estate) live() (paths, queues, groups, hints int) {
	x.t.Helper()
	ctx := x.t.Context()
	for n, err := range metadata.All[metadata.NameRecord](ctx, x.meta, metadata.Names, metadata.PartitionPath, metadata.Serial) {
		if x.ok(err); !n.Value.Queue.IsZero() {
			paths++
		}
	}
	for q, err := range metadata.All[metadata.QueueRecord](ctx, x.meta, metadata.Queues, metadata.PartitionID, metadata.Serial) {
		if x.ok(err); q.Value.Spec.Status != core.StatusDeleted {
			queues++
		}
		for g, err := range metadata.All[metadata.GroupRecord](ctx, x.meta, metadata.Groups, q.Value.ID.String(), metadata.Serial) {
			if x.ok(err); g.Value.Spec.Status != core.StatusDeleted {
				groups++
			}
		}
	}
	rows, _, err := x.meta.List(ctx, metadata.Work, metadata.PartitionDeletedQueue, "", 100, metadata.Serial)
	x.ok(err)
	return paths, queues, groups, len(rows)
}

func (x *estate) runner(after time.Duration) *Runner {
	return New(Config{Responsible: all, Meta: x.meta, Extents: catalog.NewExtents(), Now: func() time.Time { return x.now.Add(after) }, Log: slog.New(slog.DiscardHandler)}, nil)
}

// TestDeletedQueues_CrashAnywhere has a frontend crash at each of its writes while it deletes a queue: a controller
// leaves all of it or nothing.
func TestDeletedQueues_CrashAnywhere(t *testing.T) {
	for writes := int64(0); ; writes++ {
		x := newEstate(t)
		paths, queues, groups, _ := x.live()
		meta := &doomed{Store: x.meta}
		meta.left.Store(writes)
		d := deletion.Deletion{Meta: meta, Now: func() time.Time { return x.now }}
		err := d.Queue(t.Context(), x.name)
		x.runner(finishAfter).deletedQueues(t.Context())
		p, q, g, _ := x.live()
		switch {
		case writes > 1 && (p > 0 || q > 0 || g > 0):
			t.Errorf("a crash after %d writes leaves %d paths, %d queues, %d groups", writes, p, q, g)
		case writes <= 1 && (p != paths || q != queues || g != groups):
			t.Errorf("a crash after %d writes, before the mark, leaves %d paths, %d queues, %d groups", writes, p, q, g)
		}
		x.runner(deletedFor).deletedQueues(t.Context())
		if _, _, _, hints := x.live(); hints > 0 {
			t.Errorf("a crash after %d writes leaves a hint", writes)
		}
		if err == nil {
			t.Logf("%d writes", writes)
			return
		}
	}
}

// TestDeletedGroups_BuiltInQueues: a frontend crashes at each of its writes while it deletes a group. A controller
// deletes the group's built-in queues.
func TestDeletedGroups_BuiltInQueues(t *testing.T) {
	for writes := int64(0); ; writes++ {
		x := newEstate(t)
		meta := &doomed{Store: x.meta}
		meta.left.Store(writes)
		g, _, err := metadata.Read[metadata.GroupRecord](t.Context(), x.meta, metadata.Groups, metadata.GroupKey(x.name.Queue, "one"), metadata.Serial)
		x.ok(err)
		err = deletion.Deletion{Meta: meta, Now: func() time.Time { return x.now }}.Group(t.Context(), g)
		x.runner(finishAfter).deletedGroups(t.Context())
		want := 5
		if writes > 1 { // the group's row says it
			want = 3
		}
		if paths, queues, _, _ := x.live(); paths != want || queues != want {
			t.Errorf("a crash after %d writes leaves %d paths and %d queues, want %d", writes, paths, queues, want)
		}
		if err == nil {
			return
		}
	}
}

// TestDeletedQueues_GroupCreatedBeside: a frontend writes a group and its dead letter queue after the deletion of their
// queue has listed the groups, and dies. A controller deletes them, also after a deletion that another frontend left.
func TestDeletedQueues_GroupCreatedBeside(t *testing.T) {
	for _, writes := range []int64{2, 1000} {
		x := newEstate(t)
		meta := &doomed{Store: x.meta}
		meta.left.Store(writes)
		err := deletion.Deletion{Meta: meta, Now: func() time.Time { return x.now }}.Queue(t.Context(), x.name)
		if (err == nil) != (writes > 2) {
			t.Fatalf("the deletion ends with %v", err)
		}
		x.runner(finishAfter).deletedQueues(t.Context())
		x.group(x.name, "late", false)
		for _, after := range []time.Duration{2 * finishAfter, deletedFor, 2 * deletedFor} {
			x.runner(after).deletedQueues(t.Context())
		}
		if paths, queues, groups, hints := x.live(); paths > 0 || queues > 0 || groups > 0 || hints > 0 {
			t.Errorf("a deletion with %d writes leaves %d paths, %d queues, %d groups, %d hints", writes, paths, queues, groups, hints)
		}
	}
}

func all(core.ID) bool { return true }

// TestDeletedQueues_OfOtherControllersStay: another controller finishes them.
func TestDeletedQueues_OfOtherControllersStay(t *testing.T) {
	x := newEstate(t)
	meta := &doomed{Store: x.meta}
	meta.left.Store(2)
	if err := (deletion.Deletion{Meta: meta, Now: func() time.Time { return x.now }}).Queue(t.Context(), x.name); err == nil {
		t.Fatal("the frontend did not crash")
	}
	paths, _, _, hints := x.live()
	r := x.runner(deletedFor)
	r.cfg.Responsible = func(core.ID) bool { return false }
	r.deletedQueues(t.Context())
	if p, _, _, n := x.live(); p != paths || n != hints || hints == 0 {
		t.Errorf("%d paths and %d hints are left, want %d and %d", p, n, paths, hints)
	}
	r.cfg.Responsible = all
	r.deletedQueues(t.Context())
	if p, _, _, n := x.live(); p != 0 || n != 0 {
		t.Errorf("%d paths and %d hints are left", p, n)
	}
}

// deaf are metadata that do not answer.
type deaf struct {
	metadata.Store
	err error
}

func (d deaf) Get(context.Context, metadata.Table, metadata.Key, metadata.Consistency) (metadata.Row, error) {
	return metadata.Row{}, d.err
}

func (d deaf) List(context.Context, metadata.Table, string, string, int, metadata.Consistency) ([]metadata.Row, bool, error) {
	return nil, false, d.err
}

// TestRounds_SayNothingOfMetadataThatDoNotAnswer: there is nothing to retire or delete, and rounds that cannot read
// that fill no log.
func TestRounds_SayNothingOfMetadataThatDoNotAnswer(t *testing.T) {
	for code, says := range map[core.Code]bool{core.CodeUnavailable: false, core.CodeNoMajority: false, core.CodeCorrupt: true} {
		x := newEstate(t)
		extents := catalog.NewExtents()
		extents.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: core.Extent{ID: core.ExtentID{ID: core.NewID(x.now)}, Queue: x.name.Queue}}})
		var log bytes.Buffer
		r := New(Config{
			Responsible: all, Meta: deaf{x.meta, core.Errorf(code, "no answer")}, Extents: extents, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Metrics: Metrics{Overdue: prometheus.NewGauge(prometheus.GaugeOpts{})},
		}, nil)
		r.round(t.Context())
		r.deletedGroups(t.Context())
		r.Deleted(t.Context())
		if said := strings.Count(log.String(), "level="); says != (said > 0) {
			t.Errorf("%s: %d lines:\n%s", code, said, log.String())
		}
	}
}
