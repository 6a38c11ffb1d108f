package cassandra

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Many rows are read side by side, in bounds, and not after one read has failed.
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
		for i := range 100 {
			keys = append(keys, metadata.Key{Partition: "id", Row: fmt.Sprint(i)})
		}
		began := time.Now()
		rows, err := s.GetRows(t.Context(), metadata.Seals, keys, metadata.One)
		if took := time.Since(began); err != nil || len(rows) != 0 || reads.Load() != 100 || took != 7*time.Second {
			t.Errorf("%d rows, %v, %d reads in %s; want 100 reads, 16 at a time", len(rows), err, reads.Load(), took)
		}
		reads.Store(0)
		fail = 20
		if _, err := s.GetRows(t.Context(), metadata.Seals, keys, metadata.One); core.CodeOf(err) != core.CodeUnavailable || reads.Load() > 48 {
			t.Errorf("%v after %d reads, want it to end when one has failed", err, reads.Load())
		}
	})
}
