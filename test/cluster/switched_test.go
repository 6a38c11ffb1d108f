package cluster

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/metadata"
)

// switched is a store whose faults can be turned on and off.
type switched struct {
	metadata.Store
	faulty metadata.Store
	on     atomic.Bool
}

func (s *switched) now() metadata.Store {
	if s.on.Load() {
		return s.faulty
	}
	return s.Store
}

func (s *switched) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	return s.now().Get(ctx, t, k, c)
}

func (s *switched) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	return s.now().List(ctx, t, partition, after, limit, c)
}

func (s *switched) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return s.now().Insert(ctx, t, k, value)
}

func (s *switched) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return s.now().Update(ctx, t, k, old, value, ttl)
}

func (s *switched) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return s.now().Delete(ctx, t, k, old)
}

func (s *switched) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.now().Put(ctx, t, k, value, at, ttl, c)
}

func (s *switched) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	return s.now().PutAll(ctx, t, rows, c)
}

func (s *switched) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return s.now().Remove(ctx, t, k, at, c)
}

func (s *switched) Close() error { return s.faulty.Close() }
