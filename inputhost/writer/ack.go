package writer

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Acked notes that a replica has everything up to durable on disk, and answers what that commits. After the writer has asked for
// the seal it does nothing: only the seal's answer counts then.
func (w *Writer) Acked(replica int, durable core.Seq) {
	w.mu.Lock()
	if w.mu.state == ended {
		w.mu.Unlock()
		return
	}
	if last := w.mu.last; durable > last {
		w.mu.Unlock()
		w.Fail(core.Errorf(core.CodeCorrupt, "replica %s acknowledged seq %d, beyond %d which is the last sent", w.Extent.Replicas[replica], durable, last))
		return
	}
	committed, advanced := w.mu.tracker.Ack(replica, durable)
	if !advanced {
		w.mu.Unlock()
		return
	}
	n := 0
	for n < len(w.mu.inFlight) && w.mu.inFlight[n].last <= committed {
		w.mu.inFlightBytes -= w.mu.inFlight[n].bytes
		n++
	}
	done := append([]flight(nil), w.mu.inFlight[:n]...)
	rest := copy(w.mu.inFlight, w.mu.inFlight[n:])
	clear(w.mu.inFlight[rest:])
	w.mu.inFlight = w.mu.inFlight[:rest]
	w.mu.active = w.env.Now()
	w.mu.Unlock()

	for _, f := range done {
		answerFlight(w.Extent.ID, f)
	}
	w.send()
	w.tellCommitted()
	w.finish()
}

// tellCommitted sends the committed seq by itself when no append is under way to carry it.
func (w *Writer) tellCommitted() {
	w.mu.Lock()
	committed := w.mu.tracker.Committed()
	tell := w.mu.state != ended && len(w.mu.inFlight) == 0 && committed > w.mu.told
	if tell {
		w.mu.told = committed
	}
	w.mu.Unlock()
	if tell {
		for _, r := range w.replicas {
			r.Commit(committed)
		}
	}
}

func answerFlight(extent core.ExtentID, f flight) {
	base := f.base
	for _, c := range f.chunks {
		c.From.Answer(c, Outcome{Status: wire.AckOK, Extent: extent, Base: base})
		base += core.Seq(c.Count)
	}
}

// settle asks for the seal until it is answered, then answers what is left: acknowledged up to L, appended again beyond it. What has
// no answer by the publish deadline is unknown from then on. Batches are atomic on disk, so L never cuts a flight.
func (w *Writer) settle(ctx context.Context, reason string, left []flight) {
	w.mu.Lock()
	floor := w.mu.tracker.Committed()
	replicas := w.replicas
	w.mu.Unlock()
	closeAll(replicas)
	left = w.again(left)
	deadline := w.env.Now().Add(w.limits.PublishDeadline)
	l, holders, err := w.seal(ctx, floor, reason, func() {
		if len(left) > 0 && w.env.Now().After(deadline) {
			answerFlights(left, Unknown())
			left = nil
		}
	})
	enough := min(2, len(w.Extent.Replicas))
	for _, f := range left {
		switch {
		case err != nil || f.last <= l && holders < enough:
			answerFlights([]flight{f}, Unknown())
		case f.last <= l:
			answerFlight(w.Extent.ID, f)
		default:
			w.appendAgain(f.chunks)
		}
	}
	w.env.Sealed(w)
}

// again passes on, at once, what never was in this extent, and returns the rest.
func (w *Writer) again(left []flight) []flight {
	if n := len(left); n > 0 && left[n-1].base == 0 {
		// Behind flights whose outcome is open, order within the queue is not promised (AP).
		w.appendAgain(left[n-1].chunks)
		left = left[:n-1]
	}
	return left
}

// appendAgain drops chunks that nobody waits for: they were never reported, so they are never appended.
func (w *Writer) appendAgain(chunks []Chunk) {
	kept := make([]Chunk, 0, len(chunks))
	for _, c := range chunks {
		if c.From.Gone() {
			c.From.Answer(c, Unknown())
			continue
		}
		kept = append(kept, c)
	}
	if len(kept) > 0 {
		w.env.Again(kept)
	}
}

// seal tries until it is answered or the host stops; failed is called after each failure.
func (w *Writer) seal(ctx context.Context, floor core.Seq, reason string, failed func()) (core.Seq, int, error) {
	wait := 10 * time.Millisecond
	for {
		l, holders, err := w.env.Seal(ctx, w.Extent, floor, reason)
		if err == nil {
			return l, holders, nil
		}
		failed()
		select {
		case <-ctx.Done():
			return 0, 0, err
		case <-time.After(wait):
			if wait *= 2; wait > time.Second {
				wait = time.Second
				w.env.Log.Warn("no answer to a seal yet", "extent", w.Extent.ID, "err", err)
			}
		}
	}
}

func answerFlights(flights []flight, o Outcome) {
	for _, f := range flights {
		for _, c := range f.chunks {
			c.From.Answer(c, o)
		}
	}
}
