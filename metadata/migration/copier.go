package migration

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// window is how many rows are written before the position is noted.
	window = 1000
	// lookAgain is how old the last look at the record may be when rows are written. A write that is tried again for
	// minutes could otherwise come after another call has taken over, and a server has started.
	lookAgain = 10 * time.Second
)

// copier writes windows of rows.
type copier struct {
	*link
	to     Target
	call   Call
	rows   []metadata.Stored
	done   int
	looked atomic.Int64 // when the record was found to let this call write, in ns since 1970
}

func (c *copier) add(ctx context.Context, r metadata.Stored) error {
	if own(r) {
		return nil // of a copy into the store that is now embedded
	}
	c.rows = append(c.rows, r)
	if len(c.rows) < window {
		return nil
	}
	return c.flush(ctx)
}

func (c *copier) flush(ctx context.Context) error {
	if len(c.rows) == 0 {
		return nil
	}
	if err := c.ask(ctx, c.look); err != nil {
		return core.Errorf(core.CodeOf(err), "record of the copy: %w", err)
	}
	writes, writing := errgroup.WithContext(ctx)
	writes.SetLimit(mostAtOnce)
	for _, part := range c.to.Parts(c.rows) {
		writes.Go(func() error {
			return c.write(writing, func(ctx context.Context) error { return c.load(ctx, part) })
		})
	}
	if err := writes.Wait(); err != nil {
		return err
	}
	last := c.rows[len(c.rows)-1]
	err := c.change(ctx, c.to, func(r *record) error {
		r.Position = PositionOf(last)
		return r.is(c.call)
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "note how far the copy is: %w", err)
	}
	c.done += len(c.rows)
	c.rows = c.rows[:0]
	c.at(c.done)
	return nil
}

// load writes a part of a window, unless another call may write by now.
func (c *copier) load(ctx context.Context, part []metadata.Stored) error {
	if time.Since(time.Unix(0, c.looked.Load())) > lookAgain {
		if err := c.look(ctx); err != nil {
			return err
		}
	}
	return c.to.Load(ctx, part)
}

// look returns an error unless this call may write.
func (c *copier) look(ctx context.Context) error {
	began := time.Now()
	if err := readRecord(ctx, c.to, c.call); err != nil {
		return err
	}
	c.looked.Store(began.UnixNano())
	return nil
}

// readRecord returns an error unless the record is there, and is that of a call. CodeConflict.
func readRecord(ctx context.Context, s metadata.Store, call Call) error {
	there, _, err := metadata.Read[record](ctx, s, metadata.Settings, key, metadata.Serial)
	if err != nil {
		return err
	}
	return there.is(call)
}
