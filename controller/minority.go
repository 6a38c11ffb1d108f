package controller

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	// minorityEvery is how often the shares of a minority are looked at, and its output hosts sent their lists.
	minorityEvery = 500 * time.Millisecond
	// minorityIdle is the same while there are none, for extents that others made and this controller has learned of.
	minorityIdle = 5 * time.Second
	// makerGone is for how long membership has not shown the run that made an extent of a minority when others assign its
	// shares.
	makerGone = 10 * time.Second
)

// minority is what this controller does for the extents that it made without a majority of the metadata
// (docs/adr/0065). It alone assigns their shares:
//
//	made ──▶ assigned, in lists beside those of the queue ──a majority answers──▶ leaving ──no output host goes on, rows are at Quorum──▶ released
//	            ▲                                                                   │
//	            └────────────── no majority, and no row was written ────────────────┘
//
// A released extent is one like all others. The fields are minorityLoop's but for the first three.
type minority struct {
	wake    chan struct{}
	keeps   atomic.Bool                         // output hosts may go on with the lists
	owners  atomic.Pointer[map[core.RunID]bool] // those that have shares
	stopped time.Time                           // since when they may not; zero: they may
	shares  map[catalog.Share]minorityShare
	leaving map[core.ExtentID]struct{} // whose rows may say at Quorum already that they are released
	lists   map[minorityKey]*minorityList
	makers  makers
}

// minorityShare is a decision, with its row.
type minorityShare struct {
	metadata.AssignmentRecord
	epoch   uint64 // of the group
	written time.Time
}

func newMinority() *minority {
	return &minority{
		wake: make(chan struct{}, 1), shares: make(map[catalog.Share]minorityShare), leaving: make(map[core.ExtentID]struct{}),
		lists: make(map[minorityKey]*minorityList), makers: makers{seen: make(map[core.RunID]time.Time)},
	}
}

// made asks for a look: there is a new extent.
func (m *minority) made() { poke(m.wake) }

// minorityLoop looks after the extents of minorities until ctx ends.
func (h *Host) minorityLoop(ctx context.Context) {
	next := time.NewTimer(minorityIdle)
	defer next.Stop()
	for {
		pause := minorityIdle
		if h.minorityRound(ctx) {
			pause = minorityEvery
		}
		next.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-h.minority.wake:
		}
	}
}

// minorityRound reports whether there is something to look after.
func (h *Host) minorityRound(ctx context.Context) bool {
	m := h.minority
	all := h.extents.OfMinority()
	own := all[:0:0]
	for _, e := range all {
		if e.Minority == h.maker() {
			own = append(own, e)
		}
	}
	h.takeOverMinority(all)
	switch {
	case len(own) == 0 && !m.unconfirmed():
		m.keeps.Store(false)
		clear(m.lists)
		clear(m.shares)
		clear(m.leaving)
	case len(own) > 0 && h.majorityAnswers(ctx, own[0]):
		h.endMinority(ctx, own)
	default:
		m.stopped = time.Time{}
		m.keeps.Store(true)
		if err := h.assignMinority(ctx, own); err != nil && ctx.Err() == nil {
			h.log.Info("shares of extents that were made without a majority of the metadata wait", "err", err)
		}
		lists := h.minorityLists()
		m.owners.Store(ownersOf(lists)) // before they hear of it
		h.tellMinority(ctx, lists)
	}
	return len(all) > 0 || len(m.lists) > 0
}

// majorityAnswers asks for the row of an extent; a majority may not have it.
func (h *Host) majorityAnswers(ctx context.Context, e catalog.Extent) bool {
	err := h.withMajority(ctx, func(ctx context.Context) error {
		_, err := h.deps.Meta.Get(ctx, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), metadata.Quorum)
		return err
	})
	return err == nil || core.CodeOf(err) == core.CodeNotFound
}

