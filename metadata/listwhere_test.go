package metadata_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// listed counts the calls of List.
type listed struct {
	metadata.Store
	calls int
}

func (s *listed) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	s.calls++
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// TestListWhere_FewAmongMany: one row is asked for, and many that are not wanted come before it. A store whose calls go
// over the network answers that, too.
func TestListWhere_FewAmongMany(t *testing.T) {
	const others = 5000
	s := &listed{Store: memory.New()}
	t.Cleanup(func() { s.Close() })
	for i := range others + 3 {
		row := fmt.Sprintf("/t/q/%06d.retry", i)
		if i >= others {
			row = fmt.Sprintf("/t/r%d", i)
		}
		if err := metadata.Create(t.Context(), s, metadata.Names, metadata.NameKey(row), metadata.NameRecord{}); err != nil {
			t.Fatal(err)
		}
	}
	wanted := func(row string) bool { return !strings.HasSuffix(row, ".retry") }
	got, after := 0, ""
	for more := true; more; {
		rows, others, err := metadata.ListWhere(t.Context(), s, metadata.Names, metadata.PartitionPath, after, 2, metadata.One, wanted)
		if err != nil || len(rows) == 0 || len(rows) > 2 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		got, after, more = got+len(rows), rows[len(rows)-1].Key.Row, others
	}
	if got != 3 {
		t.Errorf("%d rows are listed, want 3", got)
	}
	if s.calls > 40 {
		t.Errorf("%d calls for %d rows, %d of which are wanted", s.calls, others+3, got)
	}
}
