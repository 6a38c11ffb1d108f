package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/metadata"
)

// thin is a store whose reads at One lack the rows of a table while it is on.
type thin struct {
	metadata.Store
	table metadata.Table
	on    atomic.Bool
}

func (s *thin) lacks(t metadata.Table, c metadata.Consistency) bool {
	return t == s.table && c == metadata.One && s.on.Load()
}

func (s *thin) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if s.lacks(t, c) {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return s.Store.Get(ctx, t, k, c)
}

func (s *thin) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if s.lacks(t, c) {
		return nil, false, nil
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// TestMetadata_GroupMissingAtOne: one copy of the metadata lacks the group for a minute. Its consumer goes on, and
// another one may come.
func TestMetadata_GroupMissingAtOne(t *testing.T) {
	var meta *thin
	o := Options{Meta: func(s metadata.Store) metadata.Store {
		meta = &thin{Store: s, table: metadata.Groups}
		return meta
	}}
	bubble(t, o, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Ack())
		meta.on.Store(true)
		for _, body := range []string{"b", "c"} {
			sleep(30 * time.Second)
			w.publish(body)
			w.ok(w.next(con, body, 1).Ack())
		}
		w.close(con)
		w.publish("d")
		con = w.consumer("g")
		w.ok(w.next(con, "d", 1).Ack())
		w.close(con)
	})
}
