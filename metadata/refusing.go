package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// ChangeWait bounds how long a change waits for a majority before anything is done. A majority that is lost for less
// than that fails no change.
const ChangeWait = 2 * time.Second

// Refusing is a store for changes that a caller waits for. While no majority answers, Insert, Put at Quorum, and reads
// at Quorum and Serial fail with CodeNoMajority after ChangeWait: nothing was written then. Insert and Put read the row
// first, unless a majority answered another call a moment ago, see Majority.Holds. A change that was sent is waited for
// as long as its context allows, because its outcome may be unknown. A read at One that no copy answers fails with
// CodeNoMajority, too. All other calls are those of s, and so are all calls while s is in one place. The errors of a
// change, and of reads with a context of ForChange, say that nothing can be changed; those of other reads say that this
// cannot be read.
func Refusing(s Store) Store { return refusing{s} }

type refusing struct{ Store }

type forChange struct{}

// ForChange is a context for the reads that belong to a change: their errors say that nothing can be changed.
func ForChange(ctx context.Context) context.Context { return context.WithValue(ctx, forChange{}, true) }

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
	return s.changed(ctx, t, k, Quorum, func() error { return s.Store.Insert(ctx, t, k, value) })
}

// Put implements Store.
func (s refusing) Put(ctx context.Context, t Table, k Key, value []byte, at time.Time, ttl time.Duration, c Consistency) error {
	return s.changed(ctx, t, k, c, func() error { return s.Store.Put(ctx, t, k, value, at, ttl, c) })
}

// changed does a change that may need a majority. It reads the row first, unless a majority answered a moment ago.
func (s refusing) changed(ctx context.Context, t Table, k Key, c Consistency, change func() error) error {
	m := s.Majority()
	if c == One || m == nil {
		return change()
	}
	if !m.Holds() {
		if _, err := s.Get(ForChange(ctx), t, k, c); err != nil && core.CodeOf(err) != core.CodeNotFound {
			return err
		}
	}
	began := time.Now()
	err := change()
	switch code := core.CodeOf(err); {
	case code == "", code == core.CodeExists:
		m.note(began, true)
	case code == core.CodeUnavailable && ctx.Err() == nil:
		m.note(began, false)
		err = refused(ForChange(ctx), err)
	}
	return err
}

// refused is the error of a call that changed nothing. It hides the cause: that the wait for it was over is not that
// the call's time is.
func refused(ctx context.Context, err error) error {
	so := "this cannot be read"
	if ctx.Value(forChange{}) != nil {
		so = "nothing can be changed"
	}
	return core.Errorf(core.CodeNoMajority, "no majority of the metadata answers, so %s: %v", so, err)
}

// bounded does a read.
func (s refusing) bounded(ctx context.Context, c Consistency, read func(context.Context) error) error {
	m := s.Majority()
	if m == nil {
		return read(ctx)
	}
	if c == One {
		err := read(ctx)
		if core.CodeOf(err) == core.CodeUnavailable && ctx.Err() == nil {
			err = noCopy(err)
		}
		return err
	}
	lacks, err := m.ask(ctx, ChangeWait, read)
	if lacks {
		err = refused(ctx, err)
	}
	return err
}
