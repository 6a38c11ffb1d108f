package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// ChangeWait bounds how long a change waits for a majority before anything is done. A majority that is lost for less than
// that fails no change.
const ChangeWait = 2 * time.Second

// Refusing is a store for changes that somebody waits for. While no majority answers, reads at Quorum and Serial fail with
// CodeNoMajority after ChangeWait, and so do Insert, and Put at Quorum, which read the row first: nothing was written then.
// A change that was sent is waited for as long as its context allows, because its outcome may be unknown. All other calls
// are those of s, and so are all while s is in one place.
func Refusing(s Store) Store { return refusing{s} }

type refusing struct{ Store }

// Majority implements Copied.
func (s refusing) Majority() *Majority { return MajorityOf(s.Store) }

// Get implements Store.
func (s refusing) Get(ctx context.Context, t Table, k Key, c Consistency) (row Row, err error) {
	err = s.bounded(ctx, c, func(ctx context.Context) error {
		row, err = s.Store.Get(ctx, t, k, c)
		return err
	})
	return row, err
}

// List implements Store.
func (s refusing) List(ctx context.Context, t Table, partition, after string, limit int, c Consistency) (rows []Row, more bool, err error) {
	err = s.bounded(ctx, c, func(ctx context.Context) error {
		rows, more, err = s.Store.List(ctx, t, partition, after, limit, c)
		return err
	})
	return rows, more, err
}

// ListWhere implements WhereLister.
func (s refusing) ListWhere(ctx context.Context, t Table, partition, after string, limit int, c Consistency, wanted func(row string) bool) (rows []Row, more bool, err error) {
	err = s.bounded(ctx, c, func(ctx context.Context) error {
		rows, more, err = ListWhere(ctx, s.Store, t, partition, after, limit, c, wanted)
		return err
	})
	return rows, more, err
}

// GetRows implements RowsGetter.
func (s refusing) GetRows(ctx context.Context, t Table, keys []Key, c Consistency) (rows []Row, err error) {
	err = s.bounded(ctx, c, func(ctx context.Context) error {
		rows, err = GetRows(ctx, s.Store, t, keys, c)
		return err
	})
	return rows, err
}

// Insert implements Store.
func (s refusing) Insert(ctx context.Context, t Table, k Key, value []byte) error {
	if err := s.answered(ctx, t, k, Quorum); err != nil {
		return err
	}
	return s.Store.Insert(ctx, t, k, value)
}

// Put implements Store.
func (s refusing) Put(ctx context.Context, t Table, k Key, value []byte, at time.Time, ttl time.Duration, c Consistency) error {
	if err := s.answered(ctx, t, k, c); err != nil {
		return err
	}
	return s.Store.Put(ctx, t, k, value, at, ttl, c)
}

// answered fails unless a majority says whether a row is there.
func (s refusing) answered(ctx context.Context, t Table, k Key, c Consistency) error {
	if c == One || s.Majority() == nil {
		return nil
	}
	_, err := s.Get(ctx, t, k, c)
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}

// bounded does a read.
func (s refusing) bounded(ctx context.Context, c Consistency, read func(context.Context) error) error {
	m := s.Majority()
	if c == One || m == nil {
		return read(ctx)
	}
	lacks, err := m.ask(ctx, ChangeWait, read)
	if lacks { // without the cause: that the wait for it was over is not that the call's time is
		err = core.Errorf(core.CodeNoMajority, "no majority of the metadata answers, so nothing can be changed: %v", err)
	}
	return err
}
