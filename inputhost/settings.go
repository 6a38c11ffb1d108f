package inputhost

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	// readPause is the shortest time between two readings of the queues' records: a changed status reaches publishers that
	// are connected within it.
	readPause = time.Second
	// readAgain is the pause after a reading that failed.
	readAgain = 2 * time.Second
	// readAnyway is when the records are read also though nothing is said to have changed.
	readAnyway = 30 * time.Second
)

// settings keeps the records of published queues as the metadata have them. A watch says that some queue has changed;
// then all that are published to here are read at once. So it costs something for each change, and nothing for each
// queue.
type settings struct {
	h       *Host
	wake    chan struct{} // capacity 1: there is something to read
	changes atomic.Uint64 // that the watch has told of
	failing atomic.Bool   // the last reading failed: the metadata do not answer
}

func newSettings(h *Host) *settings { return &settings{h: h, wake: make(chan struct{}, 1)} }

// watch runs until ctx ends. A watch that was lost begins with a change.
func (s *settings) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.h.deps.Meta.Watch(ctx, metadata.Queues, metadata.PartitionID, s.changed)
		if ctx.Err() != nil {
			return
		}
		s.h.log.Info("cannot watch the queues' settings", "err", err)
		pause(ctx, readAgain)
	}
}

func (s *settings) changed() {
	s.changes.Add(1)
	s.again()
}

func (s *settings) again() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// since has the records read again when some changed after that many changes: a record that was read then may be an old
// one.
func (s *settings) since(changes uint64) {
	if s.changes.Load() != changes {
		s.again()
	}
}

// run reads until ctx ends.
func (s *settings) run(ctx context.Context) {
	next := time.NewTimer(readAnyway)
	defer next.Stop()
	var failures core.Recurring
	for {
		select {
		case <-s.wake:
		case <-next.C:
		case <-ctx.Done():
			return
		}
		wait := readAnyway
		err := s.read(ctx)
		s.failing.Store(err != nil)
		if err == nil {
			failures.Succeeded()
		} else if wait = readAgain; ctx.Err() == nil && failures.Failed(s.h.deps.now()) {
			s.h.log.Info("cannot read the queues' settings; this host tries again until it can", "err", err)
		}
		next.Reset(wait)
		pause(ctx, readPause)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// read reads the records of the published queues and applies those that are new.
func (s *settings) read(ctx context.Context) error {
	queues := make(map[metadata.Key]*queue)
	var keys []metadata.Key
	for _, q := range s.h.list() {
		if q.published() {
			k := metadata.QueueKey(q.id)
			keys = append(keys, k)
			queues[k] = q
		}
	}
	if len(keys) == 0 {
		return nil
	}
	run := membership.MetadataRun(s.h.deps.Members) // before the rows are read: see metadata.Reading
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := metadata.GetRows(ctx, s.h.deps.Meta, metadata.Queues, keys, metadata.One)
	if err != nil {
		return err
	}
	found := make(map[metadata.Key]bool, len(rows))
	for _, row := range rows {
		found[row.Key] = true
	}
	missing := slices.DeleteFunc(keys, func(k metadata.Key) bool { return found[k] })
	if len(missing) > 0 { // in the copy that was read
		late, err := metadata.GetRows(ctx, s.h.deps.Meta, metadata.Queues, missing, metadata.Quorum)
		if err != nil {
			return err
		}
		rows = append(rows, late...)
	}
	for _, row := range rows {
		q := queues[row.Key]
		delete(queues, row.Key)
		if q == nil || q.knows(metadata.Reading{Run: run, Version: row.Version}) {
			continue
		}
		record, derr := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
		if derr != nil {
			err = derr
			continue
		}
		q.apply(record.Spec, metadata.Reading{Run: run, Version: row.Version})
	}
	for _, q := range queues { // whose rows are gone
		q.apply(core.QueueSpec{Status: core.StatusDeleted}, q.reading())
	}
	return err
}

// published: somebody may publish to the queue.
func (q *queue) published() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.publishers) > 0
}

func (q *queue) reading() metadata.Reading {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.at
}

// knows reports whether there is nothing to apply. A deletion is applied again: a publisher that was looked up before
// it may have come since.
func (q *queue) knows(at metadata.Reading) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return (at == q.mu.at || at.Before(q.mu.at)) && q.mu.record.Spec.Status != core.StatusDeleted
}

// apply takes over a spec that was read. While the queue takes no messages its publishers stay: each of their messages
// is refused, what was taken before is stored and answered, and they go on when the queue takes messages again. A
// deletion ends them.
func (q *queue) apply(spec core.QueueSpec, at metadata.Reading) {
	q.mu.Lock()
	if at.Before(q.mu.at) { // read from a copy that is behind
		q.mu.Unlock()
		return
	}
	q.mu.at = at
	var end []*publisher
	var close []*writer.Writer
	if spec.Status != core.StatusDeleted {
		q.mu.record.Spec = spec
	}
	q.mu.record.Spec.Status = spec.Status
	q.mu.refuses = spec.Status.PublishError(q.path)
	why := q.mu.refuses
	if why != nil {
		close = q.takeOutLocked()
	}
	if spec.Status == core.StatusDeleted {
		for p := range q.mu.publishers {
			end = append(end, p)
		}
	}
	q.mu.Unlock()
	if q.gate != nil {
		q.gate.SetCap(spec.MaxBacklog)
	}
	for _, p := range end {
		p.fail(why)
	}
	for _, w := range close {
		w.Close("status")
	}
	for _, t := range q.beside() {
		t.apply(spec, at)
	}
}
