package storehost

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

const (
	dueSoon       = 2 * time.Second        // records due within are read together, and sent when their time comes
	inspectBytes  = 256 << 10              // of batches looked at in one turn
	dueGap        = 5 * time.Millisecond   // between frames, while there is one to send all the time
	announceEvery = 250 * time.Millisecond // how often the committed seq is told
	maxDueWait    = time.Minute            // then the clock is looked at: somebody may have set it
)

// dueReader is how far a read stream of a timer extent is. It belongs to the pusher.
//
//	every record of a seq ≤ inspected is known, or in ahead, or beyond passed in the index
//
// So a record that commits late, or is due before what was sent last, is neither missed nor sent twice: it is inspected
// when it is committed, and goes to ahead if the index was read beyond its place.
type dueReader struct {
	known     *acklevel.Window // was sent, or need not be
	begun     bool
	sealed    bool // as of the last look at the index
	inspected core.Seq
	passed    extentlog.DueKey
	start     extentlog.DueStart // where the index holds what is beyond passed
	more      bool               // the index may hold something at or before passed.At + dueSoon
	next      int64              // when the first record beyond passed is due, unix ms, or earlier
	ahead     ahead
	entries   []wire.DueEntry // scratch
	sent      time.Time       // when the last frame was
	told      time.Time       // when the committed seq was
}

// dueLog is what it reads from.
type dueLog interface {
	Read(id core.ExtentID, from, upTo core.Seq, maxBytes int) ([]byte, error)
	Due(id core.ExtentID, q extentlog.DueQuery, yield func(extentlog.DueRecord)) (extentlog.DueRun, error)
}

// newDueReader reads the window of an open-read; nothing is known without one.
func newDueReader(known []byte) (*dueReader, error) {
	w, err := knownWindow("an open-read", known, core.CodeBadFrame)
	if err != nil {
		return nil, err
	}
	return &dueReader{known: w, more: true, next: extentlog.NeverDue}, nil
}

// knownWindow reads the window that a caller sends; an empty one without any bytes. Other bytes than a window are bad:
// nothing of the store is damaged.
func knownWindow(of string, known []byte, bad core.Code) (*acklevel.Window, error) {
	if len(known) == 0 {
		return new(acklevel.Window), nil
	}
	if len(known) > wire.MaxKnown {
		return nil, core.Errorf(core.CodeTooLarge, "the window of %s has %d bytes; at most %d are allowed", of, len(known), wire.MaxKnown)
	}
	w, _, rest, err := acklevel.Decode(known, wire.MaxKnown)
	if err == nil && len(rest) > 0 {
		err = core.Errorf(core.CodeCorrupt, "%d bytes follow it", len(rest))
	}
	if err != nil {
		return nil, core.Errorf(bad, "the window of %s: %w", of, err)
	}
	return w, nil
}

// behind reports whether the index has to be read on at ms.
func (d *dueReader) behind(ms int64) bool {
	return d.ahead.empty() && (d.more || d.next <= ms)
}

// isDue reports whether there is something to send at ms.
func (d *dueReader) isDue(ms int64) bool { return !d.ahead.empty() && d.ahead.first().At <= ms }

// fill does one turn of reading: of what has newly committed, up to limit, and of the index. again says that there is
// more of it to do.
func (d *dueReader) fill(log dueLog, id core.ExtentID, limit core.Seq, sealed bool, ms int64) (again bool, err error) {
	if !d.begun {
		d.begun, d.inspected = true, limit // nothing was passed yet: all of it is in the index
	}
	if sealed && !d.sealed { // what it waits for may have been cut off
		d.sealed, d.more = true, true
	}
	if d.inspected < limit {
		was := d.inspected
		if err := d.inspect(log, id, limit); err != nil {
			return false, err
		}
		again = was < d.inspected && d.inspected < limit
	}
	if d.behind(ms) {
		until := ms + dueSoon.Milliseconds()
		run, err := log.Due(id, extentlog.DueQuery{After: d.passed, Until: until, UpTo: d.inspected, Known: d.known, MaxBytes: maxAhead, Start: d.start}, d.ahead.push)
		if err != nil {
			return false, err
		}
		d.passed, d.more, d.next, d.start = run.Passed, run.More, run.Next, run.Start
	}
	return again || d.behind(ms), nil
}

// inspect looks at the next records that have committed.
func (d *dueReader) inspect(log dueLog, id core.ExtentID, limit core.Seq) error {
	run, err := log.Read(id, d.inspected+1, limit, inspectBytes)
	for err == nil && len(run) > 0 {
		var b wire.Batch
		if b, run, err = wire.NextBatch(run); err != nil {
			break
		}
		seq := b.Base
		for records := b.Records; len(records) > 0; seq++ {
			var record []byte
			if record, records, err = wire.NextRecord(records); err != nil {
				return err
			}
			if seq > d.inspected && !d.known.Done(seq) {
				d.place(extentlog.DueRecord{DueKey: extentlog.DueKey{At: wire.DeliverAt(record), Seq: seq}, Enqueued: b.AppendTime, Record: record})
			}
		}
		d.inspected = max(d.inspected, b.Last())
	}
	return err
}

