package clienttest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// gate is a process's way to the metadata. It is shut when the process has been killed: what the process still does is
// not saved.
type gate struct {
	metadata.Store
	shut atomic.Bool
}

func (g *gate) pass() error {
	if g.shut.Load() {
		return core.Errorf(core.CodeUnavailable, "the process was killed")
	}
	return nil
}

func (g *gate) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := g.pass(); err != nil {
		return metadata.Row{}, err
	}
	return g.Store.Get(ctx, t, k, c)
}

func (g *gate) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := g.pass(); err != nil {
		return nil, false, err
	}
	return g.Store.List(ctx, t, partition, after, limit, c)
}

func (g *gate) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Store.Insert(ctx, t, k, value)
}

func (g *gate) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Store.Update(ctx, t, k, old, value, ttl)
}

func (g *gate) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Store.Delete(ctx, t, k, old)
}

func (g *gate) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Store.Put(ctx, t, k, value, at, ttl, c)
}

func (g *gate) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Store.PutAll(ctx, t, rows, c)
}

func (g *gate) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if err := g.pass(); err != nil {
		return err
	}
	return g.Store.Remove(ctx, t, k, at, c)
}