// endMinority releases extents. Each output host has given their shares away, and saved them, or its lease of the lists
// is over. Then the rows are written at Quorum, where the controller that is responsible for the queue finds them at
// once: hints between copies of the metadata come later.
func (h *Host) endMinority(ctx context.Context, own []catalog.Extent) {
	m := h.minority
	if m.keeps.Swap(false) || m.stopped.IsZero() {
		m.stopped = h.deps.now()
	}
	if !h.tellMinority(ctx, nil) && h.deps.now().Sub(m.stopped) < dispatch.OwnerGone {
		return
	}
	for _, e := range own {
		m.leaving[e.ID] = struct{}{}
	}
	if err := h.secureMinority(ctx, own); err != nil {
		if ctx.Err() == nil {
			h.log.Info("extents that were made without a majority of the metadata cannot be released yet", "extents", len(own), "err", err)
		}
		return
	}
	h.log.Info("extents that were made without a majority of the metadata are released", "extents", len(own))
	clear(m.lists)
	clear(m.shares)
	for _, e := range own {
		delete(m.leaving, e.ID)
		h.release(e.ID)
		e.Minority = metadata.Maker{}
		h.tellOthers(e)
	}
}

// secureMinority writes the assignments of extents, their hints and their create rows at Quorum, those without their
// maker.
func (h *Host) secureMinority(ctx context.Context, own []catalog.Extent) error {
	m, at := h.minority, h.deps.now()
	var assignments, hints []metadata.Row
	for _, s := range m.shares {
		row, err := metadata.NewRow(metadata.Assignments, metadata.AssignmentKey(s.Group, s.Extent.ID, s.Precedence()), s.AssignmentRecord, s.written)
		if err != nil {
			return err
		}
		assignments = append(assignments, row)
	}
	var created []metadata.Row
	for _, e := range own {
		r := e.ExtentRecord
		r.Minority = metadata.Maker{}
		written := at
		if least := r.Created.Add(metadata.Tick); written.Before(least) {
			written = least
		}
		for _, hint := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
			row, err := metadata.NewRow(metadata.Work, metadata.HintKey(hint, r.ID), r, written)
			if err != nil {
				return err
			}
			hints = append(hints, row)
		}
		row, err := metadata.NewRow(metadata.Extents, metadata.ExtentKey(r.Queue, r.ID), r, written)
		if err != nil {
			return err
		}
		created = append(created, row)
	}
	for _, some := range []struct {
		table metadata.Table
		rows  []metadata.Row
	}{{metadata.Assignments, assignments}, {metadata.Work, hints}, {metadata.Extents, created}} {
		if len(some.rows) == 0 {
			continue
		}
		if err := h.deps.Meta.PutAll(ctx, some.table, some.rows, metadata.Quorum); err != nil {
			return err
		}
	}
	return nil
}

// release makes an extent of a minority one like all others.
func (h *Host) release(id core.ExtentID) {
	if e, released := h.extents.Release(id); released {
		h.touchReaders(e)
	}
}

// makers are the runs of controllers that made extents without a majority.
type makers struct {
	seen map[core.RunID]time.Time // when membership showed them last, or their extents were met
}

// takeOverMinority releases the extents of runs that are gone: another run of the controller is there, or none is for
// makerGone. It could not say so itself.
func (h *Host) takeOverMinority(all []catalog.Extent) {
	x, now := &h.minority.makers, h.deps.now()
	controllers := h.deps.Members.Hosts("controller")
	wanted := make(map[core.RunID]bool)
	for _, e := range all {
		if e.Minority == h.maker() {
			continue
		}
		wanted[e.Minority.Run] = true
		seen, known := x.seen[e.Minority.Run]
		there, replaced := madeBy(e.Minority, controllers)
		if there || !known {
			x.seen[e.Minority.Run], seen = now, now
		}
		if replaced || now.Sub(seen) >= makerGone {
			h.log.Info("an extent that was made without a majority of the metadata is taken over, because its controller is gone", "extent", e.ID, "controller", e.Minority.Controller)
			h.release(e.ID)
		}
	}
	for run := range x.seen {
		if !wanted[run] {
			delete(x.seen, run)
		}
	}
}

// madeBy reports whether the maker is among controllers, or another run of it.
func madeBy(m metadata.Maker, controllers []membership.Host) (there, replaced bool) {
	for _, c := range controllers {
		there = there || c.Run == m.Run
		replaced = replaced || c.ID == m.Controller && c.Run != m.Run
	}
	return there, replaced && !there
}
