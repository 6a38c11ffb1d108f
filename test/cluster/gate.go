package cluster

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Op is one call to the metadata. Key is that of the first row, or only a partition.
type Op struct {
	Name  string // of the method, like "PutAll"
	Table string
	Key   metadata.Key
	Rows  []metadata.Row // of PutAll
}

func (o Op) writes() bool { return o.Name != "Get" && o.Name != "List" && o.Name != "Watch" }

// gate is a host's way to the metadata: it can refuse or delay single calls, and stands still with its host. It can be
// cut off from it in the network, in one direction too: calls are done then, and their answers are lost.
type gate struct {
	metadata.Store
	net    *network
	addr   string
	before atomic.Pointer[func(ctx context.Context, op Op) error]
	halt   atomic.Pointer[func(op Op) (held bool)] // waits while the process stands still; a call that it held is done whatever its deadline
	way    atomic.Pointer[metadata.Store]          // instead of Store, unless nil
	late   atomic.Pointer[delayed]                 // nil: writes are done at once

	majority *metadata.Majority // nil: the metadata are in one place
}

// delayed are writes that are on their way.
type delayed struct {
	arrive chan struct{}   // closed when they are done
	carry  func(do func()) // runs what waits for that
}

const (
	metaAddr    = "metadata-0:1" // of the metadata, as the network sees it
	metaTimeout = 3 * time.Second
)

// Majority implements metadata.Copied.
func (g *gate) Majority() *metadata.Majority { return g.majority }

// set makes f decide about each call; nil lets all pass.
func (g *gate) set(f func(ctx context.Context, op Op) error) {
	if f == nil {
		g.before.Store(nil)
		return
	}
	g.before.Store(&f)
}

// sent waits until a packet gets from one address to the other. An error is of that code.
func (g *gate) sent(ctx context.Context, from, to string, code core.Code) error {
	var deadline <-chan time.Time
	for wait := g.net.unsent(from, to); wait != nil; wait = g.net.unsent(from, to) {
		if deadline == nil {
			deadline = time.After(metaTimeout)
		}
		select {
		case <-wait:
		case <-deadline:
			return core.Errorf(code, "the metadata does not answer")
		case <-ctx.Done():
			return core.Errorf(code, "the metadata does not answer: %w", context.Cause(ctx))
		}
	}
	return nil
}

// through does a call, if it gets there, and answers what comes back of its answer.
func through[T any](ctx context.Context, g *gate, op Op, do func(context.Context, metadata.Store) (T, error)) (T, error) {
	var none T
	if f := g.halt.Load(); f != nil && (*f)(op) {
		ctx = context.WithoutCancel(ctx)
	}
	if err := g.sent(ctx, g.addr, metaAddr, core.CodeUnavailable); err != nil {
		return none, err
	}
	if f := g.before.Load(); f != nil {
		if err := (*f)(ctx, op); err != nil {
			return none, err
		}
	}
	store := g.Store
	if s := g.way.Load(); s != nil {
		store = *s
	}
	unanswered := core.CodeUnavailable
	if op.writes() {
		unanswered = core.CodeUnknown
		if late := g.late.Load(); late != nil {
			return doLate(ctx, late, func(ctx context.Context) (T, error) { return do(ctx, store) })
		}
	}
	if slow := g.net.slowness(g.addr); slow > 0 {
		time.Sleep(slow)
	}
	v, err := do(ctx, store)
	if lost := g.sent(ctx, metaAddr, g.addr, unanswered); lost != nil {
		return none, lost
	}
	return v, err
}

// doLate does a write when it arrives, whether or not somebody still waits for it.
func doLate[T any](ctx context.Context, late *delayed, do func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome, 1)
	late.carry(func() {
		<-late.arrive
		v, err := do(context.WithoutCancel(ctx))
		done <- outcome{v, err}
	})
	var none T
	select {
	case o := <-done:
		return o.v, o.err
	case <-time.After(metaTimeout):
		return none, core.Errorf(core.CodeUnknown, "the metadata does not answer")
	case <-ctx.Done():
		return none, core.Errorf(core.CodeUnknown, "the metadata does not answer: %w", context.Cause(ctx))
	}
}

// write is through for calls that answer nothing.
func (g *gate) write(ctx context.Context, op Op, do func(context.Context, metadata.Store) error) error {
	_, err := through(ctx, g, op, func(ctx context.Context, s metadata.Store) (struct{}, error) { return struct{}{}, do(ctx, s) })
	return err
}

func (g *gate) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	return g.write(ctx, Op{Name: "Watch", Table: t.Name, Key: metadata.Key{Partition: partition}}, func(ctx context.Context, s metadata.Store) error {
		return s.Watch(ctx, t, partition, changed)
	})
}

func (g *gate) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	return through(ctx, g, Op{Name: "Get", Table: t.Name, Key: k}, func(ctx context.Context, s metadata.Store) (metadata.Row, error) {
		return s.Get(ctx, t, k, c)
	})
}

func (g *gate) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	type page struct {
		rows []metadata.Row
		more bool
	}
	p, err := through(ctx, g, Op{Name: "List", Table: t.Name, Key: metadata.Key{Partition: partition}}, func(ctx context.Context, s metadata.Store) (p page, err error) {
		p.rows, p.more, err = s.List(ctx, t, partition, after, limit, c)
		return p, err
	})
	return p.rows, p.more, err
}

func (g *gate) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return g.write(ctx, Op{Name: "Insert", Table: t.Name, Key: k}, func(ctx context.Context, s metadata.Store) error {
		return s.Insert(ctx, t, k, value)
	})
}

// InsertVersion says the version of the row as Cassandra does, unless another change has covered it already.
func (g *gate) InsertVersion(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) (metadata.Version, error) {
	return through(ctx, g, Op{Name: "Insert", Table: t.Name, Key: k}, func(ctx context.Context, s metadata.Store) (metadata.Version, error) {
		if err := s.Insert(ctx, t, k, value); err != nil {
			return 0, err
		}
		row, err := s.Get(ctx, t, k, metadata.Serial)
		if err != nil || !bytes.Equal(row.Value, value) {
			return 0, nil
		}
		return row.Version, nil
	})
}

func (g *gate) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return g.write(ctx, Op{Name: "Update", Table: t.Name, Key: k}, func(ctx context.Context, s metadata.Store) error {
		return s.Update(ctx, t, k, old, value, ttl)
	})
}

func (g *gate) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return g.write(ctx, Op{Name: "Delete", Table: t.Name, Key: k}, func(ctx context.Context, s metadata.Store) error {
		return s.Delete(ctx, t, k, old)
	})
}

func (g *gate) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return g.write(ctx, Op{Name: "Put", Table: t.Name, Key: k}, func(ctx context.Context, s metadata.Store) error {
		return s.Put(ctx, t, k, value, at, ttl, c)
	})
}

func (g *gate) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	return g.write(ctx, Op{Name: "PutAll", Table: t.Name, Rows: rows}, func(ctx context.Context, s metadata.Store) error {
		return s.PutAll(ctx, t, rows, c)
	})
}

func (g *gate) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return g.write(ctx, Op{Name: "Remove", Table: t.Name, Key: k}, func(ctx context.Context, s metadata.Store) error {
		return s.Remove(ctx, t, k, at, c)
	})
}
