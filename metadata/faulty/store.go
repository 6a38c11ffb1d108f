// Package faulty owns the metadata stores of tests in which calls go wrong, by a seed. Store wraps another store,
// refuses and delays calls, and loses answers. Replicas keeps rows on three replicas that differ.
package faulty

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Faults says how often what goes wrong; chances are 0 … 1 per call.
type Faults struct {
	Seed   uint64
	Before float64       // the call does nothing and answers CodeUnavailable
	Lost   float64       // a write answers CodeUnknown: a half of them is done, a quarter never, a quarter later
	CAS    float64       // a compare-and-set answers CodeUnknown after Timeout: a half of them is never done, a quarter at once, a quarter later
	Part   float64       // a PutAll answers CodeUnknown and names about half of its rows: a half of those is not stored, and all others are
	Stale  float64       // a row read at One is as it was before its last change
	Delay  time.Duration // calls wait up to that long before they are done

	Timeout time.Duration // see CAS; what is done later is done within twice that long
}

// Store is a metadata.Store with faults. Close waits for the writes that come late, and closes the store behind.
type Store struct {
	behind metadata.Store
	faults Faults
	late   sync.WaitGroup

	mu struct {
		sync.Mutex
		die    *rand.Rand
		before map[place]metadata.Row // rows as they were before their last change; the zero Row: there was none
		sets   int                    // compare-and-sets that could time out
		missed int                    // of these, those that did
		closed bool
	}
}

type place struct {
	table string
	key   metadata.Key
}

var _ metadata.Store = (*Store)(nil)

// maxRemembered bounds the rows that can be read stale.
const maxRemembered = 4096

// New puts faults before a store, which it owns from then on.
func New(behind metadata.Store, faults Faults) *Store {
	s := &Store{behind: behind, faults: faults}
	s.mu.die = rand.New(rand.NewPCG(faults.Seed, 0))
	s.mu.before = map[place]metadata.Row{}
	return s
}

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := s.begin(ctx); err != nil {
		return metadata.Row{}, err
	}
	row, err := s.behind.Get(ctx, t, k, c)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return row, err
	}
	if old, stale := s.stale(t, k, c); stale && old.Version == 0 && old.Written.IsZero() {
		return metadata.Row{}, metadata.NoRow(t, k)
	} else if stale {
		return old, nil
	}
	return row, err
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := s.begin(ctx); err != nil {
		return nil, false, err
	}
	rows, more, err := s.behind.List(ctx, t, partition, after, limit, c)
	if err != nil {
		return nil, false, err
	}
	for i, row := range rows {
		// A row that was not there before stays: dropping it could leave a page with nothing to go on from.
		if old, stale := s.stale(t, row.Key, c); stale && old.Key == row.Key {
			rows[i] = old
		}
	}
	return rows, more, nil
}

// Insert implements metadata.Store.
func (s *Store) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return s.compareAndSet(ctx, t, k, func(ctx context.Context) error {
		return s.behind.Insert(ctx, t, k, value)
	})
}

// Update implements metadata.Store.
func (s *Store) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return s.compareAndSet(ctx, t, k, func(ctx context.Context) error {
		return s.behind.Update(ctx, t, k, old, value, ttl)
	})
}

// Delete implements metadata.Store.
func (s *Store) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return s.compareAndSet(ctx, t, k, func(ctx context.Context) error {
		return s.behind.Delete(ctx, t, k, old)
	})
}

// Put implements metadata.Store.
func (s *Store) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.write(ctx, t, []metadata.Key{k}, func(ctx context.Context) error {
		return s.behind.Put(ctx, t, k, value, at, ttl, c)
	})
}

// PutAll implements metadata.Store.
func (s *Store) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	keys := make([]metadata.Key, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	named, stored := s.inPart(rows)
	return s.write(ctx, t, keys, func(ctx context.Context) error {
		if err := s.behind.PutAll(ctx, t, stored, c); err != nil || len(named) == 0 {
			return err
		}
		return &metadata.UnstoredError{Rows: named, Of: len(rows), Err: core.Errorf(core.CodeUnknown, "injected: some rows may not be stored")}
	})
}

// inPart decides which rows of a PutAll are named as perhaps not stored, and which ones are stored.
func (s *Store) inPart(rows []metadata.Row) (named []int, stored []metadata.Row) {
	if s.faults.Part <= 0 {
		return nil, rows
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.die.Float64() >= s.faults.Part {
		return nil, rows
	}
	for i, r := range rows {
		fate := s.mu.die.IntN(4)
		if fate < 2 {
			named = append(named, i)
		}
		if fate > 0 {
			stored = append(stored, r)
		}
	}
	return named, stored
}

// Remove implements metadata.Store.
func (s *Store) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return s.write(ctx, t, []metadata.Key{k}, func(ctx context.Context) error {
		return s.behind.Remove(ctx, t, k, at, c)
	})
}

