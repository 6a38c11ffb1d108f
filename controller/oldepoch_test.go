package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// oldGroup is metadata of which a list of groups at One has a row as it was before: the replica that answers missed the
// last changes.
type oldGroup struct {
	metadata.Store
	on  atomic.Bool
	row metadata.Row
}

func (s *oldGroup) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	rows, more, err := s.Store.List(ctx, t, partition, after, limit, c)
	if t == metadata.Groups && c == metadata.One && s.on.Load() {
		for i := range rows {
			if rows[i].Key == s.row.Key {
				rows[i] = s.row
			}
		}
	}
	return rows, more, err
}

// A group was sent back to the beginning of an extent that it had consumed. A list with its row of before takes no
// shares from it, be the controller one that knew the group or a new one.
func TestAssign_ListWithAnOlderEpochTakesNoShares(t *testing.T) {
	for name, restart := range map[string]bool{"same controller": false, "new controller": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
				meta := &oldGroup{Store: r.meta}
				r.ctl.end()
				r.use(meta)
				r.ctl = r.startController(nil)
				queue, group, es := r.extents(1)
				e := es[0]
				r.store(e.Replicas[0]).write(e, numbers(1, 5)...)
				_, err := r.seal(e, 5)
				r.ok(err)
				r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Dones, metadata.DoneKey(group, e.ID, 0), metadata.DoneRecord{L: 5}, time.Now(), 0, metadata.One))
				r.eventually("the share is consumed", 20*time.Second, func() bool { return r.ctl.shares.Count() == 0 && r.assignments() == 0 })
				meta.row, err = r.meta.Get(r.t.Context(), metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
				r.ok(err)
				_, err = r.rewindGroup(r.ctl, queue, "g", core.Start{Mode: core.StartEarliest}, 0)
				r.ok(err)
				r.eventually("the share is given again", 20*time.Second, func() bool { return r.ctl.shares.Count() == 1 && r.assignments() == 1 })
				meta.on.Store(true)
				if restart {
					r.ctl.end()
					r.ctl = r.startController(nil)
				}
				for range 180 {
					r.sleep(time.Second)
					if n, rows := r.ctl.shares.Count(), r.assignments(); n != 1 || rows != 1 {
						r.t.Fatalf("%d shares and %d rows, want 1", n, rows)
					}
				}
			})
		})
	}
}
