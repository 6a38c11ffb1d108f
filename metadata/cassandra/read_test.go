package cassandra

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Many rows are read side by side, in bounds, and not after one read has failed. A request reads rows of one partition; a
// Paxos read is of one row.
func TestStore_GetRowsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		fail := int64(0)
		s := scripted(&script{onRead: func() error {
			n := reads.Add(1)
			<-time.After(time.Second)
			if n == fail {
				return errUnavailable
			}
			return nil
		}})
		defer s.Close()
		var keys []metadata.Key
		for i := range 140 {
			keys = append(keys, metadata.Key{Partition: "id", Row: fmt.Sprint(i)})
		}
		for _, test := range []struct {
			c     metadata.Consistency
			reads int64
			took  time.Duration
			fails int64
			most  int64
		}{
			{metadata.One, 9, 3 * time.Second, 2, 8},
			{metadata.Quorum, 9, 3 * time.Second, 6, 9},
			{metadata.Serial, 140, 9 * time.Second, 20, 48},
		} {
			reads.Store(0)
			fail = 0
			began := time.Now()
			rows, err := s.GetRows(t.Context(), metadata.Seals, keys, test.c)
			if took := time.Since(began); err != nil || len(rows) != 0 || reads.Load() != test.reads || took != test.took {
				t.Errorf("consistency %d: %d rows, %v, %d reads in %s; want %d in %s", test.c, len(rows), err, reads.Load(), took, test.reads, test.took)
			}
			reads.Store(0)
			fail = test.fails
			if _, err := s.GetRows(t.Context(), metadata.Seals, keys, test.c); core.CodeOf(err) != core.CodeUnavailable || reads.Load() > test.most {
				t.Errorf("consistency %d: %v after %d reads, want it to end when one has failed", test.c, err, reads.Load())
			}
		}
	})
}

// TestTogether: a request has keys of one partition, and no more than an answer may hold.
func TestTogether(t *testing.T) {
	keys := func(runs ...int) (all []metadata.Key) {
		for i, n := range runs {
			for range n {
				all = append(all, metadata.Key{Partition: fmt.Sprint(i)})
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		keys []metadata.Key
		want []part
	}{
		"none":                {nil, nil},
		"one":                 {keys(1), []part{{0, 1}}},
		"as many as may be":   {keys(rowsTogether), []part{{0, rowsTogether}}},
		"one more":            {keys(rowsTogether + 1), []part{{0, rowsTogether}, {rowsTogether, rowsTogether + 1}}},
		"several partitions":  {keys(2, 1, 3), []part{{0, 2}, {2, 3}, {3, 6}}},
		"rows of one, bounds": {keys(3, 2*rowsTogether), []part{{0, 3}, {3, 3 + rowsTogether}, {3 + rowsTogether, 3 + 2*rowsTogether}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := together(test.keys); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
