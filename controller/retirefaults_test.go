package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// spoiled stands before the metadata: it may spoil what is listed, and refuse to write.
type spoiled struct {
	metadata.Store
	kill  atomic.Bool
	left  atomic.Int64 // writes that are let through before none is
	spoil atomic.Pointer[func(t metadata.Table, rows []metadata.Row) ([]metadata.Row, error)]
}

func (s *spoiled) write(f func() error) error {
	if s.kill.Load() && s.left.Add(-1) < 0 {
		return core.Errorf(core.CodeUnavailable, "injected")
	}
	return f()
}

func (s *spoiled) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return s.write(func() error { return s.Store.Update(ctx, t, k, old, value, ttl) })
}

func (s *spoiled) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.write(func() error { return s.Store.Put(ctx, t, k, value, at, ttl, c) })
}

func (s *spoiled) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return s.write(func() error { return s.Store.Remove(ctx, t, k, at, c) })
}

func (s *spoiled) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	rows, more, err := s.Store.List(ctx, t, partition, after, limit, c)
	if f := s.spoil.Load(); f != nil && err == nil {
		rows, err = (*f)(t, rows)
	}
	return rows, more, err
}

// TestRetain_MissingAnswers: an error, or a list of groups that has become shorter, retires nothing.
func TestRetain_MissingAnswers(t *testing.T) {
	failing := func(table metadata.Table) func(metadata.Table, []metadata.Row) ([]metadata.Row, error) {
		return func(t metadata.Table, rows []metadata.Row) ([]metadata.Row, error) {
			if t == table {
				return nil, core.Errorf(core.CodeUnavailable, "injected")
			}
			return rows, nil
		}
	}
	for name, spoil := range map[string]func(metadata.Table, []metadata.Row) ([]metadata.Row, error){
		"groups fail": failing(metadata.Groups),
		"dones fail":  failing(metadata.Dones),
		"a group is missing": func(t metadata.Table, rows []metadata.Row) ([]metadata.Row, error) {
			if t == metadata.Groups {
				return rows[:len(rows)-1], nil
			}
			return rows, nil
		},
		"dones are missing": func(t metadata.Table, rows []metadata.Row) ([]metadata.Row, error) {
			if t == metadata.Dones {
				return nil, nil
			}
			return rows, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
				r.ctl.end()
				meta := &spoiled{Store: r.meta}
				r.use(meta)
				r.ctl = r.startController(calm)
				queue := r.keeping(keepConsumed, 10*keepUnconsumed)
				a, z := r.group(queue, "a"), r.group(queue, "z")
				first := r.sealed(queue, 5)
				r.done(a, first)
				r.sleep(keepConsumed + time.Minute) // the groups are looked at, and z has not consumed it
				meta.spoil.Store(&spoil)
				if name != "a group is missing" {
					r.done(z, first)
				}
				r.sleep(2 * keepConsumed) // twice as long as it takes to retire what all have consumed
				r.stays(first, 5, name)
				meta.spoil.Store(nil)
				if name == "a group is missing" {
					r.sleep(2 * time.Minute)
					r.stays(first, 5, "z is behind")
					r.done(z, first)
					r.sleep(keepConsumed)
				}
				r.goes(first)
			})
		})
	}
}

// TestRetain_ControllerKilledAtAnyMoment lets so many writes of the metadata through and none after; another controller
// goes on from the rows. Messages that a group needs stay all the time.
func TestRetain_ControllerKilledAtAnyMoment(t *testing.T) {
	states := make(map[core.ExtentState]bool)
	for writes := range 12 {
		bubble(t, harnessOptions{stores: 3, edit: calm}, func(r *harness) {
			r.ctl.end()
			meta := &spoiled{Store: r.meta}
			r.use(meta)
			r.ctl = r.startController(calm)
			queue := r.keeping(keepConsumed, 10*keepUnconsumed)
			g := r.group(queue, "g")
			e, needed := r.sealed(queue, 5), r.sealed(queue, 4)
			r.done(g, e)
			r.sleep(keepConsumed - time.Minute)
			meta.left.Store(int64(writes))
			meta.kill.Store(true)
			r.sleep(5 * time.Minute)
			states[r.row(e).State] = true
			r.ctl.end()
			meta.kill.Store(false)
			r.ctl = r.startController(calm)
			r.eventually("it is removed", 5*time.Minute, func() bool { _, live := r.ctl.extents.Get(e.ID); return !live && r.held(e) == 0 })
			if n := rows(r, metadata.Extents, queue.String()); n != 1 {
				t.Errorf("killed after %d writes: %d create rows are left, want that of the other extent", writes, n)
			}
			r.stays(needed, 4, "not consumed")
		})
	}
	for _, s := range []core.ExtentState{core.ExtentSealed, core.ExtentRetiring, core.ExtentRetired} {
		if !states[s] {
			t.Errorf("no controller was killed when the extent was %s: %v", s, states)
		}
	}
}
