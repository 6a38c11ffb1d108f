package outputhost

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/metadata"
)

// untouched is metadata that takes a while for each write, and notes the longest time between the ends of two of them
// that do not hang.
type untouched struct {
	hangingRows
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (m *untouched) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if !slices.ContainsFunc(rows, func(r metadata.Row) bool { return r.Key.Partition == m.partition }) {
		m.mu.Lock()
		if !m.last.IsZero() {
			m.longest = max(m.longest, time.Since(m.last))
		}
		m.last = time.Now()
		m.mu.Unlock()
		time.Sleep(time.Duration(len(rows)%7+1) * 130 * time.Millisecond)
	}
	return m.hangingRows.PutAll(ctx, t, rows, c)
}

// TestSaver_AHangingRowInALongLine: more shares change than the budget has rows for, so that each is saved every ten
// seconds. The row of one hangs, and nothing else happens in its group, so that it is tried as seldom. After the first
// time no other one waits for it.
func TestSaver_AHangingRowInALongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, crowdGroup+1)
		c.cfg.CheckpointRows, c.cfg.CallTimeout = 50, 2600*time.Millisecond
		hung := c.shares[slices.IndexFunc(c.shares, func(s *share) bool { return len(s.group.mu.shares) == 1 })]
		meta := &untouched{hangingRows: hangingRows{Store: c.meta, partition: metadata.CheckpointPartition(hung.group.id, hung.extent.ID)}}
		c.deps.Meta = meta
		stop := c.saving(t)
		c.ack(c.shares)
		for i := range 180 {
			time.Sleep(time.Second)
			if i == 20 { // it was tried once
				meta.mu.Lock()
				meta.longest = 0
				meta.mu.Unlock()
			}
			c.acked++
			for _, s := range c.shares {
				if s != hung {
					s.group.mu.Lock()
					s.rules.Ack(c.acked, 1, 1, time.Now(), nil)
					s.group.mu.Unlock()
				}
			}
			for _, g := range c.groupList() {
				if g != hung.group {
					g.pump()
				}
			}
		}
		stop()
		if meta.longest >= c.cfg.CallTimeout {
			t.Errorf("other rows were not written for %s", meta.longest)
		}
	})
}

// TestSaver_ALostShareThatIsGone: the checkpoint of a share cannot be written, and a seek takes the share away before
// it can. The host has nothing else to save, and does not say any more that it cannot.
func TestSaver_ALostShareThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		_, first := b.group()
		_, second := b.group()
		if err := b.give(1, first, second); err != nil {
			t.Fatal(err)
		}
		g, s := b.taken(first, 10)
		meta := &oneLost{Store: b.meta, prefix: g.id.String()}
		b.deps.Meta = meta
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.saver.run(ctx) }()
		defer func() { cancel(); <-done }()
		g.mu.Lock()
		s.rules.Ack(1, 1, 1, time.Now(), nil)
		g.mu.Unlock()
		g.pump()
		time.Sleep(2 * b.cfg.CheckpointEvery)
		if fails, _ := b.saver.failing(); !fails {
			t.Fatal("a checkpoint cannot be written, and that is not told")
		}
		g.mu.Lock()
		readers := g.rewindLocked(0)
		g.mu.Unlock()
		for _, r := range readers {
			r.stop()
		}
		time.Sleep(5 * time.Minute)
		if fails, err := b.saver.failing(); fails {
			t.Errorf("nothing is to be saved, and that is said to fail: %v", err)
		}
	})
}
