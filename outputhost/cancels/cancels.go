// Package cancels owns the cancelled timers on an output host: it reads the cancellation rows, applies them to shares,
// and ends attempts that their frontend left unfinished.
package cancels

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// GiveUp is how long a host holds messages for an attempt before it has it dropped: whoever began it has died, or has
// given up long ago.
const GiveUp = 20 * time.Second

// mostHeld bounds the messages that a share withholds: several times what attempts may have pending of an extent.
const mostHeld = 8 * cancel.MaxPending

// Tolerance is how far the clock by which a message was handed out may have been ahead.
const Tolerance = time.Second

// Decided is what was read of an extent.
type Decided struct {
	book   cancel.Book
	called *acklevel.Window
}

// Desk reads and ends attempts. Safe for concurrent use.
type Desk struct {
	meta metadata.Store
	now  func() time.Time
	mu   struct {
		sync.Mutex
		seen map[core.ID]time.Time // attempts, and when they were seen first
	}
}

// New makes a desk.
func New(meta metadata.Store, now func() time.Time) *Desk {
	d := &Desk{meta: meta, now: now}
	d.mu.seen = make(map[core.ID]time.Time)
	return d
}

// Read reads what was decided of an extent's messages.
func (d *Desk) Read(ctx context.Context, extent core.ExtentID) (Decided, error) {
	return read(ctx, d.meta, extent, metadata.Serial)
}

// ReadToShow is Read for a listing: without a majority of the metadata it reads one copy.
func (d *Desk) ReadToShow(ctx context.Context, extent core.ExtentID) (Decided, error) {
	return read(ctx, metadata.QuorumOrOne(d.meta), extent, metadata.Quorum)
}

func read(ctx context.Context, meta metadata.Store, extent core.ExtentID, c metadata.Consistency) (Decided, error) {
	out := Decided{called: &acklevel.Window{}}
	book, _, err := metadata.Read[cancel.Book](ctx, meta, metadata.Cancels, metadata.CancelKey(extent), c)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return out, nil
	case err == nil:
		out.book = book
		out.called, err = book.Window()
	}
	if err != nil {
		return out, core.Errorf(core.CodeOf(err), "look up what is cancelled of extent %s: %w", extent, err)
	}
	return out, nil
}

// Resume applies what was decided to what owners of a share have saved.
func (x *Decided) Resume(state *dispatch.State, group core.GroupID) {
	if x.called != nil && x.called.Top() > 0 {
		state.Cancel(x.called, x.book.KeptBy(group))
	}
}

// ForAll reports whether nobody gets a message.
func (x *Decided) ForAll(seq core.Seq) bool { return x.book.ForAll(x.called, seq) }

// Withhold has a share that resumes wait for what is still being decided.
func (x *Decided) Withhold(s *dispatch.Share, now time.Time) {
	for _, p := range x.book.Pending {
		s.Withhold(p.Seq, now)
	}
}

// Follow has a share do what was decided; it had withheld so many messages when that was read.
func (x *Decided) Follow(s *dispatch.Share, group core.GroupID, until uint64, now time.Time) {
	undecided := make(map[core.Seq]bool, len(x.book.Pending))
	for _, p := range x.book.Pending {
		undecided[p.Seq] = true
	}
	s.Follow(x.called, x.book.KeptBy(group), undecided, until, now)
}

// End drops the attempts that have been there for too long, as far as this host has seen, and answers what is left.
func (d *Desk) End(ctx context.Context, extent core.ExtentID, x Decided) (Decided, error) {
	late := d.late(x.book.Pending)
	if len(late) == 0 {
		return x, nil
	}
	book, err := metadata.Change(ctx, d.meta, metadata.Cancels, metadata.CancelKey(extent), func(b *cancel.Book) error {
		if !b.Drop(late...) {
			return metadata.ErrNoChange
		}
		return nil
	})
	if err != nil {
		return x, core.Errorf(core.CodeOf(err), "end what was begun to be cancelled of extent %s: %w", extent, err)
	}
	x = Decided{book: book}
	x.called, err = book.Window()
	return x, err
}

// late are the attempts that were seen first long ago. It forgets those that were so for a while longer.
func (d *Desk) late(pending []cancel.Pending) (late []core.ID) {
	now := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, since := range d.mu.seen {
		if now.Sub(since) > 2*GiveUp {
			delete(d.mu.seen, id)
		}
	}
	for _, p := range pending {
		since, known := d.mu.seen[p.Attempt]
		switch {
		case !known:
			d.mu.seen[p.Attempt] = now
		case now.Sub(since) > GiveUp && !slices.Contains(late, p.Attempt):
			late = append(late, p.Attempt)
		}
	}
	return late
}

// Hold asks a share to withhold a message that is due then; began is the time since when the share is this host's. An
// earlier owner may have delivered messages that were due before began, and have died before it saved that: for such a
// message it is too late. So it is for one more than mostHeld.
func Hold(s *dispatch.Share, seq core.Seq, due, began, now time.Time) string {
	st := s.Standing(seq)
	fresh := st.Place == dispatch.PlaceUnread || st.Attempts == 0 && st.Place != dispatch.PlaceDone
	if fresh && (!due.After(began.Add(Tolerance)) || s.Withheld() >= mostHeld) {
		return string(cancel.Due)
	}
	return string(s.Withhold(seq, now))
}
