package extentlog

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// The index of a timer extent holds each record once more, in rows in the order of due times: read from its batches,
// each record would cost the reading of a whole one.
const (
	prefixDue = 't'
	dueKeyLen = extentKeyLen + 8 + 8
	dueFixed  = 8 // append time
)

func putDueKey(key []byte, id core.ExtentID, k DueKey) {
	putExtentKey(key, prefixDue, id)
	binary.BigEndian.PutUint64(key[extentKeyLen:], uint64(k.At))
	binary.BigEndian.PutUint64(key[extentKeyLen+8:], uint64(k.Seq))
}

func dueKey(id core.ExtentID, k DueKey) []byte {
	key := make([]byte, dueKeyLen)
	putDueKey(key, id, k)
	return key
}

// Due implements Log.
func (e *Engine) Due(id core.ExtentID, q DueQuery, yield func(DueRecord)) (DueRun, error) {
	x := e.extent(id)
	if x == nil {
		return DueRun{}, notFound(id)
	}
	s, ok := x.state()
	switch {
	case !ok:
		return DueRun{}, notFound(id)
	case s.Damaged:
		return DueRun{}, damaged(id)
	case s.Extent.Kind != core.KindTimer:
		return DueRun{}, core.Errorf(core.CodeBadArgument, "extent %s holds no timers", id)
	}
	if x.indexed() < s.Last {
		return DueRun{Passed: q.After, More: true, Next: NeverDue}, e.reindex(x)
	}
	done, err := e.reading()
	if err != nil {
		return DueRun{}, err
	}
	defer done()
	run, err := e.readDue(x, q, yield)
	if core.CodeOf(err) == core.CodeCorrupt {
		if _, ok := x.state(); !ok { // a removal took the bytes away meanwhile
			return run, notFound(id)
		}
		e.quarantine(x, err.Error(), false)
	}
	return run, err
}

func (e *Engine) readDue(x *extent, q DueQuery, yield func(DueRecord)) (DueRun, error) {
	all := IndexFrom(q.After.At) // no row that begins before has anything beyond After
	iter, err := e.db.NewIter(&pebble.IterOptions{LowerBound: dueKey(x.id, all), UpperBound: afterExtent(prefixDue, x.id)})
	if err != nil {
		return DueRun{Passed: q.After, Next: NeverDue}, diskError(x, err)
	}
	defer iter.Close()
	r := dueRead{x: x, q: q, yield: yield, rows: dueMerge{most: dueHeld}, iter: iter, run: DueRun{Passed: q.After, Next: NeverDue}}
	from := all
	if q.Start.From.Beyond(all) { // else what is due at the same time as much else would be reached through all of that, each time
		if from, err = r.reopen(q.Start, all); err != nil {
			return r.run, err
		}
	}
	err = r.through(from)
	if r.again != nil {
		err = errors.Join(err, r.again.Close())
	}
	r.run.Start = r.rows.start(r.next)
	return r.run, err
}

// reopen takes in the rows that the query before left open, and answers from where on others are to be taken in. all is
// where that is when one of them is not there any more.
func (r *dueRead) reopen(s DueStart, all DueKey) (from DueKey, err error) {
	for _, open := range s.Open {
		if open.left.Record != nil {
			if err := r.take(open.left); err != nil {
				return all, err
			}
			continue
		}
		value, some, err := r.seek(r.iter, open.First)
		if err == nil && some {
			err = r.add(open.First, value)
		}
		if err != nil {
			return all, err
		}
		if !some {
			r.rows = dueMerge{most: dueHeld}
			return all, nil
		}
	}
	return s.From, nil
}

// seek reads the row that begins at a place; some is false when there is none.
func (r *dueRead) seek(iter *pebble.Iterator, first DueKey) (value []byte, some bool, err error) {
	key := dueKey(r.x.id, first)
	if some = iter.SeekGE(key) && bytes.Equal(iter.Key(), key); some {
		value, err = iter.ValueAndErr()
	} else {
		err = iter.Error()
	}
	if err != nil {
		return nil, false, diskError(r.x, err)
	}
	return value, some, nil
}

