package extentlog

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Tables whose records are mostly of removed extents are repacked: the other records move to new tables, and the old
// files go. A table with one live batch would keep all its space otherwise.
const (
	// garbageShare is the part of the disk that dead records may take in tables with live ones: one in so many bytes.
	garbageShare = 32
	maxGarbage   = 1 << 30 // on a file system that cannot say its size
	mostLive     = 50      // percent of a table that is repacked
	mostLiveFull = 80      // … on a disk that is nearly full, where moving four bytes may free one
	// leastRepack is how many live bytes one turn may move at least.
	leastRepack = 4 << 20
	// turnMost is how long a turn begins runs, and planMost how long of that it chooses them. Appends may wait for it.
	turnMost = 200 * time.Millisecond
	planMost = turnMost / 2
	// repackAgain is the pause after a turn that failed.
	repackAgain = 5 * time.Second
	// Tables are left alone for so long, if nothing is cut out of them; twice as long each time, up to the second bound.
	weighAgain, weighMost   = 5 * time.Second, time.Minute      // too much of it lives
	moveAgain, moveMost     = 30 * time.Second, 5 * time.Minute // a part of it could not be moved
	damagedFor, damagedMost = 10 * time.Minute, 24 * time.Hour
	leavingFor              = weighAgain // an extent of it is being removed: that may be over soon
	// longestPause is the last of the pauses before a drain while files are to be deleted: each is twice the one before.
	longestPause = 64 * time.Millisecond
	leastAwaited = 256 << 10 // bytes of these files
)

// repacker is what the keeper knows of tables that are, or are not, to be repacked. The keeper owns it.
type repacker struct {
	sizes   map[uint64]int64 // of files
	later   map[uint64]later // files that are not repacked now
	weighed weighed
	next    time.Time // no turn before
	flushed int64     // deletions of batches that are in tables
}

// later is a file that is not repacked for a while.
type later struct {
	live  int64 // bytes then: if it has less, something was cut out, maybe the damage
	most  int64 // if more bytes may be moved to free it, it is weighed again
	wait  time.Duration
	until time.Time
}

// weighed is how far the keeper came with a table that one turn could not look through.
type weighed struct {
	table uint64
	next  []byte // where it goes on
	sum   int64  // bytes to move before that
}

// leaves reports whether a table is left alone now.
func (r *repacker) leaves(t *sparseTable, most int64, now time.Time) bool {
	l, ok := r.later[t.number]
	if ok && (l.live != t.live || most > l.most) {
		delete(r.later, t.number)
		return false
	}
	return ok && now.Before(l.until)
}

// leave leaves a table alone for a while.
func (r *repacker) leave(t *sparseTable, most int64, wait, longest time.Duration, now time.Time) {
	wait = min(max(wait, 2*r.later[t.number].wait), longest)
	r.later[t.number] = later{live: t.live, most: most, wait: wait, until: now.Add(wait)}
}

// keep forgets files that are not there any more.
func (r *repacker) keep(sizes map[uint64]int64) {
	r.sizes = sizes
	maps.DeleteFunc(r.later, func(number uint64, _ later) bool { _, there := sizes[number]; return !there })
}

// liveBytes is how many bytes the tables have of batches. It asks all extents.
func (e *Engine) liveBytes() (sum int64) {
	e.mu.RLock()
	extents := slices.Collect(maps.Values(e.mu.extents))
	e.mu.RUnlock()
	for _, x := range extents {
		if s, ok := x.state(); ok {
			sum += int64(s.Bytes)
		}
	}
	return sum - e.journal.keeper.bytes.Load()
}

// metrics asks the database, which answers no more once it could not write its MANIFEST.
func (e *Engine) metrics() (*pebble.Metrics, error) {
	var m *pebble.Metrics
	if err := e.guarded(func() error { m = e.db.Metrics(); return nil }); err != nil {
		return nil, err
	}
	return m, nil
}

