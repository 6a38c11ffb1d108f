package metadatatest

import (
	"context"
	"time"

	"github.com/columbamq/columba/metadata"
)

// AtQuorum is a store whose plain writes are at Quorum, whatever their caller asks for. The suite reads at Quorum what
// it wrote at One: a store with several replicas promises only of writes at Quorum that such a read sees them.
type AtQuorum struct{ metadata.Store }

// Put implements metadata.Store.
func (s AtQuorum) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, _ metadata.Consistency) error {
	return s.Store.Put(ctx, t, k, value, at, ttl, metadata.Quorum)
}

// PutAll implements metadata.Store.
func (s AtQuorum) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, _ metadata.Consistency) error {
	return s.Store.PutAll(ctx, t, rows, metadata.Quorum)
}

// Remove implements metadata.Store.
func (s AtQuorum) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, _ metadata.Consistency) error {
	return s.Store.Remove(ctx, t, k, at, metadata.Quorum)
}
