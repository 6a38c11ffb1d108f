package cluster

import (
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

// gate is a host's way to the metadata: it can refuse or delay single calls, and stands still with its host. It can be cut off from
// it in the network.
type gate struct {
	metadata.Store
	net    *network
	addr   string
	before atomic.Pointer[func(ctx context.Context, op Op) error]
	way    atomic.Pointer[metadata.Store] // instead of Store, unless nil
}

const (
	metaAddr    = "metadata-0:1" // of the metadata, as the network sees it
	metaTimeout = 3 * time.Second
)

// set makes f decide about each call; nil lets all pass.
func (g *gate) set(f func(ctx context.Context, op Op) error) {
	if f == nil {
		g.before.Store(nil)
		return
	}
	g.before.Store(&f)
}

func (g *gate) pass(ctx context.Context, op Op) error {
	var deadline <-chan time.Time
	for wait := g.net.unreachable(g.addr, metaAddr); wait != nil; wait = g.net.unreachable(g.addr, metaAddr) {
		if deadline == nil {
			deadline = time.After(metaTimeout)
		}
		select {
		case <-wait:
		case <-deadline:
			return core.Errorf(core.CodeUnavailable, "the metadata does not answer")
		case <-ctx.Done():
			return core.Errorf(core.CodeUnavailable, "the metadata does not answer: %w", context.Cause(ctx))
		}
	}
	if f := g.before.Load(); f != nil {
		return (*f)(ctx, op)
	}
	return nil
}

func (g *gate) store() metadata.Store {
	if s := g.way.Load(); s != nil {
		return *s
	}
	return g.Store
}

func (g *gate) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if err := g.pass(ctx, Op{Name: "Watch", Table: t.Name, Key: metadata.Key{Partition: partition}}); err != nil {
		return err
	}
	return g.store().Watch(ctx, t, partition, changed)
}

func (g *gate) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := g.pass(ctx, Op{Name: "Get", Table: t.Name, Key: k}); err != nil {
		return metadata.Row{}, err
	}
	return g.store().Get(ctx, t, k, c)
}

func (g *gate) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := g.pass(ctx, Op{Name: "List", Table: t.Name, Key: metadata.Key{Partition: partition}}); err != nil {
		return nil, false, err
	}
	return g.store().List(ctx, t, partition, after, limit, c)
}

func (g *gate) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if err := g.pass(ctx, Op{Name: "Insert", Table: t.Name, Key: k}); err != nil {
		return err
	}
	return g.store().Insert(ctx, t, k, value)
}

func (g *gate) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte) error {
	if err := g.pass(ctx, Op{Name: "Update", Table: t.Name, Key: k}); err != nil {
		return err
	}
	return g.store().Update(ctx, t, k, old, value)
}

func (g *gate) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	if err := g.pass(ctx, Op{Name: "Delete", Table: t.Name, Key: k}); err != nil {
		return err
	}
	return g.store().Delete(ctx, t, k, old)
}

func (g *gate) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if err := g.pass(ctx, Op{Name: "Put", Table: t.Name, Key: k}); err != nil {
		return err
	}
	return g.store().Put(ctx, t, k, value, at, ttl, c)
}

func (g *gate) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if err := g.pass(ctx, Op{Name: "PutAll", Table: t.Name, Rows: rows}); err != nil {
		return err
	}
	return g.store().PutAll(ctx, t, rows, c)
}

func (g *gate) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if err := g.pass(ctx, Op{Name: "Remove", Table: t.Name, Key: k}); err != nil {
		return err
	}
	return g.store().Remove(ctx, t, k, at, c)
}
