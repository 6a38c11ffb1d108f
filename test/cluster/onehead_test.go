package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// oneHead stands before the metadata as they are, and looks at the chains of CP queues after each change of a row: of
// all extents of a queue that a head, a create row or a seal row names, one at most has no end. Safe for concurrent
// use.
type oneHead struct {
	metadata.Store
	mu struct {
		sync.Mutex
		open  map[core.QueueID]map[core.ExtentID]uint64 // without an end, with their places
		ended map[core.ExtentID]bool
		last  map[core.QueueID]uint64 // the last place of a head row
		moves int
		wrong []string
	}
}

func newOneHead(behind metadata.Store) *oneHead {
	o := &oneHead{Store: behind}
	o.mu.open = make(map[core.QueueID]map[core.ExtentID]uint64)
	o.mu.ended = make(map[core.ExtentID]bool)
	o.mu.last = make(map[core.QueueID]uint64)
	return o
}

// change does a change of a row and looks at what it has made, before another one is done.
func (o *oneHead) change(t metadata.Table, value []byte, do func() error) error {
	switch t.Name {
	case metadata.Heads.Name, metadata.Seals.Name, metadata.Extents.Name:
	default:
		return do()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := do()
	if err == nil {
		o.lookLocked(t, value)
	}
	return err
}

func (o *oneHead) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return o.change(t, value, func() error { return o.Store.Insert(ctx, t, k, value) })
}

func (o *oneHead) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return o.change(t, value, func() error { return o.Store.Update(ctx, t, k, old, value, ttl) })
}

func (o *oneHead) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return o.change(t, value, func() error { return o.Store.Put(ctx, t, k, value, at, ttl, c) })
}

func (o *oneHead) lookLocked(t metadata.Table, value []byte) {
	var e core.Extent
	switch t.Name {
	case metadata.Heads.Name:
		var r metadata.HeadRecord
		o.decodeLocked(value, &r)
		if e = r.Extent; e.Chain <= o.mu.last[e.Queue] {
			o.sayLocked("the head of queue %s went from place %d to %d", e.Queue, o.mu.last[e.Queue], e.Chain)
		}
		o.mu.last[e.Queue] = e.Chain
		o.mu.moves++
	case metadata.Seals.Name:
		var r metadata.SealRecord
		o.decodeLocked(value, &r)
		e = r.Extent
		if r.State.HasEnd() {
			o.mu.ended[e.ID] = true
		}
	default:
		var r metadata.ExtentRecord
		o.decodeLocked(value, &r)
		e = r.Extent
	}
	if e.Chain == 0 {
		return
	}
	open := o.mu.open[e.Queue]
	if open == nil {
		open = make(map[core.ExtentID]uint64)
		o.mu.open[e.Queue] = open
	}
	if delete(open, e.ID); !o.mu.ended[e.ID] {
		open[e.ID] = e.Chain
	}
	if len(open) > 1 {
		o.sayLocked("%s: queue %s has %d open heads: %v", time.Now().Format("04:05.000"), e.Queue, len(open), open)
	}
}

func (o *oneHead) decodeLocked(value []byte, to any) {
	if err := json.Unmarshal(value, to); err != nil {
		o.sayLocked("a row does not decode: %v", err)
	}
}

func (o *oneHead) sayLocked(format string, args ...any) {
	o.mu.wrong = append(o.mu.wrong, fmt.Sprintf(format, args...))
}

// findings are what was wrong so far, and how often a head has moved.
func (o *oneHead) findings() (wrong []string, moves int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.wrong, o.mu.moves
}
