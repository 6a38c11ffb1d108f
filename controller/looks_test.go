package controller

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestRounds_OutageOfMetadata: controllers with many queues neither ask metadata that refuse for each of them, nor log
// a line for each. After the outage all queues are looked at soon.
func TestRounds_OutageOfMetadata(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		meta := &refusing{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		var queues []core.QueueID
		for range 200 {
			queue := r.queue(1, 1)
			r.extent(queue, 1)
			queues = append(queues, queue)
		}
		r.sleep(70 * time.Second)
		meta.on.Store(true)
		r.sleep(missedEvery) // each of them is due
		const said = "shares of queues stay as they are"
		lines, calls := strings.Count(r.log.text(), "level=WARN"), meta.calls.Load()
		r.sleep(time.Minute)
		lines, calls = strings.Count(r.log.text(), "level=WARN")-lines, meta.calls.Load()-calls
		t.Logf("%d queues: %d warnings and %d calls in a minute", len(queues), lines, calls)
		if lines > 5 || calls > 100 || !strings.Contains(r.log.text(), said) {
			t.Errorf("%d warnings and %d calls in a minute", lines, calls)
		}
		group := make([]core.GroupID, len(queues))
		meta.on.Store(false)
		for i, queue := range queues {
			group[i] = r.group(queue, "g")
			r.ctl.shares.touch(queue)
		}
		r.eventually("all queues are looked at", 10*time.Second, func() bool {
			for i, queue := range queues {
				if r.ownerOf(group[i], r.ctl.extents.Of(queue)[0].ID) == "" {
					return false
				}
			}
			return true
		})
	})
}

// partlyAway is metadata that refuse lists of the groups of some queues, as Cassandra does when all replicas of some
// partitions are away.
type partlyAway struct {
	metadata.Store
	on      atomic.Bool
	refused map[string]bool // partitions
}

func (s *partlyAway) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Groups && s.on.Load() && s.refused[partition] {
		return nil, false, core.Errorf(core.CodeUnavailable, "injected: no replica of this partition")
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// TestRounds_RefusedQueuesHoldUpNoOthers: the groups of every third queue cannot be read for a while. Others get new
// extents to their consumers all the same.
func TestRounds_RefusedQueuesHoldUpNoOthers(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: calm}, func(r *harness) {
		meta := &partlyAway{Store: r.meta, refused: make(map[string]bool)}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		var well []core.QueueID
		var groups []core.GroupID
		for i := range 90 {
			queue := r.queue(1, 1)
			group := r.group(queue, "g")
			r.extent(queue, 1)
			if meta.refused[queue.String()] = i%3 == 0; i%3 > 0 {
				well, groups = append(well, queue), append(groups, group)
			}
		}
		r.sleep(time.Minute)
		meta.on.Store(true)
		for partition := range meta.refused {
			id, err := core.ParseID(partition)
			r.ok(err)
			r.ctl.shares.touch(core.QueueID{ID: id})
		}
		var extents []core.Extent
		for _, queue := range well {
			r.ok(r.sealOf(queue))
			extents = append(extents, r.extent(queue, 1))
		}
		took := r.eventually("the new extents have owners", 10*time.Second, func() bool {
			for i, e := range extents {
				if r.ownerOf(groups[i], e.ID) == "" {
					return false
				}
			}
			return true
		})
		t.Logf("all after %s", took)
		// A round that finds none but refused ones waits for so long; one that ends at the first refusal leaves them to later
		// ones.
		if took > roundPatience+time.Second {
			t.Errorf("the last one has its owner after %s", took)
		}
	})
}

// sealOf seals the extents of a queue.
func (r *harness) sealOf(queue core.QueueID) error {
	for _, e := range r.ctl.extents.OpenOf(queue) {
		if _, err := r.seal(e.Extent, 1); err != nil {
			return err
		}
	}
	return nil
}

// slowReads is metadata that take a while for each read.
type slowReads struct {
	metadata.Store
	took time.Duration
}

func (s slowReads) wait(ctx context.Context) {
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
	}
}

func (s slowReads) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	s.wait(ctx)
	return s.Store.List(ctx, t, partition, after, limit, c)
}

func (s slowReads) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	s.wait(ctx)
	return s.Store.Get(ctx, t, k, c)
}

func (s slowReads) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	s.wait(ctx)
	return metadata.GetRows(ctx, s.Store, t, keys, c)
}

// TestRounds_QueuesSideBySide: a controller that takes over many queues tells output hosts of them soon, though each
// takes some reads in series.
func TestRounds_QueuesSideBySide(t *testing.T) {
	const many = 400
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: calm}, func(r *harness) {
		var all []core.QueueID
		for range many {
			queue := r.queue(1, 1)
			r.group(queue, "g")
			r.extent(queue, 1)
			all = append(all, queue)
		}
		r.sleep(time.Minute)
		r.ctl.end()
		r.use(slowReads{r.meta, 2 * time.Millisecond})
		r.ctl = r.startController(func(c *Config) { c.Alone = false })
		r.eventually("the controller is responsible", time.Minute, func() bool { return r.ctl.duties.Responsible(all[0].ID) })
		took := r.eventually("output hosts may be told of all", time.Minute, func() bool {
			for _, queue := range all {
				if !r.ctl.mayTell(queue) {
					return false
				}
			}
			return true
		})
		t.Logf("%d queues: output hosts may be told of all %s after it is responsible", many, took)
		if took > time.Second {
			t.Errorf("output hosts may be told of %d queues after %s", many, took)
		}
	})
}
