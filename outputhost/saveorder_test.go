package outputhost

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// slowPuts is metadata that stores rowsBeside rows at a time, each in rowTakes, and in their order: 48 rows in the time
// of a call. Rows that are left when the call ends are not stored.
type slowPuts struct {
	metadata.Store
	mu     sync.Mutex
	stored map[string]time.Time // by partition, when it was last
}

const (
	rowsBeside = 16
	rowTakes   = 900 * time.Millisecond
)

func (m *slowPuts) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	lost := &metadata.UnstoredError{Of: len(rows), Err: core.Errorf(core.CodeUnknown, "no time is left")}
	for from := 0; from < len(rows); from += rowsBeside {
		some := rows[from:min(from+rowsBeside, len(rows))]
		select {
		case <-time.After(rowTakes):
		case <-ctx.Done():
			for i := from; i < len(rows); i++ {
				lost.Rows = append(lost.Rows, i)
			}
			return lost
		}
		if err := m.Store.PutAll(ctx, t, some, c); err != nil {
			return err
		}
		m.mu.Lock()
		for _, r := range some {
			m.stored[r.Key.Partition] = time.Now()
		}
		m.mu.Unlock()
	}
	return nil
}

// TestSaver_SlowMetadataForgetNoShare: the metadata store 48 rows in the time of a call, and 300 shares are acked all
// the time. Each share is saved again and again, rather than some of them always.
func TestSaver_SlowMetadataForgetNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shares = 300
		c := newCrowd(t, 0, 1, shares)
		m := &slowPuts{Store: c.harness.meta, stored: make(map[string]time.Time)}
		c.deps.Meta = m
		defer c.saving(t)()
		for range 90 * 2 {
			c.ack(c.shares)
			time.Sleep(500 * time.Millisecond)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		old := 0
		for _, at := range m.stored {
			if time.Since(at) > 40*time.Second {
				old++
			}
		}
		if n := len(m.stored); n < shares || old > 0 {
			t.Errorf("%d of %d shares were saved in 90 s, and %d of them not in the last 40 s", n, shares, old)
		}
	})
}

// TestSaver_SlowMetadataHoldUpNoRetry: the same, and a message of each share fails. Retries wait for their checkpoints,
// and no longer than the others need for theirs.
func TestSaver_SlowMetadataHoldUpNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 300)
		c.deps.Meta = &slowPuts{Store: c.harness.meta, stored: make(map[string]time.Time)}
		defer c.saving(t)()
		urgent := c.shares[140:160]
		c.ack(c.shares)
		time.Sleep(20 * time.Second)
		for _, s := range urgent {
			s.group.mu.Lock()
			err := s.rules.Nack(c.acked+1, 1, 0, nil, 0, time.Now())
			s.group.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			s.group.pump()
		}
		for range 20 {
			c.ack(c.shares[:140])
			c.ack(c.shares[160:])
			time.Sleep(500 * time.Millisecond)
		}
		for _, s := range urgent {
			s.group.mu.Lock()
			n := s.rules.Unsaved()
			s.group.mu.Unlock()
			if n > 0 {
				t.Errorf("a retry is not saved ten seconds after its message failed")
			}
		}
	})
}
