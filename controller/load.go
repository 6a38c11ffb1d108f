package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// reloadEvery is how often a controller looks for extents that it does not know, while others name all their changes
	// or there are none: a write of a predecessor can land late. It is also the shortest time between two readings of all
	// rows then.
	reloadEvery = 10 * time.Minute
	// reloadSeldom is the longest time between those, when they find nothing: see readings.
	reloadSeldom = 4 * reloadEvery
	// reloadOften is how often several controllers read what the others did: all rows, unless these name all of it.
	reloadOften = 30 * time.Second
	// reloadTimeout bounds one reading.
	reloadTimeout = 5 * time.Minute
	// sealRowsAtOnce bounds the seal rows of one call.
	sealRowsAtOnce = 500
	// sealRowsTimeout bounds such a call. Each row is a read of its own, of which a store does a few side by side: slow
	// metadata need more than the time of another call.
	sealRowsTimeout = time.Minute
)

// reloadLoop takes in what this controller does not know. A predecessor's last writes, or those of a controller that
// was away, can land later, and nobody would ever seal what nobody knows of. Other controllers seal, move and retire
// extents.
func (h *Host) reloadLoop(ctx context.Context) {
	last, alone := h.deps.now(), 2*unopenedAfter
	r, heard := newReadings(h.cfg.CalmAfter, mostFollowed), make(heardChanges)
	tick := time.NewTicker(reloadOften)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-h.reload: // it became responsible for queues that others acted for
			r.asked = true
			tick.Reset(reloadOften)
		}
		now := h.deps.now()
		if r.asked && !r.mayReadAll(time.Now()) || !r.asked && h.isLone() && now.Sub(last) < alone || !h.gate.pass() {
			continue
		}
		last, alone = now, reloadEvery
		h.reloadRound(ctx, r, heard)
	}
}

// isLone reports whether no other controller may change anything, as far as is known. One that gossip does not show may
// hold a session lease.
func (h *Host) isLone() bool {
	return len(h.deps.Members.Hosts("controller")) < 2 && len(h.duties.Others()) == 0
}

// reloadRound reads all extents again, or those that controllers have changed and now and then those that are not
// known. Others are asked before, so no change is between two rounds. A full reading that is asked for waits for no
// answer: the next round hears of more then.
func (h *Host) reloadRound(ctx context.Context, r *readings, heard heardChanges) {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	var a answered
	if !r.asked {
		a = h.listChanges(ctx, heard)
	}
	began, made := time.Now(), h.deps.now().Add(-unopenedAfter)
	r.take(a, began)
	calm := r.calm(a, h.isLone(), began)
	if !calm && r.mayReadAll(began) {
		end := h.reloads.begin()
		found, err := h.load(ctx, made)
		end(err)
		r.hasReadAll(began, time.Now(), found, err)
		if err == nil {
			h.metrics.readAll.Observe(time.Since(began).Seconds())
		} else if ctx.Err() == nil {
			h.log.Info("extents could not be read again", "err", err)
		}
		return
	}
	err := h.catchUp(ctx, r.named, r.ids(), made)
	r.hasReadNamed(began, err)
	if err != nil && ctx.Err() == nil {
		h.log.Info("extents that controllers have changed could not be read; the rows of all extents are read", "err", err)
	}
	if err != nil {
		return
	}
	h.metrics.learned.Add(float64(a.others))
	if calm && r.newIsDue(began) {
		found, err := h.loadNew(ctx, made)
		if r.hasReadNew(began, found, err); err != nil && ctx.Err() == nil {
			h.log.Info("extents that are not known could not be read", "err", err)
		}
	}
}

// load brings the cache up to the work hints and the seal rows, and answers how many extents were not known as they
// are. Extents that it lacks are taken in if they were made by then, zero is all. Later ones may be under way, here
// too, and come to nothing: they are taken in if they have create rows.
func (h *Host) load(ctx context.Context, made time.Time) (found int, err error) {
	reading := h.unread.begin()
	if found, err = h.loadSome(ctx, made, func(metadata.ExtentRecord) bool { return true }); err == nil {
		h.unread.end(reading)
		h.recheck(ctx)
	}
	return found, err
}

// loadNew is load for the extents that are not known, or otherwise than their hints say. It reads all hints, many with
// one call, but few seal rows, each of which is a read of its own.
func (h *Host) loadNew(ctx context.Context, made time.Time) (found int, err error) {
	return h.loadSome(ctx, made, func(r metadata.ExtentRecord) bool {
		e, known := h.extents.Get(r.ID)
		return !known || e.Minority != r.Minority
	})
}

