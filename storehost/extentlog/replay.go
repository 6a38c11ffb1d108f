package extentlog

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
)

// ringDir is where the segments are, beside the database.
const ringDir = "ring"

// replay is the reading of the ring at a start: it puts the rows into the database that had not got there, and finds
// out which batches only the ring has.
type replay struct {
	e       *Engine
	applied uint64                   // rows of groups up to here are in the database
	last    uint64                   // group that was read last
	damaged bool                     // some groups cannot be read
	lost    bool                     // and there were some whose rows are not in the database either, now or at an earlier start
	losses  []ring.Damage            // those of now
	held    map[core.ExtentID]*found // nil: nobody wants to know
	removed map[core.ExtentID]struct{}
	rescued byte                // what a rescue left to do; 0: there was none
	told    map[string]struct{} // rows and positions of extents that came from the log; nil: nobody wants to know
}

// found are the batches of one extent in the ring.
type found struct {
	batches []loggedBatch // without their bytes
	broken  bool          // some between them are lost
}

// openRing opens the ring of a database that is open, and brings the database up to date. Without writes it changes no
// file.
func (e *Engine) openRing(hold, writes bool) (*replay, error) {
	if err := e.convert(); err != nil { // also of a store that was opened on a full disk, and has room now
		return nil, err
	}
	dir := e.files.PathJoin(e.dir, ringDir)
	if writes {
		if err := errors.Join(e.files.MkdirAll(dir, 0o755), e.clearDrains(), e.syncDir(e.dir)); err != nil {
			return nil, openError(e.dir, err)
		}
	}
	p := &replay{e: e}
	if hold {
		p.held, p.removed = make(map[core.ExtentID]*found), make(map[core.ExtentID]struct{})
	}
	applied, err := e.meta(keyApplied)
	if err != nil {
		return nil, err
	}
	drained, err := e.meta(keyDrained)
	if err != nil {
		return nil, err
	}
	secret, err := e.meta(keySecret)
	if err != nil {
		return nil, err
	}
	o := ring.Options{FS: e.files, Disk: e.identity.Disk, Run: e.identity.Run, Key: secret}
	if len(applied) == 8 {
		p.applied = binary.LittleEndian.Uint64(applied)
	}
	if len(drained) == 16 {
		o.After, o.Serial = binary.LittleEndian.Uint64(drained), binary.LittleEndian.Uint64(drained[8:])
	}
	there := max(o.After, p.applied) // rows of groups up to here are in the database
	if o.Last, err = p.loadRescue(there); err != nil {
		return nil, err
	}
	o.Brief = p.applied
	p.last = o.After
	until, err := e.lostUntil()
	if err != nil {
		return nil, err
	}
	p.lost = !until.IsZero()
	r, damage, err := ring.Open(dir, o, p.group)
	if err != nil {
		return nil, openError(e.dir, err)
	}
	e.journal.ring = r
	if p.last < o.Last { // rows get into the database when their group is durable
		damage = append(damage, ring.Damage{From: p.last + 1, To: o.Last})
	}
	for _, d := range damage {
		p.damaged = true
		e.log.Error("a part of the log is damaged", "dir", e.dir, "from_group", d.From, "to_group", d.To)
		switch {
		case d.To <= there:
		case d.To > p.last:
			if err := p.missing(d.To); err != nil {
				return nil, err
			}
		case !slices.ContainsFunc(p.losses, func(l ring.Damage) bool { return l.From <= d.To && d.To <= l.To }): // it was applied
			return nil, damagedStore(e.dir, core.Errorf(core.CodeCorrupt, "groups %d to %d of the log are not those that were written", d.From, d.To))
		}
	}
	if err := p.settleRescue(); err != nil {
		return nil, err
	}
	if len(p.losses) > 0 || p.rescued > 0 { // else the next start would quarantine what is opened from now on
		if err := e.db.Flush(); err != nil {
			return nil, openError(e.dir, err)
		}
	}
	e.journal.applied.Store(r.Next() - 1)
	return p, nil
}

// clearDrains removes the tables of a drain that a crash ended.
func (e *Engine) clearDrains() error {
	dir := e.files.PathJoin(e.dir, drainDir)
	if err := e.files.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return e.files.MkdirAll(dir, 0o755)
}

// missing notes that there are no groups behind the last one, up to a number.
func (p *replay) missing(to uint64) error {
	if from := max(p.last, p.applied) + 1; from <= to {
		return p.lose(from, to)
	}
	return nil
}