// Watch implements metadata.Store, without faults.
func (s *Store) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	return s.behind.Watch(ctx, t, partition, changed)
}

// TimedOut is how many of all compare-and-sets have timed out, see Faults.CAS.
func (s *Store) TimedOut() (n, of int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.missed, s.mu.sets
}

// Close implements metadata.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.late.Wait()
	return s.behind.Close()
}

// Change does a change of what is behind the store that is no call of a metadata.Store, with the faults of a write.
func (s *Store) Change(ctx context.Context, do func(context.Context) error) error {
	return s.write(ctx, metadata.Table{}, nil, do)
}

// Look does a read of what is behind the store that is no call of a metadata.Store, with the faults of a read at
// Quorum.
func (s *Store) Look(ctx context.Context, read func(context.Context) error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	return read(ctx)
}

// write does a change, and decides whether its answer arrives.
func (s *Store) write(ctx context.Context, t metadata.Table, keys []metadata.Key, do func(context.Context) error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.remember(ctx, t, keys)
	lost := core.Errorf(core.CodeUnknown, "injected: the answer is lost")
	switch s.fate() {
	case fateLost:
		do(ctx) // whatever it says, no one hears it
		return lost
	case fateNever:
		return lost
	case fateLate:
		s.doLater(ctx, s.pause(), do)
		return lost
	}
	return do(ctx)
}

// compareAndSet is write for changes that have a condition, which may time out besides.
func (s *Store) compareAndSet(ctx context.Context, t metadata.Table, k metadata.Key, do func(context.Context) error) error {
	keys := []metadata.Key{k}
	timesOut, fate, after := s.casFate()
	if !timesOut {
		return s.write(ctx, t, keys, do)
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.remember(ctx, t, keys)
	switch fate {
	case fateLost:
		do(ctx) // whatever it says, no one hears it
	case fateLate:
		s.doLater(ctx, after, do)
	}
	sleep(ctx, s.faults.Timeout)
	return core.Errorf(core.CodeUnknown, "injected: the compare-and-set timed out")
}

// casFate decides whether a compare-and-set times out, what becomes of it, and when, if that is later.
func (s *Store) casFate() (timesOut bool, f fate, after time.Duration) {
	if s.faults.CAS <= 0 {
		return false, fateAnswered, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sets++
	if s.mu.die.Float64() >= s.faults.CAS {
		return false, fateAnswered, 0
	}
	s.mu.missed++
	f = []fate{fateLost, fateLate, fateNever, fateNever}[s.mu.die.IntN(4)]
	return true, f, time.Duration(s.mu.die.Int64N(max(2*int64(s.faults.Timeout), 1)))
}

// doLater does a change after a pause, whatever its caller was told meanwhile.
func (s *Store) doLater(ctx context.Context, pause time.Duration, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pause+metadata.DefaultDeadline)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		cancel()
		return
	}
	s.late.Go(func() {
		defer cancel()
		sleep(ctx, pause)
		do(ctx)
	})
}

// begin delays the call, and may refuse it.
func (s *Store) begin(ctx context.Context) error {
	sleep(ctx, s.pause())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.die.Float64() < s.faults.Before {
		return core.Errorf(core.CodeUnavailable, "injected: metadata is unavailable")
	}
	return nil
}

// fate of a write.
type fate uint8

const (
	fateAnswered fate = iota
	fateLost
	fateNever
	fateLate
)

func (s *Store) fate() fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.die.Float64() >= s.faults.Lost {
		return fateAnswered
	}
	return []fate{fateLost, fateLost, fateNever, fateLate}[s.mu.die.IntN(4)]
}

func (s *Store) pause() time.Duration {
	if s.faults.Delay <= 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.mu.die.Int64N(int64(s.faults.Delay)))
}

// stale decides whether a reader gets the row of before.
func (s *Store) stale(t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, bool) {
	if c != metadata.One {
		return metadata.Row{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.mu.before[place{t.Name, k}]
	return old, known && s.mu.die.Float64() < s.faults.Stale
}

// remember keeps the rows as they are before a change.
func (s *Store) remember(ctx context.Context, t metadata.Table, keys []metadata.Key) {
	if s.faults.Stale <= 0 {
		return
	}
	for _, k := range keys {
		row, err := s.behind.Get(ctx, t, k, metadata.Serial)
		if err != nil && core.CodeOf(err) != core.CodeNotFound {
			continue
		}
		s.mu.Lock()
		if len(s.mu.before) >= maxRemembered {
			clear(s.mu.before)
		}
		s.mu.before[place{t.Name, k}] = row
		s.mu.Unlock()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
