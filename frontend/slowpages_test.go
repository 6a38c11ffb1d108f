package frontend

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// slowRows is metadata under load: each row that is read by its key takes a while.
type slowRows struct {
	metadata.Store
	each time.Duration
}

func (s slowRows) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	select {
	case <-time.After(time.Duration(len(keys)) * s.each):
		return metadata.GetRows(ctx, s.Store, t, keys, c)
	case <-ctx.Done():
		return nil, core.Errorf(core.CodeUnavailable, "read rows: %w", ctx.Err())
	}
}

// TestListQueues_SlowMetadata: a page that would not be read in the time of a call is shorter, and the list whole.
func TestListQueues_SlowMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		store := slowRows{memory.New(), 3 * cfg.CallTimeout / maxPage}
		for i := range maxPage + 1 {
			id := core.QueueID{ID: core.NewID(time.Now())}
			name := metadata.NameRecord{Queue: id, Spec: core.QueueSpec{Path: fmt.Sprintf("/t/q%05d", i)}.WithDefaults(1, 1)}
			for _, err := range []error{
				metadata.Create(t.Context(), store, metadata.Names, metadata.NameKey(name.Spec.Path), name),
				metadata.Create(t.Context(), store, metadata.Queues, metadata.QueueKey(id), name.Record()),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		s := &service{meta: store, cfg: cfg}
		listed := 0
		for after := ""; ; {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), cfg.CallTimeout)
			res, err := s.ListQueues(ctx, connect.NewRequest(&pb.ListQueuesRequest{After: after}))
			cancel()
			if err != nil {
				t.Fatalf("after %d queues and %s: %v", listed, time.Since(began), err)
			}
			for _, q := range res.Msg.Queues {
				if want := fmt.Sprintf("/t/q%05d", listed); q.Spec.Path != want {
					t.Fatalf("listed %s, want %s", q.Spec.Path, want)
				}
				listed++
			}
			if after = res.Msg.Next; after == "" {
				break
			}
		}
		if listed != maxPage+1 {
			t.Errorf("%d queues are listed, want %d", listed, maxPage+1)
		}
	})
}