// dueHeld is how many bytes of rows that overlap one query keeps.
const dueHeld = 8 << 20

// through takes in the rows that begin at a place or beyond it.
func (r *dueRead) through(from DueKey) error {
	iter := r.iter
	for iter.SeekGE(dueKey(r.x.id, from)); iter.Valid(); iter.Next() {
		key := iter.Key()
		if len(key) != dueKeyLen {
			return core.Errorf(core.CodeCorrupt, "extent %s: a key of the index has %d bytes", r.x.id, len(key))
		}
		first := DueKey{int64(binary.BigEndian.Uint64(key[extentKeyLen:])), core.Seq(binary.BigEndian.Uint64(key[extentKeyLen+8:]))}
		r.next = first
		if err := r.upTo(first); err != nil || r.run.More {
			return err
		}
		if first.At > r.q.Until {
			r.run.Next = first.At
			break
		}
		r.next = DueThrough(r.q.Until) // unless another one follows
		value, err := iter.ValueAndErr()
		if err != nil {
			return diskError(r.x, err)
		}
		if err := r.add(first, value); err != nil {
			return err
		}
	}
	if err := iter.Error(); err != nil {
		return diskError(r.x, err)
	}
	if err := r.upTo(DueThrough(r.q.Until)); err != nil || r.run.More {
		return err
	}
	if len(r.rows.rows) > 0 {
		r.run.Next = min(r.run.Next, r.rows.rows[0].At)
	}
	r.run.Passed = DueThrough(r.q.Until)
	return nil
}

// dueRead is a query under way.
type dueRead struct {
	x     *extent
	q     DueQuery
	yield func(DueRecord)
	rows  dueMerge // with a record beyond Passed
	iter  *pebble.Iterator
	next  DueKey           // no row that begins before is still to be taken in; zero: not known
	again *pebble.Iterator // a clone of it, that reads rows once more; nil: there were none
	seen  int              // bytes
	run   DueRun
}

// add takes a row in, unless all of it was passed.
func (r *dueRead) add(first DueKey, value []byte) error {
	var row dueRow
	if !row.begin(first, value) {
		return r.damaged(first)
	}
	some, sound := row.skip(r.q.After)
	if !sound {
		return r.damaged(first)
	}
	if some {
		r.rows.push(row)
	}
	return nil
}

// take is add for a row whose bytes the query before has kept.
func (r *dueRead) take(row dueRow) error {
	some, sound := row.skip(r.q.After)
	if !sound {
		return r.damaged(row.first)
	}
	if some {
		r.rows.insert(row)
	}
	return nil
}

// upTo looks at all records before a place that are due; no row that is not there yet has one. It stops at MaxBytes.
func (r *dueRead) upTo(end DueKey) error {
	for len(r.rows.rows) > 0 && end.Beyond(r.rows.rows[0].DueKey) && r.rows.rows[0].At <= r.q.Until {
		if r.seen >= r.q.MaxBytes {
			r.run.More = true
			return nil
		}
		if err := r.refill(); err != nil {
			return err
		}
		d := r.rows.rows[0].DueRecord
		r.seen += dueKeyLen + dueFixed + len(d.Record)
		r.run.Passed = d.DueKey
		if d.Seq <= r.q.UpTo && (r.q.Known == nil || !r.q.Known.Done(d.Seq)) {
			r.yield(d)
		}
		if !r.rows.pop() {
			return r.damaged(d.DueKey)
		}
	}
	return nil
}

// refill reads the first row again if its bytes were not kept.
func (r *dueRead) refill() (err error) {
	first, lacks := r.rows.lacks()
	if !lacks {
		return nil
	}
	if r.again == nil {
		if r.again, err = r.iter.Clone(pebble.CloneOptions{}); err != nil {
			return diskError(r.x, err)
		}
	}
	value, some, err := r.seek(r.again, first)
	if err != nil {
		return err
	}
	if !some {
		return r.damaged(first)
	}
	if !r.rows.fill(value) {
		return r.damaged(first)
	}
	return nil
}