// repack has one turn: it moves live batches out of tables that are half garbage or more, in the order of what that
// costs, until little garbage is left, or as much is moved as a drain writes. So it moves about one byte for each that
// it frees, and up to four on a disk that is nearly full. A turn ends early if appends wait for a drain. If there is
// twice the garbage that may be, appends wait, for turnMost and the run that is under way then. It is for the keeper,
// between two drains, because no drain may put batches where others are being moved.
func (j *journal) repack() {
	e := j.e
	t := turn{j: j, began: time.Now(), tables: make(map[uint64]*sparseTable)}
	if e.refusing() != nil || isClosed(e.settled) || t.began.Before(e.repacker.next) {
		return
	}
	err := t.all()
	j.keeper.moved.Add(uint64(t.moved))
	if err != nil && e.refusing() == nil && !isClosed(e.stop) {
		e.repacker.next = t.began.Add(repackAgain)
		e.log.Error("tables with records of removed extents cannot be repacked: these keep their space", "err", err)
	}
	if t.moves > 0 {
		e.space.look(e.fs, e.dir)
		j.keeper.look() // there may be more
	}
}

// awaitDeletions waits, for a while, until the database has deleted the files that it does not need any more. It
// deletes them in the background, and may fall behind drains.
func (e *Engine) awaitDeletions() {
	for pause := time.Millisecond; pause <= longestPause; pause *= 2 {
		m, err := e.metrics()
		if err != nil || int64(m.Table.ObsoleteSize) <= max(e.journal.keeper.garbage.Load(), leastAwaited) || !e.pause(pause) {
			return
		}
	}
}

// turn is one of the repacker.
type turn struct {
	j      *journal
	began  time.Time
	urgent bool
	budget int64                   // bytes to move
	tables map[uint64]*sparseTable // that are looked through
	runs   int                     // that were begun
	moves  int                     // runs that were moved
	moved  int64                   // bytes
}

// yields reports whether something else goes before the turn.
func (t *turn) yields() bool {
	e := t.j.e
	return e.refusing() != nil || isClosed(e.stop) || !t.urgent && t.j.keeper.wanted.Load() > 0
}

// over reports whether the turn is to end. One run is begun even if all the time went into choosing it.
func (t *turn) over() bool {
	return t.yields() || t.moved >= t.budget || t.runs > 0 && time.Since(t.began) >= turnMost
}

// planned reports whether no more tables are to be looked through.
func (t *turn) planned() bool { return t.yields() || time.Since(t.began) >= planMost }

