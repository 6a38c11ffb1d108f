package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Pauses of a gate: the first one, and the longest.
const (
	minGatePause = 200 * time.Millisecond
	maxGatePause = 5 * time.Second
)

// gate holds back the work that nobody waits for while the metadata refuse calls (CodeUnavailable). Then one piece of
// work after each pause finds out whether they answer again. Work that somebody asked for does not pass a gate, but
// what the metadata answer to it counts. Pauses go by the monotonic clock.
//
//	open ──refused──▶ closed for a pause ──pass──▶ one try ──refused──▶ closed for twice the pause
//	 ▲                        │                       │
//	 └────────────────────────┴──────── answered ─────┘
//
// Reads of one copy may go on while no majority answers. So only an answer at the strongest consistency that was
// refused opens the gate.
type gate struct {
	mu struct {
		sync.Mutex
		pause  time.Duration // 0: open
		until  time.Time     // nothing passes before
		trying bool          // one has passed since the last refusal
		level  metadata.Consistency
		opened chan struct{} // closed when the gate opens
	}
}

// pass reports whether work may start now: it always may while the gate is open, and else after a pause.
func (g *gate) pass() bool {
	ok, _, _ := g.next()
	return ok
}

// wait blocks until work may start, or ctx ends.
func (g *gate) wait(ctx context.Context) error {
	for {
		ok, until, opened := g.next()
		if ok {
			return nil
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-opened:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// next is pass, and says when and by what that may change.
func (g *gate) next() (ok bool, until time.Time, opened <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.pause == 0 {
		return true, time.Time{}, nil
	}
	now := time.Now()
	if now.Before(g.mu.until) {
		return false, g.mu.until, g.mu.opened
	}
	g.mu.until, g.mu.trying = now.Add(g.mu.pause), true
	return true, time.Time{}, nil
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.pause > 0
}

// heard takes in the outcome of a call at that consistency.
func (g *gate) heard(ctx context.Context, c metadata.Consistency, err error) {
	switch core.CodeOf(err) {
	case core.CodeUnavailable:
		if !errors.Is(ctx.Err(), context.Canceled) { // else the caller has left
			g.refused(c)
		}
	case "", core.CodeNotFound, core.CodeExists, core.CodeConflict:
		g.answered(c)
	}
}

func (g *gate) refused(c metadata.Consistency) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.pause == 0:
		g.mu.pause, g.mu.level, g.mu.opened = minGatePause, c, make(chan struct{})
	case g.mu.trying:
		g.mu.pause = min(2*g.mu.pause, maxGatePause)
	default: // of work that began before, or of a caller
		g.mu.level = max(g.mu.level, c)
		return
	}
	g.mu.level, g.mu.trying = max(g.mu.level, c), false
	g.mu.until = time.Now().Add(g.mu.pause)
}

func (g *gate) answered(c metadata.Consistency) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.pause > 0 && c >= g.mu.level {
		g.mu.pause, g.mu.trying = 0, false
		close(g.mu.opened)
	}
}

// heeded is a store whose outcomes a gate hears of.
type heeded struct {
	metadata.Store
	gate *gate
}

var (
	_ metadata.RowsGetter      = heeded{}
	_ metadata.VersionInserter = heeded{}
)

func (s heeded) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	row, err := s.Store.Get(ctx, t, k, c)
	s.gate.heard(ctx, c, err)
	return row, err
}

// GetRows implements metadata.RowsGetter.
func (s heeded) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	rows, err := metadata.GetRows(ctx, s.Store, t, keys, c)
	if len(keys) > 0 {
		s.gate.heard(ctx, c, err)
	}
	return rows, err
}

func (s heeded) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	rows, more, err := s.Store.List(ctx, t, partition, after, limit, c)
	s.gate.heard(ctx, c, err)
	return rows, more, err
}

func (s heeded) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	_, err := s.InsertVersion(ctx, t, k, value)
	return err
}

// InsertVersion implements metadata.VersionInserter.
func (s heeded) InsertVersion(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) (metadata.Version, error) {
	version, err := metadata.InsertVersion(ctx, s.Store, t, k, value)
	s.gate.heard(ctx, metadata.Serial, err)
	return version, err
}

func (s heeded) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	err := s.Store.Update(ctx, t, k, old, value, ttl)
	s.gate.heard(ctx, metadata.Serial, err)
	return err
}

func (s heeded) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	err := s.Store.Delete(ctx, t, k, old)
	s.gate.heard(ctx, metadata.Serial, err)
	return err
}

func (s heeded) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	err := s.Store.Put(ctx, t, k, value, at, ttl, c)
	s.gate.heard(ctx, c, err)
	return err
}

func (s heeded) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	err := s.Store.PutAll(ctx, t, rows, c)
	s.gate.heard(ctx, c, err)
	return err
}

func (s heeded) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	err := s.Store.Remove(ctx, t, k, at, c)
	s.gate.heard(ctx, c, err)
	return err
}