func (r *dueRead) damaged(k DueKey) error {
	return core.Errorf(core.CodeCorrupt, "extent %s: the record of seq %d in the index is damaged", r.x.id, k.Seq)
}

// eachRecord calls use for the records of a batch, in their order.
func eachRecord(b wire.Batch, use func(seq core.Seq, record []byte)) error {
	seq := b.Base
	for records := b.Records; len(records) > 0; seq++ {
		record, rest, err := wire.NextRecord(records)
		if err != nil {
			return err
		}
		records = rest
		use(seq, record)
	}
	return nil
}

// stageDue adds the records of a batch of a timer extent to its index: the rows in order, since a memtable finds the
// place of a key soonest from that of the one before it.
func (e *Engine) stageDue(to *pebble.Batch, id core.ExtentID, b wire.Batch) error {
	e.entries.reset()
	err := eachRecord(b, func(seq core.Seq, record []byte) {
		e.entries.add(dueEntry{DueKey{wire.DeliverAt(record), seq}, record})
	})
	if err != nil {
		return err
	}
	for rows := e.entries.inOrder(); len(rows) > 0; {
		n, size := dueRowOf(rows)
		op := to.SetDeferred(dueKeyLen, size)
		putDueKey(op.Key, id, rows[0].DueKey)
		putDueRow(op.Value, rows[:n], b.AppendTime)
		if err := op.Finish(); err != nil {
			return e.fail(err)
		}
		rows = rows[n:]
	}
	e.entries.reset()
	return nil
}

// index notes that a batch is in the index, if what is before it is, too: else see reindex.
func (p *position) index(b wire.BatchHeader) {
	if p.indexed+1 == b.Base {
		p.indexed = b.Last()
	}
}

// stageDueCut takes the records beyond l out of the index.
func (e *Engine) stageDueCut(g *group, x *extent, l core.Seq) error {
	keys, err := e.dueKeys(x, l+1)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := g.batch.Delete(dueKey(x.id, k), nil); err != nil {
			return e.fail(err)
		}
	}
	return nil
}

// dueKeys are the places of the records in the batches from base on, some of which are keys of rows.
func (e *Engine) dueKeys(x *extent, base core.Seq) (keys []DueKey, err error) {
	for base <= x.next.last {
		run, err := e.readStored(x, base, x.next.last, reindexPiece, meanSize(x.next.bytes, x.next.last))
		if err != nil {
			return nil, err
		}
		for len(run) > 0 {
			var b wire.Batch
			if b, run, err = wire.NextBatch(run); err != nil {
				return nil, err
			}
			if err := eachRecord(b, func(seq core.Seq, record []byte) { keys = append(keys, DueKey{wire.DeliverAt(record), seq}) }); err != nil {
				return nil, core.Errorf(core.CodeCorrupt, "extent %s: a record from seq %d on is damaged on the disk: %w", x.id, b.Base, err)
			}
			base = b.Last() + 1
		}
	}
	return keys, nil
}

// reindexPiece is how many bytes of batches are indexed in one round.
const reindexPiece = 2 << 20

// reindex makes the next piece of an index that lacks some of its extent's batches.
func (e *Engine) reindex(x *extent) error {
	return e.do(request{alone: true, stage: func(g *group) error {
		switch {
		case x.next.Extent.ID.IsZero():
			return notFound(x.id)
		case x.next.indexed >= x.next.last:
			return nil
		}
		if err := e.admitAppend(reindexPiece); err != nil {
			return err
		}
		run, err := e.readStored(x, x.next.indexed+1, x.next.last, reindexPiece, meanSize(x.next.bytes, x.next.last))
		for err == nil && len(run) > 0 {
			var b wire.Batch
			if b, run, err = wire.NextBatch(run); err == nil {
				err = e.stageDue(g.batch, x.id, b)
			}
			if err == nil {
				x.next.index(b.BatchHeader)
			}
		}
		if err != nil {
			return err
		}
		g.touch(x)
		return nil
	}})
}