// all moves parts of the tables that it chooses, if there is too much garbage.
func (t *turn) all() error {
	e, k := t.j.e, &t.j.keeper
	m, err := e.metrics()
	if err != nil {
		return err
	}
	e.merger.look(m.Levels[0].TablesCount, m.Levels[len(m.Levels)-1].TablesCount, int64(e.space.fill().tables()))
	most, percent := k.garbage.Load(), k.sparse.Load()
	if e.space.nearlyFull() {
		most, percent = most/4, max(percent, mostLiveFull)
	}
	is, fills := int64(m.Table.BackingTableSize)-int64(m.VirtualSize()), e.space.fills()
	if is <= most && !fills {
		k.dead.Store(max(is, 0))
		return nil
	}
	s, err := e.tablesOfBatches()
	if err != nil {
		return err
	}
	if is = s.garbage; fills { // the database counts blocks, and one with a live batch is no garbage
		is = max(is, s.bytes-e.liveBytes())
	}
	k.dead.Store(max(is, 0))
	if is <= most {
		return nil
	}
	t.began = time.Now() // a list of many tables takes longer than a turn
	t.urgent, t.budget = is > 2*most, max(leastRepack, k.most/k.free.Load())
	parts, err := t.choose(s.sparse, is-most, percent)
	if err != nil {
		return err
	}
	for _, r := range joinParts(parts, s.small, t.near) {
		if t.over() {
			break
		}
		if err := t.move(r); errors.Is(err, errCutsWait) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// choose returns the parts of tables of which few bytes are to be moved to free the rest.
func (t *turn) choose(tables []*sparseTable, excess, percent int64) (parts []part, err error) {
	r := &t.j.e.repacker
	freed, cost := int64(0), int64(0)
	for _, s := range tables {
		if freed >= excess || cost >= t.budget || t.planned() {
			break
		}
		most := s.size * percent / 100
		if r.leaves(s, most, t.began) {
			continue
		}
		t.tables[s.number] = s
		moves, err := t.weigh(s, most)
		switch {
		case errors.Is(err, errMoveLater), errors.Is(err, errCutsWait):
			return parts, nil
		case isShortage(err), err != nil && t.j.e.refusing() != nil:
			return nil, err
		case err != nil:
			t.leave(s.number, err)
		case moves > most:
			r.leave(s, most, weighAgain, weighMost, t.began)
		default:
			parts = append(parts, s.parts...)
			freed, cost = freed+max(s.size-moves, 0), cost+moves
		}
	}
	return parts, nil
}

// weigh returns how many bytes are to be moved to free a table, or more than most. errMoveLater: there was no time to
// look through all of it, and the next turn goes on. Each turn gets at least one batch further, however slow the disk
// is.
func (t *turn) weigh(s *sparseTable, most int64) (sum int64, err error) {
	if s.live > most+int64(len(s.parts))*estimateOff {
		return s.live, nil
	}
	w := &t.j.e.repacker.weighed
	if w.table != s.number {
		*w = weighed{table: s.number}
	}
	further := false
	for _, p := range s.parts {
		from, sum := p.from, w.sum
		if bytes.Compare(w.next, from) <= 0 {
			sum += tableCost
		} else if from = w.next; bytes.Compare(from, p.to) >= 0 {
			continue
		}
		if further && t.planned() {
			return 0, errMoveLater
		}
		next, err := t.j.e.walk(from, p.to, func(_, value []byte) bool {
			if further && t.planned() {
				return false
			}
			further = true
			sum += int64(len(value))
			return sum <= most
		})
		further = true
		switch {
		case errors.Is(err, errCutsWait):
			w.next, w.sum = next, sum
			return 0, err
		case err != nil:
			return 0, err
		case sum > most:
			*w = weighed{}
			return sum, nil
		}
		if w.next, w.sum = next, sum; !bytes.Equal(next, p.to) {
			return 0, errMoveLater
		}
	}
	sum = w.sum
	*w = weighed{}
	return sum, nil
}

// near reports whether so little lives between two keys that it moves with what is beside it. Blocks there may be
// damaged.
func (t *turn) near(from, to []byte) bool {
	if t.planned() {
		return false
	}
	sum := int64(0)
	next, err := t.j.e.walk(from, to, func(_, value []byte) bool {
		sum += int64(len(value))
		return sum <= joinGap && !t.planned()
	})
	return err == nil && bytes.Equal(next, to)
}

// move moves a run. If it cannot be moved, each part is tried by itself. An error is for the whole turn.
func (t *turn) move(r run) error {
	e := t.j.e
	for bytes.Compare(r.from, r.to) < 0 && !t.over() {
		t.runs++
		to, moved, err := t.j.moveRun(r)
		switch {
		case err == nil:
			t.moves++
			t.moved += moved
			r.from = to
			continue
		case e.refusing() != nil, errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), isShortage(err), errors.Is(err, errCutsWait):
			return err
		case errors.Is(err, errMoveLater):
		case len(r.parts) > 1:
			return t.moveParts(r)
		default:
			t.leave(r.parts[0].table, err)
		}
		return nil
	}
	return nil
}

// moveParts moves what is left of the parts of sparse tables, one by one.
func (t *turn) moveParts(r run) error {
	for _, p := range r.parts {
		if bytes.Compare(p.from, r.from) < 0 {
			p.from = r.from
		}
		if p.table == 0 || bytes.Compare(p.from, p.to) >= 0 {
			continue
		}
		if err := t.move(run{from: p.from, to: p.to, parts: []part{p}, bytes: p.bytes}); err != nil {
			return err
		}
	}
	return nil
}

// leave leaves a table alone for a while, of which a part cannot be moved.
func (t *turn) leave(table uint64, err error) {
	wait, longest, quiet := moveAgain, moveMost, false
	switch {
	case errors.Is(err, errLeaving):
		wait, longest, quiet = leavingFor, leavingFor, true
	case errors.Is(err, errBeside):
		quiet = true
	case pebble.IsCorruptionError(err), errors.Is(err, syscall.EIO):
		wait, longest = damagedFor, damagedMost
	}
	t.j.e.repacker.leave(t.tables[table], math.MaxInt64, wait, longest, t.began)
	if !quiet {
		t.j.e.log.Error("a table cannot be repacked", "table", table, "err", err)
	}
}