// group takes one group of the ring.
func (p *replay) group(g ring.Group) error {
	if err := p.missing(g.Number - 1); err != nil {
		return err
	}
	p.last = g.Number
	switch g.Kind {
	case ring.Records:
	case ring.Summary:
		return p.summary(g)
	default:
		return nil
	}
	body, err := decodeGroup(g)
	if err != nil {
		p.e.log.Error("a group of the log is damaged", "dir", p.e.dir, "err", err)
		p.damaged = true
		if g.Number > p.applied {
			return p.lose(g.Number, g.Number)
		}
		return nil
	}
	if p.held != nil {
		if err := p.note(body); err != nil {
			return err
		}
	}
	if g.Number <= p.applied {
		return nil
	}
	b := p.e.db.NewBatch()
	defer b.Close()
	if err := b.SetRepr(append([]byte{}, body.rows...)); err != nil {
		return core.Errorf(core.CodeCorrupt, "rows of group %d of the log: %w", g.Number, err)
	}
	for _, l := range body.batches {
		if l.timer {
			if err := p.e.stageDue(b, l.extent, l.batch); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(p.distrust(b, body.rows), p.tell(body.rows)); err != nil {
		return err
	}
	if err := b.Set(keyApplied, binary.LittleEndian.AppendUint64(nil, g.Number), nil); err != nil {
		return err
	}
	if err := p.e.db.Apply(b, pebble.NoSync); err != nil {
		return err
	}
	p.applied = g.Number
	return nil
}

// summary takes a summary, in place of the groups of its segment.
func (p *replay) summary(g ring.Group) error {
	if p.held == nil {
		return nil
	}
	return readSummary(g, p.remove, p.hold)
}

// note keeps where the batches of a group are, and forgets those of extents that its rows remove, which come first.
func (p *replay) note(body groupBody) error {
	err := eachChange(body.rows, func(kind pebble.InternalKeyKind, key, _ []byte) error {
		if kind == pebble.InternalKeyKindDelete && len(key) == extentKeyLen && key[0] == prefixRow {
			p.remove(core.ExtentID{ID: core.ID(key[1:])})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, l := range body.batches {
		p.hold(l)
	}
	return nil
}

func (p *replay) remove(id core.ExtentID) {
	delete(p.held, id)
	p.removed[id] = struct{}{}
}

func (p *replay) hold(l loggedBatch) {
	f := p.held[l.extent]
	if f == nil {
		f = new(found)
		p.held[l.extent] = f
	}
	if n := len(f.batches); n > 0 && f.batches[n-1].batch.Last()+1 != l.batch.Base {
		f.broken = true
	}
	l.batch.Bytes, l.batch.Records = nil, nil
	f.batches = append(f.batches, l)
}

// give hands an extent its batches, once its rows are known. sound is false when some are lost.
func (p *replay) give(x *extent) (sound bool, err error) {
	end := core.Seq(0)
	f := p.held[x.id]
	if f == nil {
		f = new(found)
	}
	for _, l := range f.batches {
		if l.batch.Last() <= x.next.last { // else it was cut off
			p.e.journal.hold(x, l.batch.BatchHeader, l.at)
			end = l.batch.Last()
		}
	}
	switch drained := x.held.drained(x.next.last); {
	case f.broken || end > 0 && end != x.next.last:
		return false, nil
	case !p.damaged || drained == 0:
		return true, nil
	default:
		b, err := p.e.batchInDatabase(x, drained)
		if core.CodeOf(err) == core.CodeCorrupt {
			return false, nil
		}
		return b.Last() == drained, err
	}
}

// cutOrphans removes the records of extents that were removed from the database. A drain may have put them there after
// the removal, before a crash. An extent that is back since has all its batches in the log: they are in groups behind
// that of the removal, which is not drained.
func (p *replay) cutOrphans() error {
	e := p.e
	if len(p.losses) > 0 || p.rescued > 0 { // some removals are not known
		iter, err := e.db.NewIter(nil)
		if err != nil {
			return openError(e.dir, err)
		}
		for _, id := range e.strangers(iter) {
			p.removed[id] = struct{}{}
		}
		if err := iter.Close(); err != nil {
			return openError(e.dir, err)
		}
	}
	for id := range p.removed {
		x, back := e.mu.extents[id]
		err := p.cutOrphan(id, !back)
		switch {
		case err == nil:
		case !pebble.IsCorruptionError(err) && !errors.Is(err, syscall.EIO):
			return openError(e.dir, err)
		case back:
			e.short = append(e.short, x)
		default: // what is there is not known: the id stays taken
			x = &extent{id: id}
			x.remove()
			e.mu.extents[id] = x
			e.moves.removes(id)
			e.uncut.add(x, true, time.Now())
		}
	}
	return p.endRescue()
}

// cutOrphan cuts out what the database has of one extent; the index of timers only if all is to go.
func (p *replay) cutOrphan(id core.ExtentID, all bool) error {
	for _, prefix := range contents(all) {
		iter, err := p.e.db.NewIter(&pebble.IterOptions{LowerBound: extentKey(prefix, id), UpperBound: afterExtent(prefix, id)})
		if err != nil {
			return err
		}
		some := iter.First()
		if err := iter.Close(); err != nil {
			return err
		}
		if some {
			p.e.log.Info("the records of a removed extent are cut out", "extent", id)
			return p.e.cutContents(id, all)
		}
	}
	return nil
}
