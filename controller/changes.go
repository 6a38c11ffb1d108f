package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// noteEvery is at least between two notes of changes.
	noteEvery = time.Second
	// noteAnyway is at most between two notes: without one in each reloadOften other controllers read all rows.
	noteAnyway = 10 * time.Second
	// noteTimeout bounds the writing of one.
	noteTimeout = 5 * time.Second
	// mostNoted bounds the extents of one note.
	mostNoted = 1000
	// notesOverlap is how far readings of notes overlap: clocks of controllers may differ by so much.
	notesOverlap = 2 * time.Minute
)

// changes are what other controllers are to be told of by a note (docs/adr/0070). Safe for concurrent use.
type changes struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		made   map[metadata.MadeRow]struct{}
		sealed map[core.ExtentID]struct{}
	}
}

func newChanges() *changes {
	c := &changes{wake: make(chan struct{}, 1)}
	c.mu.made = make(map[metadata.MadeRow]struct{})
	c.mu.sealed = make(map[core.ExtentID]struct{})
	return c
}

// changed takes in that a row may have been changed, by the outcome of the call.
func (c *changes) changed(t metadata.Table, k metadata.Key, err error) {
	if t != metadata.Seals && t != metadata.Extents || err != nil && core.CodeOf(err) != core.CodeUnknown {
		return
	}
	id, err := core.ParseID(k.Row)
	if err != nil {
		return
	}
	e := core.ExtentID{ID: id}
	c.mu.Lock()
	if t == metadata.Seals {
		c.mu.sealed[e] = struct{}{}
	} else if queue, err := core.ParseID(k.Partition); err == nil {
		c.mu.made[metadata.MadeRow{Queue: core.QueueID{ID: queue}, Extent: e}] = struct{}{}
	}
	c.mu.Unlock()
	poke(c.wake)
}

// take answers and forgets what a note is to say; more: it is not all.
func (c *changes) take() (r metadata.ChangesRecord, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := range c.mu.made {
		if len(r.Made) == mostNoted {
			return r, true
		}
		r.Made = append(r.Made, m)
		delete(c.mu.made, m)
	}
	for e := range c.mu.sealed {
		if len(r.Made)+len(r.Sealed) >= mostNoted {
			return r, true
		}
		r.Sealed = append(r.Sealed, e)
		delete(c.mu.sealed, e)
	}
	return r, false
}

// restore takes back what could not be written.
func (c *changes) restore(r metadata.ChangesRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range r.Made {
		c.mu.made[m] = struct{}{}
	}
	for _, e := range r.Sealed {
		c.mu.sealed[e] = struct{}{}
	}
}

// noting is a store that has changes of extents noted.
type noting struct {
	heeded
	changes *changes
}

var _ metadata.RowsGetter = noting{}

func (s noting) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	err := s.heeded.Insert(ctx, t, k, value)
	s.changes.changed(t, k, err)
	return err
}

func (s noting) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	err := s.heeded.Update(ctx, t, k, old, value, ttl)
	s.changes.changed(t, k, err)
	return err
}

func (s noting) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	err := s.heeded.Put(ctx, t, k, value, at, ttl, c)
	s.changes.changed(t, k, err)
	return err
}

func (s noting) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	err := s.heeded.PutAll(ctx, t, rows, c)
	for _, row := range rows {
		s.changes.changed(t, row.Key, err)
	}
	return err
}

// noteLoop writes notes of changes until ctx ends, and one at the end.
func (h *Host) noteLoop(ctx context.Context) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteEvery)
		defer cancel()
		h.writeNotes(ctx)
	}()
	tick := time.NewTicker(noteAnyway)
	defer tick.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	wake := h.changes.wake
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
			wake = h.changes.wake
			continue
		case <-wake:
		case <-tick.C:
		}
		if err := h.writeNotes(ctx); err != nil && ctx.Err() == nil {
			h.log.Debug("other controllers are not told yet which extents have changed; they read all rows", "err", err)
		}
		wake = nil
		rest.Reset(noteEvery)
	}
}