// loadSome is load for the extents with hints that wanted picks.
func (h *Host) loadSome(ctx context.Context, made time.Time, wanted func(metadata.ExtentRecord) bool) (found int, err error) {
	gone := make(map[core.ExtentID]struct{}) // known, but without a hint so far
	for e := range h.extents.All(func(*catalog.Extent) bool { return true }) {
		gone[e.ID] = struct{}{}
	}
	open := make(map[core.ExtentID]bool)
	for r, err := range metadata.Hints(ctx, h.deps.Meta, metadata.HintOpen, metadata.Quorum) {
		switch {
		case h.unread.skips(metadata.Work, r.Key, err): // its key says all that is asked here
			id, _ := metadata.HintedExtent(r.Key)
			r.Value.ID = id
		case err != nil:
			return found, err
		}
		open[r.Value.ID] = true
	}
	var young []metadata.ExtentRecord
	part := make([]metadata.ExtentRecord, 0, sealRowsAtOnce)
	take := func() error {
		n, err := h.takeIn(ctx, part, open)
		part, found = part[:0], found+n
		return err
	}
	for r, err := range metadata.Hints(ctx, h.deps.Meta, metadata.HintLive, metadata.Quorum) {
		switch {
		case h.unread.skips(metadata.Work, r.Key, err):
			continue
		case err != nil:
			return found, err
		}
		if delete(gone, r.Value.ID); !wanted(r.Value) {
			continue
		}
		if _, known := h.extents.Get(r.Value.ID); !known && !made.IsZero() && r.Value.Created.After(made) {
			young = append(young, r.Value)
			continue
		}
		if part = append(part, r.Value); len(part) == cap(part) {
			if err := take(); err != nil {
				return found, err
			}
		}
	}
	if err := take(); err != nil {
		return found, err
	}
	if part, err = h.registered(ctx, young); err == nil {
		err = take()
	}
	if err != nil {
		return found, err
	}
	n, err := h.forgetRetired(ctx, gone)
	return found + n, err
}

