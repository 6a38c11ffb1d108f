package metadatatest

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
)

// slow is the store with delays, refusals that are tried again, and stale reads at One: what is certain stays certain.
func slow(s metadata.Store) metadata.Store {
	return patient{faulty.New(s, faulty.Faults{Seed: 1, Before: 0.2, Stale: 0.5, Delay: 100 * time.Microsecond})}
}

// faultyStore opens a store whose every fault has its chance.
func faultyStore(t *testing.T, open func(*testing.T) metadata.Store, seed uint64) metadata.Store {
	return opened(t, func(t *testing.T) metadata.Store {
		return faulty.New(open(t), faulty.Faults{Seed: seed, Before: 0.05, Lost: 0.1, Part: 0.2, Stale: 0.3, Delay: 300 * time.Microsecond})
	})
}

// patient tries again what was not done.
type patient struct{ metadata.Store }

func try(call func() error) error {
	for {
		if err := call(); core.CodeOf(err) != core.CodeUnavailable {
			return err
		}
	}
}

func (p patient) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (row metadata.Row, err error) {
	err = try(func() (err error) {
		row, err = p.Store.Get(ctx, t, k, c)
		return err
	})
	return row, err
}

func (p patient) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) (rows []metadata.Row, more bool, err error) {
	err = try(func() (err error) {
		rows, more, err = p.Store.List(ctx, t, partition, after, limit, c)
		return err
	})
	return rows, more, err
}

func (p patient) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return try(func() error { return p.Store.Insert(ctx, t, k, value) })
}

func (p patient) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return try(func() error { return p.Store.Update(ctx, t, k, old, value, ttl) })
}

func (p patient) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return try(func() error { return p.Store.Delete(ctx, t, k, old) })
}

func (p patient) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return try(func() error { return p.Store.Put(ctx, t, k, value, at, ttl, c) })
}

func (p patient) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	return try(func() error { return p.Store.PutAll(ctx, t, rows, c) })
}

func (p patient) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return try(func() error { return p.Store.Remove(ctx, t, k, at, c) })
}
