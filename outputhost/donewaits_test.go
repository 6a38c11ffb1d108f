package outputhost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// noDones is metadata that stores checkpoints, and no done rows, as without a majority.
type noDones struct{ *rowTimes }

func (m noDones) Put(context.Context, metadata.Table, metadata.Key, []byte, time.Time, time.Duration, metadata.Consistency) error {
	return core.Errorf(core.CodeUnavailable, "no majority")
}

// TestSaver_DoneRowsThatWaitTakeNoBudget: more shares are consumed to their ends than the budget of rows has, and no
// majority takes their done rows. Other shares are saved every second all the same: nothing of the budget is used.
func TestSaver_DoneRowsThatWaitTakeNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 0, 1, 300)
		c.cfg.CheckpointRows = 100
		c.deps.Meta = noDones{c.meta}
		finished, others := c.shares[:250], c.shares[250:]
		c.ack(c.shares)
		for _, s := range finished {
			s.group.mu.Lock()
			s.end, s.l, s.last = true, c.acked, c.acked
			s.group.touchLocked(s)
			s.group.mu.Unlock()
		}
		defer c.saving(t)()
		time.Sleep(30 * time.Second)
		began := time.Now()
		for range 60 {
			c.ack(others)
			time.Sleep(500 * time.Millisecond)
		}
		c.meta.mu.Lock()
		for _, s := range finished {
			delete(c.meta.byRow, metadata.CheckpointPartition(s.group.id, s.extent.ID))
		}
		c.meta.mu.Unlock()
		if most := c.meta.longest(began, time.Now()); most > 2*c.cfg.CheckpointEvery {
			t.Errorf("a share was not saved for %s, want about %s", most, c.cfg.CheckpointEvery)
		}
	})
}
