package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/metadata"
)

func TestStore_Sweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, table := New(), metadata.Table{Name: "put", Rule: metadata.RulePut}
		put := func(row string, ttl time.Duration) {
			t.Helper()
			if err := s.Put(t.Context(), table, metadata.Key{Partition: row, Row: row}, nil, time.Unix(1, 0), ttl, metadata.One); err != nil {
				t.Fatal(err)
			}
		}
		put("kept", 0)
		put("expires", time.Minute)
		put("removed", 0)
		if err := s.Remove(t.Context(), table, metadata.Key{Partition: "removed", Row: "removed"}, time.Unix(2, 0), metadata.One); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{2 * time.Hour, 3}, {metadata.Grace, 1}} {
			time.Sleep(step.wait)
			put("kept", 0)
			if got := len(s.cells.mu.rows.partitions); got != step.want {
				t.Errorf("%d partitions after %s more, want %d", got, step.wait, step.want)
			}
		}
	})
}
