package inputhost

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// frozen is metadata of which one copy has the names as they were at an instant.
type frozen struct {
	metadata.Store
	names atomic.Pointer[map[metadata.Key]metadata.Row] // nil: the copy is up to date
}

func (s *frozen) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if names := s.names.Load(); names != nil && c == metadata.One && t == metadata.Names {
		if row, ok := (*names)[k]; ok {
			return row, nil
		}
	}
	return s.Store.Get(ctx, t, k, c)
}

// TestHost_PathMadeAgain: the copy of the metadata that lets publishers in still has the queue that had the path
// before. The controller knows that this one was deleted; the publishers get to the queue that has the path now.
func TestHost_PathMadeAgain(t *testing.T) {
	for _, path := range []string{"/t/remade", chainPath} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meta := &frozen{}
				r := &harness{t: t, over: func(s metadata.Store) metadata.Store { meta.Store = s; return meta }}
				r.start(3, nil)
				defer r.stop()
				if path == chainPath {
					var place atomic.Uint64
					r.ctl.set(func() { r.ctl.mu.chain = func() (uint64, error) { return place.Add(1), nil } })
				}
				old := r.queue(path)
				key := metadata.NameKey(path)
				row, err := r.meta.Get(t.Context(), metadata.Names, key, metadata.Serial)
				if err != nil {
					t.Fatal(err)
				}
				if err := metadata.Delete(t.Context(), r.meta, metadata.Names, key, row.Version); err != nil {
					t.Fatal(err)
				}
				sleep(time.Second)
				now := r.queue(path)
				r.ctl.set(func() { r.ctl.mu.gone = old })
				meta.names.Store(&map[metadata.Key]metadata.Row{key: row})
				for _, name := range []string{"first", "second"} {
					p := r.publisher(name, path)
					p.send()
					p.flush()
				}
				r.all(2)
				var published []core.QueueID
				for _, q := range r.host.list() {
					if q.published() {
						published = append(published, q.id)
					}
				}
				if len(published) != 1 || published[0] != now {
					t.Errorf("publishers are at queues %v, want %s", published, now)
				}
			})
		})
	}
}
