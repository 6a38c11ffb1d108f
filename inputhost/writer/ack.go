package writer

import (
	"time"

	"github.com/columbamq/columba/core"
)

// Acked notes that a replica has everything up to durable on disk, and answers what that commits. After the writer has
// asked for the seal it does nothing: only the seal's answer counts then.
func (w *Writer) Acked(replica int, durable core.Seq) {
	now := w.env.Now()
	w.mu.Lock()
	if w.mu.state == ended {
		w.mu.Unlock()
		return
	}
	if last := w.mu.last; durable > last {
		w.mu.Unlock()
		store := w.Extent.Replicas[replica]
		w.Fail(store, core.Errorf(core.CodeCorrupt, "replica %s acknowledged seq %d, beyond %d which is the last sent", store, durable, last))
		return
	}
	w.noteAckLocked(replica, durable, now)
	committed, advanced := w.mu.tracker.Ack(replica, durable)
	if !advanced {
		w.mu.Unlock()
		return
	}
	var done [maxInFlightBatches]*batch
	n := 0
	for n < len(w.mu.inFlight) && w.mu.inFlight[n].last <= committed {
		done[n] = w.mu.inFlight[n]
		w.mu.inFlightBytes -= done[n].bytes
		n++
	}
	rest := copy(w.mu.inFlight, w.mu.inFlight[n:])
	clear(w.mu.inFlight[rest:])
	w.mu.inFlight = w.mu.inFlight[:rest]
	w.mu.Unlock()

	for _, b := range done[:n] {
		b.acknowledge(w.Extent.ID)
		b.release()
	}
	w.send()
	w.tellCommitted()
	w.finish()
}

// tellCommitted has the committed seq told by itself when no append is under way to carry it.
func (w *Writer) tellCommitted() {
	w.mu.Lock()
	tell := !w.mu.telling && w.mu.state != ended && len(w.mu.inFlight) == 0 && w.mu.tracker.Committed() > w.mu.told
	w.mu.telling = w.mu.telling || tell
	w.mu.Unlock()
	if tell {
		w.env.Tell(w)
	}
}

// Tell sends the replicas the committed seq, unless an append has carried it or will.
func (w *Writer) Tell() {
	w.mu.Lock()
	committed := w.mu.tracker.Committed()
	tell := w.mu.state != ended && len(w.mu.inFlight) == 0 && committed > w.mu.told
	if tell {
		w.mu.told = committed
	}
	w.mu.telling = false
	w.mu.Unlock()
	if tell {
		for _, r := range w.replicas {
			r.Commit(committed)
		}
	}
}

// noteAckLocked remembers the slowest of a replica's acknowledgements since the last look.
func (w *Writer) noteAckLocked(replica int, durable core.Seq, now time.Time) {
	if b := w.oldestLocked(replica); b != nil && b.base <= durable {
		w.mu.slowest[replica] = max(w.mu.slowest[replica], now.Sub(b.sent), 1)
	}
}

// oldestLocked is the oldest batch in flight that a replica has not acknowledged, nil if there is none.
func (w *Writer) oldestLocked(replica int) *batch {
	durable := w.mu.tracker.Durable(replica)
	for _, b := range w.mu.inFlight {
		if b.last > durable {
			return b
		}
	}
	return nil
}

// Lag is how one replica's store fares; zero fields: there is none.
type Lag struct {
	Oldest    time.Duration // the age of the oldest batch that it has not acknowledged
	Behind    time.Duration // the same, if another replica has acknowledged that batch
	Overtaken time.Duration // the same, if another replica has acknowledged newer ones, too
	Slowest   time.Duration // of its acknowledgements since the last look
}

// Lags tells, for each store that there is something to say of, how it fares, and begins another look. A writer that
// has ended waits for no store.
func (w *Writer) Lags(now time.Time, observe func(store core.HostID, l Lag)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.state == ended {
		return
	}
	newest := core.Seq(0)
	for i := range w.Extent.Replicas {
		newest = max(newest, w.mu.tracker.Durable(i))
	}
	for i, store := range w.Extent.Replicas {
		l := Lag{Slowest: w.mu.slowest[i]}
		if b := w.oldestLocked(i); b != nil {
			l.Oldest = now.Sub(b.sent)
			if newest >= b.last {
				l.Behind = l.Oldest
			}
			if newest > b.last {
				l.Overtaken = l.Oldest
			}
		}
		if l.Oldest > 0 || l.Slowest > 0 {
			w.mu.slowest[i] = 0
			observe(store, l)
		}
	}
}