// place takes a record that has committed: it is found in the index later, unless that was read beyond it.
func (d *dueReader) place(r extentlog.DueRecord) {
	if r.Beyond(d.passed) {
		d.next = min(d.next, r.At)
		d.start.Lower(extentlog.IndexFrom(r.At))
		return
	}
	if left, some := d.ahead.insert(r); some {
		d.passed, d.next, d.start = before(left), left.At, extentlog.DueStart{}
	}
}

// frame takes what is due at ms into a frame of most bytes; none when nothing is.
func (d *dueReader) frame(stream uint32, ms int64, credit int64) (head, records []byte) {
	most := int(min(credit, maxPiece))
	n, size := d.ahead.due(ms, most)
	if n == 0 {
		return nil, nil
	}
	d.entries, records = d.ahead.take(n, d.entries[:0], make([]byte, 0, size))
	for _, e := range d.entries {
		d.known.Ack(e.Seq)
	}
	flags := uint16(0)
	if credit <= int64(wire.DueLen(n, size)) && (d.isDue(ms) || d.behind(ms)) {
		flags = wire.FlagMore
	}
	return wire.AppendDueHead(nil, stream, flags, d.entries, size), records
}

// wakeAt is when there is something to send next, zero when nothing is known to be.
func (d *dueReader) wakeAt() time.Time {
	at := d.next
	if !d.ahead.empty() {
		at = d.ahead.first().At
	}
	if at == extentlog.NeverDue {
		return time.Time{}
	}
	return time.UnixMilli(at)
}

// over reports whether everything up to limit was sent, and nothing can follow.
func (d *dueReader) over(limit core.Seq) bool {
	return d.inspected >= limit && d.ahead.empty() && !d.more && d.next == extentlog.NeverDue
}

// lacks reports whether the reader waits for something before the end that this replica has not.
func (d *dueReader) lacks(s extentlog.State) bool {
	return s.Last < s.L && d.known.Within(s.Last+1, s.L) < uint64(s.L-s.Last)
}

// serveDue is serve for a timer extent.
func (r *readStream) serveDue(ctx context.Context, state extentlog.State, credit int64) (again bool) {
	d, now, limit := r.due, r.s.h.now(), readable(state)
	ms := now.UnixMilli()
	again, err := d.fill(r.s.log, r.extent, limit, state.Sealed, ms)
	if err == nil && credit > 0 && d.isDue(ms) && now.Sub(d.sent) >= dueGap {
		var spent int64
		spent, err = r.sendDue(ctx, ms, credit)
		d.sent = now
		credit -= spent
	}
	if err != nil {
		r.refuse(err)
		return false
	}
	due := d.isDue(ms)
	switch {
	case again || d.behind(ms):
		return true
	case state.Sealed && (d.over(limit) || !due && d.lacks(state)):
		r.finish(state)
		return false
	}
	wait := maxDueWait
	if at := d.wakeAt(); !at.IsZero() && !(due && credit <= 0) { // more credit wakes the stream, too
		if gap := d.sent.Add(dueGap); at.Before(gap) {
			at = gap
		}
		wait = min(wait, at.Sub(now))
	}
	r.wakeIn(min(wait, r.tellCommitted(now, limit)))
	return false
}

// sendDue queues one frame and answers what it takes of the credit.
func (r *readStream) sendDue(ctx context.Context, ms, credit int64) (spent int64, err error) {
	head, records := r.due.frame(r.id, ms, credit)
	spent = int64(len(head) - wire.FrameHeaderLen + len(records))
	r.s.mu.Lock()
	r.credit -= spent
	r.s.mu.Unlock()
	r.s.pushed.Add(spent)
	if err := r.s.mux.Conn.SendOwned(ctx, head, records, newParcel(r.s, spent).done); err != nil {
		return spent, err
	}
	r.s.h.metrics.readBytes.Add(float64(spent))
	return spent, nil
}

// tellCommitted tells the reader how far the extent is committed, but not too often; it answers when there will be more
// to tell.
func (r *readStream) tellCommitted(now time.Time, limit core.Seq) time.Duration {
	if limit <= r.announced {
		return maxDueWait
	}
	if wait := announceEvery - now.Sub(r.due.told); wait > 0 && wait <= announceEvery {
		return wait
	}
	r.announced, r.due.told = limit, now
	r.s.position(wire.TypeReadCommitted, r.id, uint64(limit))
	return maxDueWait
}

// wakeIn has the stream served again after a time.
func (r *readStream) wakeIn(d time.Duration) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case r.ended:
	case r.timer == nil:
		r.timer = time.AfterFunc(d, r.wake)
	default:
		r.timer.Reset(d)
	}
}
