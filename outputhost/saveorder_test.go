package outputhost

import (
	"context"
	"sync"
	"sync/atomic"
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

// fresh is how many of shares were stored in the last d.
func (m *slowPuts) fresh(shares []*share, d time.Duration) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range shares {
		if at, ok := m.stored[metadata.CheckpointPartition(s.group.id, s.extent.ID)]; ok && time.Since(at) <= d {
			n++
		}
	}
	return n
}

// nackNext fails the next message of each share that has no retry to save.
func (c *crowd) nackNext(t *testing.T, shares []*share) {
	t.Helper()
	c.acked++
	g := c.groupList()[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range shares {
		if s.rules.Unsaved() == 0 {
			if err := s.rules.Nack(c.acked, 1, 0, nil, 0, time.Now()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSaver_RetriesHoldUpNoOtherShare: more shares than a write stores have retries to save all the time, and the acks
// of 200 others are saved again and again, too.
func TestSaver_RetriesHoldUpNoOtherShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 300)
		m := &slowPuts{Store: c.harness.meta, stored: make(map[string]time.Time)}
		c.deps.Meta = m
		defer c.saving(t)()
		urgent, others := c.shares[:100], c.shares[100:]
		for range 150 {
			c.nackNext(t, urgent)
			for _, s := range others {
				s.group.mu.Lock()
				s.rules.Ack(c.acked, 1, 1, time.Now(), nil)
				s.group.mu.Unlock()
			}
			c.groupList()[0].pump()
			time.Sleep(time.Second)
		}
		if u, o := m.fresh(urgent, 30*time.Second), m.fresh(others, 60*time.Second); u < len(urgent) || o < len(others) {
			t.Errorf("%d of %d shares with retries were saved in the last 30 s, and %d of %d others in the last 60 s", u, len(urgent), o, len(others))
		}
	})
}

// TestSaver_DeadLettersBesideRetries: 100 shares have retries to save all the time, and one message each of 70 others
// was rejected. The checkpoints that announce these dead letters are saved: the appends wait for them.
func TestSaver_DeadLettersBesideRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 200)
		m := &slowPuts{Store: c.harness.meta, stored: make(map[string]time.Time)}
		c.deps.Meta = m
		defer c.saving(t)()
		g := c.groupList()[0]
		urgent, dead := c.shares[:100], c.shares[100:170]
		const reject, over = 20, 80
		for i := range over {
			c.nackNext(t, urgent)
			if i == reject {
				g.mu.Lock()
				for _, s := range dead {
					if err := s.rules.Reject(150, 1, nil, time.Now()); err != nil {
						t.Error(err)
					}
				}
				g.mu.Unlock()
			}
			g.pump()
			time.Sleep(time.Second)
		}
		if n := m.fresh(dead, (over-reject)*time.Second); n < len(dead) {
			t.Errorf("the announcements of %d of %d dead letters are saved a minute later", n, len(dead))
		}
	})
}

// TestSaver_RetriesBesideSharesThatMoved: 60 shares of a group go to another host, and others have a retry to save. No
// row of a share that moved is stored twice for nothing, so the retries are saved soon.
func TestSaver_RetriesBesideSharesThatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 120)
		m := &slowPuts{Store: c.harness.meta, stored: make(map[string]time.Time)}
		c.deps.Meta = m
		defer c.saving(t)()
		for range 20 {
			c.ack(c.shares)
			time.Sleep(time.Second)
		}
		for _, s := range c.shares[:60] {
			s.group.giveAway(s, time.Now())
		}
		time.Sleep(500 * time.Millisecond)
		retries := c.shares[60:70]
		c.nackNext(t, retries)
		c.groupList()[0].pump()
		for range 15 {
			if err := c.groupList()[0].mergeOthers(t.Context()); err != nil { // as the refresh does
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		for _, s := range retries {
			s.group.mu.Lock()
			if s.rules.Unsaved() > 0 {
				t.Error("a retry is not saved 15 s after its message failed")
			}
			s.group.mu.Unlock()
		}
	})
}

// hangingPuts is metadata whose writes of several rows hang until they are let go.
type hangingPuts struct {
	metadata.Store
	answers atomic.Bool
	stored  atomic.Int64
}

func (m *hangingPuts) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if !m.answers.Load() {
		<-ctx.Done()
		return core.Errorf(core.CodeUnknown, "no answer")
	}
	m.stored.Add(int64(len(rows)))
	return m.Store.PutAll(ctx, t, rows, c)
}

// TestHandover_LateAckIsKeptUntilItIsSaved: the metadata hang for longer than a share that was given away is kept. Its
// late ack is saved once they answer.
func TestHandover_LateAckIsKeptUntilItIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 1)
		m := &hangingPuts{Store: c.harness.meta}
		c.deps.Meta = m
		defer c.saving(t)()
		s := c.shares[0]
		g := s.group
		g.giveAway(s, time.Now())
		for range 70 {
			g.mu.Lock()
			if s.late != nil {
				s.ackLateLocked(5, 1, 1, time.Now(), nil)
			}
			g.mu.Unlock()
			time.Sleep(time.Second)
			if err := g.mergeOthers(t.Context()); err != nil { // as the refresh does
				t.Fatal(err)
			}
		}
		m.answers.Store(true)
		time.Sleep(30 * time.Second)
		if m.stored.Load() == 0 {
			t.Error("the late ack of a share that was given away was never saved")
		}
	})
}
