package writer

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// send forms batches of what waits and hands them to the replicas, until nothing waits or the bounds are reached. One
// goroutine at a time does it: whoever finds it free. So a chunk that arrives alone leaves on its publisher's own
// goroutine, and under load chunks gather while batches are in flight.
func (w *Writer) send() {
	w.mu.Lock()
	if w.mu.sending || !w.mu.started {
		w.mu.Unlock()
		return
	}
	w.mu.sending = true
	full := false
	for w.sendsLocked() {
		b := w.takeLocked()
		w.mu.forming = true
		committed := w.mu.tracker.Committed()
		w.mu.told = committed
		last, lastTime, sum := w.mu.last, w.mu.lastTime, w.mu.checksum
		w.mu.Unlock()

		b.gather()
		now := w.env.Now()
		h := wire.BatchHeader{
			Base: last + 1, Count: b.count(),
			AppendTime: max(w.env.Stamp(now).UnixMicro(), lastTime), // never goes back within an extent
			Checksum:   wire.ExtendChecksum(sum, b.records),
		}
		b.base, b.last, b.sent = h.Base, h.Last(), now

		w.mu.Lock()
		w.mu.forming = false
		if w.mu.state == ended { // failed meanwhile, without these
			late := append([]Chunk(nil), b.chunks...)
			if w.chained() {
				w.mu.late = late
				w.formed <- struct{}{}
				late = nil
			}
			w.mu.Unlock()
			if late != nil {
				w.env.Again(late)
			}
			b.release()
			w.mu.Lock()
			break
		}
		w.mu.last, w.mu.lastTime, w.mu.checksum = h.Last(), h.AppendTime, h.Checksum
		was := w.mu.bytes
		w.mu.bytes += uint64(b.bytes)
		full = full || was < w.limits.RollBytes && w.mu.bytes >= w.limits.RollBytes || w.limits.MaxRecords > 0 && last < w.limits.roll() && h.Last() >= w.limits.roll()
		w.mu.inFlight = append(w.mu.inFlight, b)
		w.mu.inFlightBytes += b.bytes
		b.refs.Add(int32(len(w.replicas)))
		w.mu.Unlock()

		w.toReplicas(h, b, committed)
		w.mu.Lock()
	}
	w.mu.sending = false
	w.mu.Unlock()
	if full {
		w.env.Full(w)
	}
}

// sendsLocked reports whether the next batch may leave.
func (w *Writer) sendsLocked() bool {
	if w.mu.state == ended || len(w.mu.pending) == 0 || w.mu.inFlightBytes >= maxInFlightBytes {
		return false
	}
	n := len(w.mu.inFlight)
	return n < gatherAt || n < maxInFlightBatches && w.mu.pendingBytes > wire.BatchTarget
}

// toReplicas sends one batch to all.
func (w *Writer) toReplicas(h wire.BatchHeader, b *batch, committed core.Seq) {
	records := b.records
	for i, r := range w.replicas {
		if err := r.Append(h, records, committed, b.done); err != nil {
			w.Fail(w.Extent.Replicas[i], err)
		}
	}
}

// takeLocked makes a batch of what waits: at least one chunk, and more up to wire.BatchTarget.
func (w *Writer) takeLocked() *batch {
	b := newBatch()
	n, records := 0, uint32(0)
	for i := range w.mu.pending {
		c := &w.mu.pending[i]
		if n > 0 && (b.bytes+len(c.Records) > wire.BatchTarget || records+c.Count > wire.MaxBatchRecords) {
			break
		}
		n++
		b.bytes += len(c.Records)
		records += c.Count
	}
	b.chunks = append(b.chunks, w.mu.pending[:n]...)
	rest := copy(w.mu.pending, w.mu.pending[n:])
	clear(w.mu.pending[rest:])
	w.mu.pending = w.mu.pending[:rest]
	w.mu.pendingBytes -= b.bytes
	return b
}
