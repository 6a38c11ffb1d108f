package remote_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// byRows is a store whose rows can only be read many at a time.
type byRows struct {
	metadata.Store
	t     *testing.T
	calls atomic.Int64
	most  atomic.Int64
}

func (s *byRows) Get(context.Context, metadata.Table, metadata.Key, metadata.Consistency) (metadata.Row, error) {
	s.t.Error("the server reads row by row")
	return metadata.Row{}, core.Errorf(core.CodeInternal, "row by row")
}

func (s *byRows) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	s.calls.Add(1)
	s.most.Store(max(s.most.Load(), int64(len(keys))))
	return metadata.GetRows(ctx, s.Store, t, keys, c)
}

// A server has its store read rows many at a time, and not more than it may answer.
func TestHandler_ReadsRowsTogether(t *testing.T) {
	behind := &byRows{Store: memory.New(), t: t}
	s := serve(behind, plain)
	defer s.Close()
	var keys []metadata.Key
	for i := range 100 {
		k := key(fmt.Sprintf("%03d", i))
		if i%3 != 0 {
			if err := behind.Insert(t.Context(), swaps, k, make([]byte, metadata.MaxValue)); err != nil {
				t.Fatal(err)
			}
		}
		keys = append(keys, k)
	}
	rows, err := metadata.GetRows(t.Context(), s, swaps, keys, metadata.One)
	if err != nil || len(rows) != 66 {
		t.Fatalf("%d rows, %v; want 66", len(rows), err)
	}
	for i, row := range rows {
		if want := fmt.Sprintf("%03d", i+i/2+1); row.Key.Row != want {
			t.Errorf("row %d is %s, want %s", i, row.Key.Row, want)
		}
	}
	if calls, most := behind.calls.Load(), behind.most.Load(); calls > 12 || most > 16 {
		t.Errorf("the store was asked %d times, for up to %d rows; want about 10 times 16", calls, most)
	}
}
