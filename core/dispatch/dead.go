package dispatch

import (
	"time"
	"unicode/utf8"

	"github.com/columbamq/columba/core"
)

// deadRef is a message that TakeDead yields next, if it is still dying.
type deadRef struct {
	share *Share
	seq   core.Seq
}

// failed decides what follows the failed attempt of a message, whose failure is noted: until > 0 delays the next one.
func (s *Share) failed(seq core.Seq, m *message, until int64) {
	s.changed = true
	if m.failure == Rejected { // a verdict on the message, by a worker that does its work
		s.group.succeeded()
	} else {
		s.strike(seq, m)
	}
	s.judge(seq, m, until)
}

// judge sends a message on: to its next attempt, or if it had its last to its end.
func (s *Share) judge(seq core.Seq, m *message, until int64) {
	delete(s.extended, seq)
	exhausted := s.exhausted(seq, m)
	switch {
	case !exhausted && s.leaves(seq, until):
		s.park(seq, m, until)
	case !exhausted && until == 0:
		s.retry(seq, m)
	case !exhausted:
		m.due = until
		s.move(m, delayed)
		s.group.wakeAt(s, seq, until)
	case s.group.spec.Exhausted == core.ExhaustedDrop:
		s.group.counters.Dropped++
		s.settle(seq, m)
	case s.group.spec.Exhausted == core.ExhaustedBlock:
		s.move(m, blocked)
	default:
		s.die(seq, m)
	}
}

// exhausted reports whether a message has had its last attempt.
func (s *Share) exhausted(seq core.Seq, m *message) bool {
	most := s.group.spec.MaxDeliveries
	return m.failure == Rejected || most != core.UnlimitedDeliveries && int(m.attempts)-s.excuses(seq) >= most
}

// retry queues a message for its next attempt.
func (s *Share) retry(seq core.Seq, m *message) {
	if s.isLone(seq, m) {
		s.setApart(seq, m)
		return
	}
	s.await(seq, m)
}

// await has a message wait for its next attempt to be counted durably.
func (s *Share) await(seq core.Seq, m *message) {
	s.changed = true
	s.move(m, unsaved)
	s.pending.push(saving{seq: seq})
}

// die queues a message for TakeDead.
func (s *Share) die(seq core.Seq, m *message) {
	s.move(m, dying)
	if m.batch != nil {
		s.group.dead.push(deadRef{s, seq})
	}
}

// TakeDead appends up to most messages (≥ 0) that are to be appended to the dead letter queue. Each is yielded once;
// answer with DeadLettered or DeadFailed.
func (g *Group) TakeDead(most int, dead []Dead) []Dead {
	for n := 0; n < most && g.dead.len() > 0; {
		ref := g.dead.pop()
		m := ref.share.table.get(ref.seq)
		if m == nil || m.phase != dying || m.batch == nil {
			continue
		}
		ref.share.move(m, taken)
		ref.share.lend(ref.seq, m.batch)
		dead = append(dead, Dead{
			Share: ref.share, Of: ref.share.source(), Seq: ref.seq, Attempts: m.attempts, Failure: ref.share.diedOf(ref.seq, m), Text: ref.share.texts[ref.seq], Metadata: ref.share.metadataOf(ref.seq),
			Session: m.session, Enqueued: ref.share.enqueued(m.batch, ref.seq), Record: ref.share.record(m.batch, ref.seq),
		})
		n++
	}
	return dead
}

// diedOf is why a message became a dead letter. A checkpoint does not say that one expired, nor, when it is crowded, how any failed: where max deliveries was
// lowered since, such a message dies without another attempt.
func (s *Share) diedOf(seq core.Seq, m *message) Failure {
	switch {
	case m.failure != NoFailure:
		return m.failure
	case s.lapsed(m.batch, seq):
		return Lapsed
	}
	return LockExpired // all that is known: it was handed out, and nobody settled it
}

// DeadLettered settles a message that TakeDead yielded: the dead letter queue has it durably. No effect if a late ack
// settled it before.
func (s *Share) DeadLettered(seq core.Seq, now time.Time) {
	s.group.at(now)
	s.takeBack(seq)
	if m := s.table.get(seq); m != nil && m.phase == taken {
		s.group.counters.Dead++
		s.settle(seq, m)
		s.wake()
	}
}

// DeadFailed keeps a message that TakeDead yielded until retryAt, when TakeDead yields it again.
func (s *Share) DeadFailed(seq core.Seq, retryAt, now time.Time) {
	s.group.at(now)
	s.takeBack(seq)
	if m := s.table.get(seq); m != nil && m.phase == taken {
		m.due = s.group.nanos(retryAt)
		s.move(m, retaken)
		s.group.wakeAt(s, seq, m.due)
	}
}

// lend pins a batch while the record of seq is written elsewhere: a late ack may settle the message meanwhile.
func (s *Share) lend(seq core.Seq, b *batch) {
	if s.lent == nil {
		s.lent = make(map[core.Seq]*batch)
	}
	s.lent[seq] = b
	b.lent++
}

func (s *Share) takeBack(seq core.Seq) {
	b := s.lent[seq]
	if b == nil {
		return
	}
	delete(s.lent, seq)
	if b.lent--; b.lent == 0 && (b.left == 0 || s.gone) {
		s.release(b)
	}
}

// clip copies text, cut to most bytes at the end of a rune.
func clip(text []byte, most int) string {
	if len(text) <= most {
		return string(text)
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return string(text[:most])
}
