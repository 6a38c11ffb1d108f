package writer

import (
	"context"
	"math"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// owed is a chunk that was sent and that only the seal can answer.
type owed struct {
	chunk Chunk
	base  core.Seq
	last  core.Seq // of its batch: batches are atomic on disk
}

// settlement is the end of one writer: it asks for the seal and answers what is owed.
type settlement struct {
	w     *Writer
	left  []owed    // in order
	known bool      // L is decided
	tell  time.Time // the log, that it is not over yet
}

// Pauses between two requests for a seal: from the first, doubled up to one of the others.
const (
	askFirst = 10 * time.Millisecond
	askOwing = 250 * time.Millisecond // while somebody waits for the answer
	askAlone = 5 * time.Second
)

// The log is told of an extent that cannot be settled after the first, and then each further one.
const (
	tellAfter = 5 * time.Second
	tellEvery = time.Minute
)

// settle asks for the seal until the end seq is known and every record is answered: acknowledged up to the end seq once
// enough replicas hold it, appended again beyond it. A record without an answer at its publish deadline is unknown from
// then on, and is never appended again.
func (w *Writer) settle(ctx context.Context, reason string, sent []*batch, unsent []Chunk) {
	w.mu.Lock()
	end := End{Floor: w.mu.tracker.Committed(), Reason: reason}
	if w.mu.due > 0 {
		end.Due = time.UnixMilli(w.mu.due)
	}
	replicas := w.replicas
	w.mu.Unlock()
	closeAll(replicas)
	s := settlement{w: w}
	if !w.chained() { // behind chunks whose outcome is open, order within the queue is not promised
		w.appendAgain(unsent)
	}
	for _, b := range sent {
		base := b.base
		for _, c := range b.chunks {
			s.left = append(s.left, owed{c, base, b.last})
			base += core.Seq(c.Count)
		}
		b.release()
	}
	if w.chained() {
		s.left = append(s.left, w.unsent(unsent)...)
	}
	s.run(ctx, end)
	w.env.Sealed(w, reason)
}

func (s *settlement) run(ctx context.Context, end End) {
	w, wait := s.w, askFirst
	s.tell = w.env.Now().Add(tellAfter)
	for {
		end.Owing = len(s.left) > 0
		l, holders, err := w.env.Seal(ctx, w.Extent, end)
		if err == nil {
			s.decide(l, holders >= min(2, len(w.Extent.Replicas)))
		}
		now := w.env.Now()
		next := s.expire(now)
		if s.known && len(s.left) == 0 {
			return
		}
		s.complain(now, l, holders, err)
		most := askAlone
		if len(s.left) > 0 {
			most = min(askOwing, max(next, time.Millisecond))
		}
		timer := time.NewTimer(min(wait, most))
		select {
		case <-ctx.Done():
			timer.Stop()
			s.giveUp()
			return
		case <-timer.C:
		}
		wait = min(2*wait, askAlone)
	}
}

// complain tells the log, now and then, what it still waits for.
func (s *settlement) complain(now time.Time, l core.Seq, holders int, err error) {
	if now.Before(s.tell) {
		return
	}
	s.tell = now.Add(tellEvery)
	log := s.w.env.Log.With("extent", s.w.Extent.ID, "owed", len(s.left))
	if err == nil {
		log.Warn("an extent is sealed, but too few replicas hold its end yet", "end_seq", l, "holders", holders)
		return
	}
	log.Warn("an extent is not sealed yet", "err", err)
}

// decide answers what an L decides. Until enough replicas hold it, what is up to L stays open: the controller repairs
// at once.
func (s *settlement) decide(l core.Seq, enough bool) {
	s.known = true
	kept := s.left[:0]
	var again []Chunk
	for _, o := range s.left {
		switch {
		case o.last > l:
			again = append(again, o.chunk)
		case enough:
			o.answer(Outcome{Status: wire.AckOK, Extent: s.w.Extent.ID, Base: o.base})
		default:
			kept = append(kept, o)
		}
	}
	clear(s.left[len(kept):])
	s.left = kept
	s.w.appendAgain(again)
}

// expire answers what has waited too long, and says when the next of what is left has.
func (s *settlement) expire(now time.Time) (next time.Duration) {
	kept := s.left[:0]
	for _, o := range s.left {
		left := s.w.limits.PublishDeadline - now.Sub(o.chunk.Arrived)
		if left <= 0 {
			o.giveUp()
			continue
		}
		if len(kept) == 0 || left < next {
			next = left
		}
		kept = append(kept, o)
	}
	clear(s.left[len(kept):])
	s.left = kept
	return next
}

func (s *settlement) giveUp() {
	for _, o := range s.left {
		o.giveUp()
	}
	s.left = nil
}

// giveUp answers without a decision: only what was sent may be stored.
func (o owed) giveUp() {
	if o.last == beyond {
		o.answer(Refused(core.CodeUnavailable))
		return
	}
	o.answer(Unknown())
}

func (o owed) answer(out Outcome) { o.chunk.From.Answer(o.chunk, out) }

// appendAgain drops chunks that nobody waits for: they were never reported, so they are never appended.
func (w *Writer) appendAgain(chunks []Chunk) {
	kept := make([]Chunk, 0, len(chunks))
	for _, c := range chunks {
		if c.From.Gone() {
			c.From.Answer(c, Refused(core.CodeUnavailable))
			continue
		}
		kept = append(kept, c)
	}
	if len(kept) > 0 {
		w.env.Again(kept)
	}
}

// chained: the extent is one of a chain, whose order outlives it. Nothing that was taken is passed on before the end of
// the extent is known, and then all of it in its order: what the seal answers is answered, and the rest goes on.
func (w *Writer) chained() bool { return w.Extent.Chain > 0 }

// beyond is above every end: what was never sent is never in the extent.
const beyond = core.Seq(math.MaxUint64)

// unsent is what a failed writer of a chain had not sent, in the order it was taken; what it had taken for a batch
// comes first. Only settle calls it, once.
func (w *Writer) unsent(pending []Chunk) []owed {
	w.mu.Lock()
	forming := w.mu.forming
	w.mu.Unlock()
	if forming { // it is only copied just now
		<-w.formed
	}
	w.mu.Lock()
	late := w.mu.late
	w.mu.Unlock()
	out := make([]owed, 0, len(late)+len(pending))
	for _, chunks := range [][]Chunk{late, pending} {
		for _, c := range chunks {
			out = append(out, owed{chunk: c, last: beyond})
		}
	}
	return out
}
