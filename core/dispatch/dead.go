package dispatch

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/columbamq/columba/core"
)

// A message is dead-lettered in three steps, so that a crash of the owner between any two makes neither two dead letters of it nor another delivery:
//
//  1. A durable checkpoint says that the message is to be dead-lettered (the intent). From then on no owner hands it out.
//  2. The message is appended to the dead letter queue. An append whose outcome is not known, or that an earlier owner may have made, is looked for
//     there before it is repeated (Dead.Again).
//  3. The message is settled where it was.
//
// At most transfersAtOnce messages of a share are between the first step and the last; the others wait for the first.

// transfersAtOnce is how many messages of a share are under way to the dead letter queue, and as many to the retry queue. So many intents fit into every
// checkpoint.
const transfersAtOnce = departAtOnce

// TransferDoubt is for how long an append to the dead letter queue whose outcome is not known can still come to pass. A message is looked for there after it
// only: a look before that may miss it, and the append that follows would be the second one. See adr/0040 for what it is made of.
const TransferDoubt = time.Minute

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

// die has a message wait for the checkpoint that says that it is to be dead-lettered.
func (s *Share) die(seq core.Seq, m *message) {
	s.changed = true
	s.move(m, intending)
	if s.intents == nil {
		s.intents = new(queue[saving])
	}
	s.intents.push(saving{seq: seq})
}

// Intending is how many messages wait for a checkpoint that says that they are to be dead-lettered. While it is not 0, save a checkpoint soon. It is 0
// while as many as may be are on their way.
func (s *Share) Intending() int { return min(s.of(intending), s.intentRoom()) }

func (s *Share) intentRoom() int {
	return max(0, transfersAtOnce-s.of(intended, dying, taken, retaken))
}

func (s *Share) allIntents() []saving {
	if s.intents == nil {
		return nil
	}
	return s.intents.all()
}

// tellIntents chooses the intents that the next checkpoint tells of, besides those of before.
func (s *Share) tellIntents() {
	room := s.intentRoom()
	for i := range s.allIntents() {
		p := &s.intents.all()[i]
		if room == 0 {
			return
		}
		if m := s.table.get(p.seq); m != nil && m.phase == intending {
			p.token = s.token
			s.move(m, intended)
			room--
		}
	}
}

// untellIntents takes back the intents that the checkpoint had no room for: written are its entries.
func (s *Share) untellIntents(written []entry) {
	for i := range s.allIntents() {
		p := &s.intents.all()[i]
		m := s.table.get(p.seq)
		if m == nil || m.phase != intended || p.token != s.token {
			continue
		}
		at, found := slices.BinarySearchFunc(written, p.seq, func(e entry, seq core.Seq) int { return cmp.Compare(e.first, seq) })
		if !found && (at == 0 || written[at-1].first+core.Seq(written[at-1].count) <= p.seq) {
			p.token = 0
			s.move(m, intending)
		}
	}
}

// savedIntents queues the messages for TakeDead whose intent is durable.
func (s *Share) savedIntents(token uint64) {
	if s.intents == nil || s.of(intended) == 0 {
		return
	}
	s.intents.filter(func(p *saving) bool {
		m := s.table.get(p.seq)
		switch {
		case m == nil || m.phase != intending && m.phase != intended: // settled meanwhile
			return false
		case m.phase == intending || p.token > token:
			return true
		}
		s.bury(p.seq, m)
		return false
	})
}

// intentEntry is how a checkpoint tells of a message that is to be dead-lettered. That one expired is not written, but seen again from its record.
func (s *Share) intentEntry(m *message, e *entry) {
	e.kind, e.leaves = ended, m.phase != intending
	if m.failure == Lapsed || m.failure == NoFailure {
		e.failure, e.text = NoFailure, ""
	}
}

// resumeIntent takes over a message that an earlier owner was to dead-letter, or had blocked; it may be in the dead letter queue already.
func (s *Share) resumeIntent(seq core.Seq, m *message) {
	expired := m.failure == NoFailure
	if s.group.spec.Exhausted != core.ExhaustedDLQ && (!expired || s.group.spec.Expired != core.ExpiredDLQ) {
		s.judge(seq, m, 0)
		return
	}
	s.depart(seq).away = true
	m.due = s.group.now + int64(TransferDoubt)
	s.move(m, retaken)
	s.group.wakeAt(s, seq, m.due)
}

// bury queues a message for TakeDead whose intent is durable.
func (s *Share) bury(seq core.Seq, m *message) {
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
		again, since := ref.share.appended(ref.seq)
		dead = append(dead, Dead{
			Share: ref.share, Again: again, Since: since, Of: ref.share.source(), Seq: ref.seq, Attempts: m.attempts, Failure: ref.share.diedOf(ref.seq, m), Text: ref.share.texts[ref.seq], Metadata: ref.share.metadataOf(ref.seq),
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

// DeadLettered settles a message that TakeDead yielded: the dead letter queue has it durably. No effect if another owner
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

// dies reports whether a message in this phase is on its way to the dead letter queue, and not being appended.
func (p phase) dies() bool { return p == intending || p == intended || p == dying }

// mayBeDead reports whether the dead letter queue may have a message.
func (s *Share) mayBeDead(seq core.Seq, m *message) bool {
	away, _ := s.appended(seq)
	return m.phase == taken || m.phase == retaken || m.phase.dies() && away
}

// appended reports whether the dead letter queue may have a message already, and since when; zero: since an earlier owner.
func (s *Share) appended(seq core.Seq) (may bool, since time.Time) {
	d := s.departures[seq]
	if d == nil || !d.away {
		return false, time.Time{}
	}
	if d.failed > 0 {
		since = s.group.instant(d.failed)
	}
	return true, since
}

// DeadFailed keeps a message that TakeDead yielded until retryAt, when TakeDead yields it again. unknown says that the dead letter queue may have it
// nevertheless, or get it yet: then it is kept for TransferDoubt at least.
func (s *Share) DeadFailed(seq core.Seq, unknown bool, retryAt, now time.Time) {
	s.group.at(now)
	s.takeBack(seq)
	if m := s.table.get(seq); m != nil && m.phase == taken {
		if d := s.departures[seq]; unknown && (d == nil || !d.away) {
			d = s.depart(seq)
			d.away, d.failed = true, s.group.now
		}
		m.due = s.group.nanos(retryAt)
		if unknown {
			m.due = max(m.due, s.group.now+int64(TransferDoubt))
		}
		s.move(m, retaken)
		s.group.wakeAt(s, seq, m.due)
	}
}

// lend pins a batch while the record of seq is written elsewhere: what another owner has settled may settle the message meanwhile.
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