// registered are those extents that have create rows.
func (h *Host) registered(ctx context.Context, all []metadata.ExtentRecord) (out []metadata.ExtentRecord, err error) {
	for some := range slices.Chunk(all, sealRowsAtOnce) {
		keys := make([]metadata.Key, len(some))
		for i, r := range some {
			keys[i] = metadata.ExtentKey(r.Queue, r.ID)
		}
		ctx, cancel := context.WithTimeout(ctx, sealRowsTimeout)
		rows, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Extents, keys, metadata.Quorum)
		cancel()
		if err != nil {
			return nil, err
		}
		there := make(map[metadata.Key]bool, len(rows))
		for _, row := range rows {
			there[row.Key] = true
		}
		for i, r := range some {
			if there[keys[i]] {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// takeIn brings extents that have a live hint up to their seal rows, and answers how many of them were not known as
// they are; open says which have an open hint, too.
func (h *Host) takeIn(ctx context.Context, part []metadata.ExtentRecord, open map[core.ExtentID]bool) (found int, err error) {
	if len(part) == 0 {
		return 0, nil
	}
	ids := make([]core.ExtentID, len(part))
	for i, r := range part {
		ids[i] = r.ID
	}
	rows, err := h.sealRows(ctx, ids)
	if err == nil {
		err = h.openLately(ctx, rows, open)
	}
	if err == nil {
		part, err = h.withoutEnded(ctx, part, rows)
	}
	if err != nil {
		return 0, err
	}
	for _, r := range part {
		row, sealed := rows[r.ID]
		if !sealed && h.unread.has(metadata.Seals, metadata.SealKey(r.ID)) { // it may have ended
			continue
		}
		if _, known := h.extents.Get(r.ID); !known {
			e := catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: r.Home}
			if sealed {
				e = e.Took(row)
				e.Told = e.State.HasEnd() && !open[e.ID]
			}
			h.meet(e)
			found++
			continue
		}
		if r.Minority == (metadata.Maker{}) { // a hint may be read before its maker has released the extent, and after
			h.release(r.ID)
		}
		if sealed {
			if h.took(row) {
				found++
			}
			h.extents.Change(r.ID, func(e *catalog.Extent) { e.Told = e.Told || e.State.HasEnd() && !open[e.ID] })
		}
	}
	return found, nil
}

// openLately adds to open the extents that were sealed a moment ago and have an open hint: their seals may have begun
// after the open hints were read.
func (h *Host) openLately(ctx context.Context, rows map[core.ExtentID]metadata.SealRecord, open map[core.ExtentID]bool) error {
	var ids []core.ExtentID
	for id, row := range rows {
		if row.State.HasEnd() && !open[id] && h.deps.now().Sub(row.Changed) < unopenedAfter {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	late, err := h.hints(ctx, metadata.HintOpen, ids)
	for id := range late {
		open[id] = true
	}
	return err
}

// withoutEnded leaves out old extents that have a hint, no seal row and no create row: they may have been retired so
// long ago that their seal rows have ended.
func (h *Host) withoutEnded(ctx context.Context, part []metadata.ExtentRecord, rows map[core.ExtentID]metadata.SealRecord) ([]metadata.ExtentRecord, error) {
	var old []metadata.ExtentRecord
	ended := make(map[core.ExtentID]bool)
	for _, r := range part {
		_, known := h.extents.Get(r.ID)
		if _, sealed := rows[r.ID]; !known && !sealed && metadata.SealMayHaveEnded(r.ID, h.deps.now()) {
			old, ended[r.ID] = append(old, r), true
		}
	}
	if len(old) == 0 {
		return part, nil
	}
	there, err := h.registered(ctx, old)
	if err != nil {
		return nil, err
	}
	for _, r := range there {
		delete(ended, r.ID)
	}
	if len(ended) == 0 {
		return part, nil
	}
	h.log.Info("hints name old extents without other rows; they are left out, because they may have been retired", "extents", len(ended))
	return slices.DeleteFunc(slices.Clone(part), func(r metadata.ExtentRecord) bool { return ended[r.ID] }), nil
}

// sealRows are the seal rows of extents, of those that have one. A row that cannot be decoded is left out, see unread.
func (h *Host) sealRows(ctx context.Context, ids []core.ExtentID) (map[core.ExtentID]metadata.SealRecord, error) {
	keys := make([]metadata.Key, len(ids))
	for i, id := range ids {
		keys[i] = metadata.SealKey(id)
	}
	ctx, cancel := context.WithTimeout(ctx, sealRowsTimeout)
	defer cancel()
	found, err := metadata.GetRows(ctx, h.deps.Meta, metadata.Seals, keys, metadata.Quorum)
	if err != nil {
		return nil, err
	}
	rows := make(map[core.ExtentID]metadata.SealRecord, len(found))
	for _, row := range found {
		if r, err := metadata.DecodeSeal(row); !h.unread.skips(metadata.Seals, row.Key, err) {
			rows[r.Extent.ID] = r
		}
	}
	return rows, nil
}

// took brings an extent that is known up to its seal row, and reports whether that tells anything new. Its readers hear
// that.
func (h *Host) took(row metadata.SealRecord) (news bool) {
	was, known := h.extents.Get(row.Extent.ID)
	if !known {
		return false
	}
	h.extents.Took(row)
	now, known := h.extents.Get(row.Extent.ID)
	if !known || now.Alike(was) {
		return false
	}
	h.touchReaders(was)
	h.touchReaders(now)
	h.shares.touchHolders(now.Extent)
	return true
}

// meet takes in an extent that another controller made.
func (h *Host) meet(e catalog.Extent) {
	h.extents.Put(e)
	h.touchReaders(e)
}

// touchReaders asks for a round that looks at the queues whose groups may read an extent.
func (h *Host) touchReaders(e catalog.Extent) {
	h.shares.touch(e.Queue)
	h.shares.touch(e.Reader())
}

// forgetRetired forgets those that another controller has retired, and answers how many. A missing hint alone says
// nothing: it may not be there yet, or be lost.
func (h *Host) forgetRetired(ctx context.Context, gone map[core.ExtentID]struct{}) (forgotten int, err error) {
	for some := range slices.Chunk(slices.Collect(maps.Keys(gone)), sealRowsAtOnce) {
		rows, err := h.sealRows(ctx, some)
		if err != nil {
			return forgotten, err
		}
		for id, row := range rows {
			if row.State == core.ExtentRetired {
				h.forgetExtent(id)
				forgotten++
			}
		}
	}
	return forgotten, nil
}

// forgetExtent forgets an extent that another controller has retired.
func (h *Host) forgetExtent(id core.ExtentID) {
	if e, known := h.extents.Get(id); known {
		h.extents.Remove(id)
		h.noteStuck(id, false)
		h.touchReaders(e)
	}
}
