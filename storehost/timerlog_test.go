package storehost

import (
	"cmp"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
)

// timerLog is an extent of timers in memory.
type timerLog struct {
	batches [][]byte
	index   []extentlog.DueRecord         // in order
	rows    map[core.Seq]extentlog.DueKey // where the row of the index begins that a record is in
}

func (l *timerLog) add(w *extentlogtest.Writer, size int, due ...int64) {
	batch := w.Timers(size, due...)
	b, _, err := wire.NextBatch(batch)
	if err != nil {
		panic(err)
	}
	l.batches = append(l.batches, batch)
	if l.rows == nil {
		l.rows = make(map[core.Seq]extentlog.DueKey)
	}
	var keys []extentlog.DueKey
	for i, at := range due {
		keys = append(keys, extentlog.DueKey{At: at, Seq: b.Base + core.Seq(i)})
	}
	slices.SortStableFunc(keys, func(a, b extentlog.DueKey) int { return cmp.Compare(a.At, b.At) })
	first := keys[0]
	for _, k := range keys {
		if extentlog.IndexFrom(k.At).Beyond(first) {
			first = k
		}
		l.rows[k.Seq] = first
	}
	seq := b.Base
	for records := b.Records; len(records) > 0; seq++ {
		var record []byte
		record, records, _ = wire.NextRecord(records)
		r := extentlog.DueRecord{DueKey: extentlog.DueKey{At: wire.DeliverAt(record), Seq: seq}, Enqueued: b.AppendTime, Record: record}
		i, _ := slices.BinarySearchFunc(l.index, r.DueKey, func(o extentlog.DueRecord, k extentlog.DueKey) int {
			if o.Beyond(k) {
				return 1
			}
			return -1
		})
		l.index = slices.Insert(l.index, i, r)
	}
}

func (l *timerLog) Read(_ core.ExtentID, from, upTo core.Seq, maxBytes int) (out []byte, err error) {
	for _, batch := range l.batches {
		b, err := wire.DecodeBatch(batch)
		if err != nil {
			return nil, err
		}
		switch {
		case b.Last() < from:
		case b.Last() > upTo || len(out) > 0 && len(out)+len(batch) > maxBytes:
			return out, nil
		default:
			out = append(out, batch...)
		}
	}
	return out, nil
}

// Due finds nothing in rows that begin before where it is to look, but for those that are open.
func (l *timerLog) Due(id core.ExtentID, q extentlog.DueQuery, yield func(extentlog.DueRecord)) (extentlog.DueRun, error) {
	run, err := l.due(id, q, yield)
	run.Start.From = run.Passed
	for _, r := range l.index {
		if begin := l.rows[r.Seq]; r.Beyond(run.Passed) && run.Passed.Beyond(begin) && l.looksAt(q, begin) {
			run.Start.Open = append(run.Start.Open, extentlog.OpenRow{First: begin})
		}
	}
	return run, err
}

// looksAt reports whether a query looks at the row that begins there.
func (l *timerLog) looksAt(q extentlog.DueQuery, begin extentlog.DueKey) bool {
	return !q.Start.From.Beyond(begin) || slices.ContainsFunc(q.Start.Open, func(r extentlog.OpenRow) bool { return r.First == begin })
}

func (l *timerLog) due(_ core.ExtentID, q extentlog.DueQuery, yield func(extentlog.DueRecord)) (extentlog.DueRun, error) {
	run, seen := extentlog.DueRun{Passed: q.After, Next: extentlog.NeverDue}, 0
	for _, r := range l.index {
		switch {
		case !r.Beyond(q.After) || !l.looksAt(q, l.rows[r.Seq]):
			continue
		case r.At > q.Until:
			return extentlog.DueRun{Passed: extentlog.DueThrough(q.Until), Next: r.At}, nil
		case seen >= q.MaxBytes:
			run.More = true
			return run, nil
		}
		seen += len(r.Record)
		run.Passed = r.DueKey
		if r.Seq <= q.UpTo && !q.Known.Done(r.Seq) {
			yield(r)
		}
	}
	run.Passed = extentlog.DueThrough(q.Until)
	return run, nil
}
