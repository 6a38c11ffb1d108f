package writer

import (
	"sync/atomic"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// send forms batches of what waits and hands them to the replicas, until nothing waits or the bounds are reached. One goroutine
// at a time does it: whoever finds it free. So a chunk that arrives alone leaves on its publisher's own goroutine, and under
// load chunks gather while batches are in flight.
func (w *Writer) send() {
	w.mu.Lock()
	if w.mu.sending || !w.mu.started {
		w.mu.Unlock()
		return
	}
	w.mu.sending = true
	for w.mu.state != ended && len(w.mu.pending) > 0 &&
		len(w.mu.inFlight) < maxInFlightBatches && w.mu.inFlightBytes < maxInFlightBytes {
		chunks, records := w.takeLocked()
		committed := w.mu.tracker.Committed()
		w.mu.told = committed
		last, lastTime, sum := w.mu.last, w.mu.lastTime, w.mu.checksum
		w.mu.Unlock()

		buf, release := gather(chunks, records)
		now := w.env.Now()
		h := wire.BatchHeader{
			Base: last + 1, Count: countOf(chunks),
			AppendTime: max(now.UnixMicro(), lastTime), // never goes back within an extent
			Checksum:   wire.ExtendChecksum(sum, buf),
		}

		w.mu.Lock()
		if w.mu.state == ended { // failed meanwhile, without these
			w.mu.Unlock()
			release()
			w.env.Again(chunks)
			w.mu.Lock()
			break
		}
		w.mu.last, w.mu.lastTime, w.mu.checksum = h.Last(), h.AppendTime, h.Checksum
		w.mu.bytes += uint64(len(buf))
		w.mu.active = now
		w.mu.inFlight = append(w.mu.inFlight, flight{base: h.Base, last: h.Last(), bytes: len(buf), sent: now, chunks: chunks})
		w.mu.inFlightBytes += len(buf)
		w.mu.Unlock()

		w.toReplicas(h, buf, committed, release)
		w.mu.Lock()
	}
	w.mu.sending = false
	w.mu.Unlock()
}

// toReplicas sends one batch to all; release is called when the last has let go of it.
func (w *Writer) toReplicas(h wire.BatchHeader, buf []byte, committed core.Seq, release func()) {
	var refs atomic.Int32
	refs.Store(int32(len(w.replicas)))
	done := func() {
		if refs.Add(-1) == 0 {
			release()
		}
	}
	var failed error
	for _, r := range w.replicas {
		if err := r.Append(h, buf, committed, done); err != nil {
			failed = err
		}
	}
	if failed != nil {
		w.Fail(failed)
	}
}

// takeLocked removes from pending what goes into the next batch: at least one chunk, at most wire.MaxBatchBytes of them.
func (w *Writer) takeLocked() (chunks []Chunk, bytes int) {
	n, records := 0, uint32(0)
	for _, c := range w.mu.pending {
		if n > 0 && (bytes+len(c.Records) > wire.MaxBatchBytes || records+c.Count > wire.MaxBatchRecords) {
			break
		}
		n++
		bytes += len(c.Records)
		records += c.Count
	}
	chunks = append(chunks, w.mu.pending[:n]...)
	rest := copy(w.mu.pending, w.mu.pending[n:])
	clear(w.mu.pending[rest:])
	w.mu.pending = w.mu.pending[:rest]
	return chunks, bytes
}

func countOf(chunks []Chunk) (n uint32) {
	for _, c := range chunks {
		n += c.Count
	}
	return n
}
