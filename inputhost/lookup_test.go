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

// behind is a store one copy of which lacks all rows of some tables.
type behind struct {
	metadata.Store
	lacks atomic.Pointer[metadata.Table]
}

func (b *behind) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if lacks := b.lacks.Load(); c == metadata.One && lacks != nil && lacks.Name == t.Name {
		return metadata.Row{}, core.Errorf(core.CodeNotFound, "not there yet")
	}
	return b.Store.Get(ctx, t, k, c)
}

func TestHost_MetadataBehind(t *testing.T) {
	for _, lacks := range []metadata.Table{metadata.Names, metadata.Queues} {
		t.Run(lacks.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &behind{}
				r := &harness{t: t, over: func(s metadata.Store) metadata.Store { b.Store = s; return b }}
				r.start(3, nil)
				defer r.stop()
				early := r.publisher("early", path)
				b.lacks.Store(&lacks)
				late := r.publisher("late", path)
				sleep(2 * readAnyway) // the records of published queues are read again
				early.send()
				late.send()
				early.flush()
				late.flush()
				r.all(2)
				if n := r.host.list()[0].streams(); len(n) != 2 {
					t.Errorf("%d streams, want two: neither was ended", len(n))
				}
			})
		})
	}
}

// A copy of a record that is older than what is known changes nothing, unless another run holds the metadata by now.
func TestSettings_OlderRecord(t *testing.T) {
	watching(t, func(r *harness, _ *watched) {
		id := r.queue("/t/older")
		p := r.publisher("p", "/t/older")
		p.send()
		p.flush()
		record, version, err := metadata.Read[metadata.QueueRecord](context.Background(), r.meta, metadata.Queues, metadata.QueueKey(id), metadata.One)
		if err != nil {
			t.Fatal(err)
		}
		q := r.host.list()[0]
		r.set(id, core.StatusReceiveOnly)
		sleep(2 * time.Second)
		q.apply(record.Spec, metadata.Reading{Version: version})
		want := func(what string, status core.Status) {
			t.Helper()
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.mu.record.Spec.Status != status {
				t.Errorf("%s: version %d, %s; want %s", what, q.mu.at.Version, q.mu.record.Spec.Status, status)
			}
		}
		want("an older record", core.StatusReceiveOnly)
		q.apply(record.Spec, metadata.Reading{Run: core.RunID{ID: core.NewID(time.Now())}, Version: version})
		want("an older record of another holder", record.Spec.Status)
	})
}

// The lists of hosts that publishers are told stay in order when the clock goes back.
func TestHost_ListsInOrder(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	h := &Host{deps: Deps{Now: func() time.Time { return now }}}
	last := h.nextList()
	for range 3 {
		now = now.Add(-time.Hour)
		next := h.nextList()
		if next <= last {
			t.Errorf("version %d after %d", next, last)
		}
		last = next
	}
}
