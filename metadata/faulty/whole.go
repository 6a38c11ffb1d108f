package faulty

import (
	"context"
	"time"

	"github.com/columbamq/columba/metadata"
)

// Whole is the same rows for a test that looks on: a read, whatever its consistency, is of the newest version of all
// replicas and repairs none; a Put or Remove is on all of them at once.
func (r *Replicas) Whole() metadata.Store { return whole{r} }

type whole struct{ *Replicas }

func (w whole) Get(ctx context.Context, t metadata.Table, k metadata.Key, _ metadata.Consistency) (metadata.Row, error) {
	return w.Replicas.Get(ctx, t, k, all)
}

func (w whole) List(ctx context.Context, t metadata.Table, partition, after string, limit int, _ metadata.Consistency) ([]metadata.Row, bool, error) {
	return w.Replicas.List(ctx, t, partition, after, limit, all)
}

func (w whole) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, _ metadata.Consistency) error {
	return w.Replicas.Put(ctx, t, k, value, at, ttl, all)
}

func (w whole) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, _ metadata.Consistency) error {
	return w.Replicas.PutAll(ctx, t, rows, all)
}

func (w whole) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, _ metadata.Consistency) error {
	return w.Replicas.Remove(ctx, t, k, at, all)
}