// writeNotes writes what is to be noted, or an empty note. A majority has it then, as it has the rows that were changed.
func (h *Host) writeNotes(ctx context.Context) error {
	self := h.deps.Members.Self()
	for more := true; more; {
		var r metadata.ChangesRecord
		r, more = h.changes.take()
		r.By, r.Run = self.ID, self.Run
		now := h.deps.now()
		wctx, cancel := context.WithTimeout(ctx, noteTimeout)
		err := metadata.Write(wctx, h.deps.Meta, metadata.Work, metadata.ChangesKey(core.NewID(now)), r, now, metadata.ChangesLife, metadata.Quorum)
		cancel()
		if err != nil {
			h.changes.restore(r)
			return err
		}
	}
	return nil
}

// notesRead is what a reading of notes has seen. It is reloadLoop's.
type notesRead struct {
	at   time.Time
	seen map[string]bool // the rows of notes since then, less the overlap
}

// readNotes brings the cache up to the notes of other controllers. complete: each other controller that there is has left a
// note since the last reading, so there is no change that is not noted.
func (h *Host) readNotes(ctx context.Context, read *notesRead) (complete bool, err error) {
	now := h.deps.now()
	notes, err := metadata.ChangesSince(ctx, h.deps.Meta, read.at.Add(-notesOverlap), now.Add(notesOverlap), metadata.Quorum)
	if err != nil {
		return false, err
	}
	self := h.deps.Members.Self()
	seen, news := make(map[string]bool, len(notes)), make(map[core.RunID]bool)
	made, sealed := make(map[metadata.MadeRow]struct{}), make(map[core.ExtentID]struct{})
	for _, n := range notes {
		seen[n.Key.Row] = true
		if n.Value.Run == self.Run || read.seen[n.Key.Row] {
			continue
		}
		news[n.Value.Run] = true
		for _, m := range n.Value.Made {
			made[m] = struct{}{}
		}
		for _, e := range n.Value.Sealed {
			sealed[e] = struct{}{}
		}
	}
	if err := h.catchUp(ctx, slices.Collect(maps.Keys(made)), slices.Collect(maps.Keys(sealed))); err != nil {
		return false, err
	}
	read.at, read.seen = now, seen
	for _, m := range h.deps.Members.Hosts("controller") {
		if m.Run != self.Run && !news[m.Run] {
			return false, nil
		}
	}
	return true, nil
}

// catchUp brings the cache up to rows of extents: those whose create rows, and those whose seal rows were changed.
func (h *Host) catchUp(ctx context.Context, made []metadata.MadeRow, sealed []core.ExtentID) error {
	for some := range slices.Chunk(made, sealRowsAtOnce) {
		keys, ids := make([]metadata.Key, len(some)), make([]core.ExtentID, len(some))
		for i, m := range some {
			keys[i], ids[i] = metadata.ExtentKey(m.Queue, m.Extent), m.Extent
		}
		rows, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Extents, keys, metadata.Quorum)
		if err != nil {
			return err
		}
		records := make([]metadata.ExtentRecord, len(rows))
		for i, row := range rows {
			if records[i], err = metadata.Decode[metadata.ExtentRecord](metadata.Extents, row); err != nil {
				return err
			}
		}
		open, err := h.openHints(ctx, ids)
		if err == nil {
			err = h.takeIn(ctx, records, open)
		}
		if err != nil {
			return err
		}
	}
	for some := range slices.Chunk(sealed, sealRowsAtOnce) {
		if err := h.learn(ctx, some); err != nil {
			return err
		}
		var ended []core.ExtentID
		for _, id := range some {
			if e, known := h.extents.Get(id); known && e.State.HasEnd() && !e.Told {
				ended = append(ended, id)
			}
		}
		open, err := h.openHints(ctx, ended)
		if err != nil {
			return err
		}
		for _, id := range ended {
			h.toldUnless(id, open)
		}
	}
	return nil
}

// openHints are those of some extents that have an open hint.
func (h *Host) openHints(ctx context.Context, ids []core.ExtentID) (map[core.ExtentID]bool, error) {
	keys := make([]metadata.Key, len(ids))
	for i, id := range ids {
		keys[i] = metadata.HintKey(metadata.HintOpen, id)
	}
	rows, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Work, keys, metadata.Quorum)
	if err != nil {
		return nil, err
	}
	there := make(map[metadata.Key]bool, len(rows))
	for _, row := range rows {
		there[row.Key] = true
	}
	open := make(map[core.ExtentID]bool, len(ids))
	for i, id := range ids {
		open[id] = there[keys[i]]
	}
	return open, nil
}
