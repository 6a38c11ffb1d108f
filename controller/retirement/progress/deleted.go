package progress

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/metadata"
)

// Place is what a removal of many rows has removed for good: extents of a group, or deleted groups of an extent. The
// next try leaves that out. Safe for concurrent use.
type Place struct {
	mu struct {
		sync.Mutex
		gone map[core.ID]struct{}
	}
}

// NewPlace is where a removal begins.
func NewPlace() *Place {
	p := new(Place)
	p.mu.gone = make(map[core.ID]struct{})
	return p
}

// Len is how much it has removed.
func (p *Place) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.gone)
}

// once calls f unless that has succeeded before.
func (p *Place) once(id core.ID, f func() error) error {
	p.mu.Lock()
	_, gone := p.mu.gone[id]
	p.mu.Unlock()
	if gone {
		return nil
	}
	err := f()
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.gone[id] = struct{}{}
	}
	return err
}

// sharesAtOnce bounds the shares whose rows one call removes side by side.
const sharesAtOnce = 8

// shares removes rows of shares side by side. After an error no other share is begun.
type shares struct {
	g      errgroup.Group
	failed atomic.Bool
}

func newShares() *shares {
	s := new(shares)
	s.g.SetLimit(sharesAtOnce)
	return s
}

// remove calls f beside others, and reports whether there may be more.
func (s *shares) remove(f func() error) (more bool) {
	if !s.failed.Load() {
		s.g.Go(func() error {
			err := f()
			if err != nil {
				s.failed.Store(true)
			}
			return err
		})
	}
	return !s.failed.Load()
}

// ForgetGroup removes all rows of a deleted group: in extents, and in those that its rows name. It may be done again,
// and by several callers at once. Nothing lists the shares that have checkpoints, so the rows that name an extent go
// after its checkpoints.
func ForgetGroup(ctx context.Context, meta metadata.Store, group core.GroupID, extents []core.ExtentID, place *Place, now time.Time) error {
	forget := func(id core.ID) error {
		return place.once(id, func() error { return forgetShare(ctx, meta, group, core.ExtentID{ID: id}, now) })
	}
	all := newShares()
	for _, id := range extents {
		if !all.remove(func() error { return forget(id.ID) }) {
			break
		}
	}
	if err := all.g.Wait(); err != nil {
		return err
	}
	for _, table := range []metadata.Table{metadata.Dones, metadata.Assignments} {
		if err := forgetNamed(ctx, meta, table, group, forget, now); err != nil {
			return err
		}
	}
	return nil
}

// forgetNamed removes a group's rows of a table that name an extent, those of one extent after one another.
func forgetNamed(ctx context.Context, meta metadata.Store, table metadata.Table, group core.GroupID, forget func(extent core.ID) error, now time.Time) error {
	all := newShares()
	var some []metadata.Row // of one extent: they lie beside each other
	remove := func() (more bool) {
		rows := some
		some = nil
		return all.remove(func() error {
			for i, row := range rows {
				if extent, err := core.ParseID(extentOf(row)); i == 0 && err == nil {
					if err := forget(extent); err != nil {
						return err
					}
				}
				if err := meta.Remove(ctx, table, row.Key, later(now, row.Written), metadata.Quorum); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for row, err := range metadata.Rows(ctx, meta, table, group.String(), metadata.Quorum) {
		if err != nil {
			_ = all.g.Wait()
			return err
		}
		if len(some) > 0 && extentOf(some[0]) != extentOf(row) && !remove() {
			break
		}
		some = append(some, row)
	}
	remove()
	return all.g.Wait()
}

// extentOf is the name of the extent of a done row or an assignment.
func extentOf(row metadata.Row) string {
	name, _, _ := strings.Cut(row.Key.Row, "/")
	return name
}

// forgetShare removes the checkpoints of a share, and what its owners claimed in a group that delivers at most once.
func forgetShare(ctx context.Context, meta metadata.Store, group core.GroupID, id core.ExtentID, now time.Time) error {
	share := metadata.CheckpointPartition(group, id)
	for row, err := range metadata.Rows(ctx, meta, metadata.Checkpoints, share, metadata.Quorum) {
		if err == nil {
			err = meta.Remove(ctx, metadata.Checkpoints, row.Key, later(now, row.Written), metadata.Quorum)
		}
		if err != nil {
			return err
		}
	}
	for row, err := range metadata.Rows(ctx, meta, metadata.Claims, share, metadata.Serial) {
		if err == nil {
			err = metadata.Delete(ctx, meta, metadata.Claims, row.Key, row.Version)
		}
		if err != nil && core.CodeOf(err) != core.CodeNotFound {
			return err
		}
	}
	return nil
}

// ForgetCancelled removes what was cancelled of an extent that is gone.
func ForgetCancelled(ctx context.Context, meta metadata.Store, extent core.ExtentID) error {
	key := metadata.CancelKey(extent)
	_, version, err := metadata.Read[cancel.Book](ctx, meta, metadata.Cancels, key, metadata.Serial)
	if err == nil {
		err = metadata.Delete(ctx, meta, metadata.Cancels, key, version)
	}
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}
