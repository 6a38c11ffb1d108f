package retirement

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// toldOf is metadata where somebody tells of changes while rows are read.
type toldOf struct {
	metadata.Store
	tell func()
	read int
}

func (m *toldOf) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	m.read += len(keys)
	m.tell()
	return metadata.GetRows(ctx, m.Store, t, keys, c)
}

// TestRunner_ToldOfOneQueue: calls without a break, of one queue and of queues that are not there, have the row of that
// queue read again, and no others.
func TestRunner_ToldOfOneQueue(t *testing.T) {
	meta := memory.New()
	defer meta.Close()
	var queues []core.QueueID
	for range 10 {
		q := metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(time.Now())}, Spec: core.QueueSpec{Status: core.StatusEnabled}}
		if err := metadata.Create(t.Context(), meta, metadata.Queues, metadata.QueueKey(q.ID), q); err != nil {
			t.Fatal(err)
		}
		queues = append(queues, q.ID)
	}
	rows := &toldOf{Store: meta}
	r := New(Config{Responsible: all, Meta: rows, Extents: catalog.NewExtents(), Now: time.Now, Log: slog.New(slog.DiscardHandler)}, &clerk{})
	rows.tell = func() {
		r.Changed(queues[3])
		r.Changed(core.QueueID{ID: core.NewID(time.Now())})
	}
	for round, want := range []int{10, 1, 1} {
		rows.read = 0
		n := 0
		for range r.queues(t.Context(), slices.Clone(queues)) {
			n++
		}
		if n != len(queues) || rows.read != want {
			t.Errorf("round %d: %d queues, %d rows were read, want %d and %d", round, n, rows.read, len(queues), want)
		}
	}
}
