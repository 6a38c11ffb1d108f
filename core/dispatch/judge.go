package dispatch

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// RetryQueueAfter is the longest delay that a retry waits in memory. With a longer one it waits in the retry queue;
// with a shorter one it may, too: see MaxFailed.
const RetryQueueAfter = 30 * time.Second

// due applies a message's deadline.
func (s *Share) due(seq core.Seq, m *message) {
	s.change()
	switch m.phase {
	case inFlight:
		s.group.counters.LockTimeouts++
		if s.pardon(seq, m) { // what is known of the attempt before stays
			s.judge(seq, m, 0)
			break
		}
		m.failure = LockTimedOut // what a consumer said of an earlier attempt stays: this one said nothing
		s.failed(seq, m, 0)
	case delayed:
		if s.exhausted(seq, m) {
			s.judge(seq, m, 0)
			break
		}
		s.retry(seq, m)
	case leaving, announced, held:
		s.dueTransfer(seq, m)
	}
	s.wake()
}

// failed decides what follows the failed attempt of a message, whose failure is noted: until > 0 delays the next one.
func (s *Share) failed(seq core.Seq, m *message, until int64) {
	s.change()
	if m.failure == Rejected { // a verdict on the message, by a worker that does its work
		s.group.succeeded(1)
	} else {
		s.attemptFailed(seq, m)
	}
	if s.dropsLater(seq, m) {
		was := m.isRetry()
		s.endLock(seq)
		s.dropLater(seq, m)
		s.group.retried(was, true)
	} else {
		s.judge(seq, m, until)
	}
	s.weighs(seq, m)
}

// dropsLater reports whether a group that drops keeps an exhausted message until it is known whether its attempt
// counts, for as long as one that becomes a dead letter stays: see Share.stays.
func (s *Share) dropsLater(seq core.Seq, m *message) bool {
	g := s.group
	return g.spec.Exhausted == core.ExhaustedDrop && m.failure != Rejected && g.breaker.gathers() > 0 && s.exhausted(seq, m)
}

// dropped is an exhausted message that a group keeps before it drops it.
type dropped struct {
	messageRef
	failed int64 // ns
}

// dropLater keeps an exhausted message.
func (s *Share) dropLater(seq core.Seq, m *message) {
	g := s.group
	s.delayUntil(seq, m, g.now+int64(routes[DeadLetterQueue].patience))
	if g.drops == nil {
		g.drops = new(queue[dropped])
	}
	g.drops.push(dropped{messageRef{s, seq}, g.now})
}

// tickDrops drops the messages that failed before the last success: no breaker counts those any more. Others have a
// deadline.
func (g *Group) tickDrops() {
	if g.drops == nil {
		return
	}
	for g.drops.len() > 0 {
		x := g.drops.front()
		if x.failed >= g.succeededAt && x.stands(delayed) {
			return
		}
		if m := x.share.table.get(x.seq); m != nil && m.phase == delayed && x.share.exhausted(x.seq, m) {
			x.share.judge(x.seq, m, 0)
			x.share.wake()
		}
		g.drops.pop()
	}
	g.drops = nil
}

// delayUntil has a message wait in memory.
func (s *Share) delayUntil(seq core.Seq, m *message, until int64) {
	m.due = until
	s.move(seq, m, delayed)
	s.group.wakeAt(s, seq, until)
}

// judge sends a message on: to its next attempt, here or by the retry queue, or if it had its last to its end.
func (s *Share) judge(seq core.Seq, m *message, until int64) {
	was := m.isRetry()
	s.endLock(seq)
	if m.phase.leaves() {
		s.withdraw(seq, m)
	}
	exhausted := s.exhausted(seq, m)
	switch {
	case !exhausted && (until-s.group.now > int64(RetryQueueAfter) || s.metadataOf(seq) != nil): // only an append replaces metadata
		s.leave(seq, m, RetryQueue, until)
	case !exhausted && s.isDisplaced(m, until):
		s.displace(seq, m, until)
	case !exhausted && until == 0:
		s.retry(seq, m)
	case !exhausted:
		s.delayUntil(seq, m, until)
		s.waitsNacked(seq, m)
	case s.group.spec.Exhausted == core.ExhaustedDrop:
		s.group.counters.Dropped++
		s.settle(seq, m)
	case s.group.spec.Exhausted == core.ExhaustedBlock:
		s.move(seq, m, blocked)
	default:
		s.leave(seq, m, DeadLetterQueue, 0)
	}
	if m.phase != none { // a retry that was settled is counted by that
		s.group.retried(was, m.isRetry())
	}
}

// exhausted reports whether a message has had its last attempt.
func (s *Share) exhausted(seq core.Seq, m *message) bool {
	most := s.group.spec.MaxDeliveries
	return m.failure == Rejected || most != core.UnlimitedDeliveries && int(m.attempts)-s.notCounted(seq) >= most
}

// retry queues a message for its next attempt.
func (s *Share) retry(seq core.Seq, m *message) {
	if s.needsIsolation(seq, m) {
		s.setApart(seq, m)
		return
	}
	s.await(seq, m)
}

// await has a message wait for credit. Without its bytes it waits for those.
func (s *Share) await(seq core.Seq, m *message) {
	s.change()
	s.move(seq, m, unclaimed)
	s.waitsNacked(seq, m)
	if m.batch != nil {
		s.group.awaitCredit(s, seq)
		s.group.claimRetries()
	}
}

// A message that fails when MaxFailed others of its share have failed before is displaced, or another one in its place:
// it is transferred to the retry queue however short its delay, and not handed out from here on its way unless the
// retry queue refuses it. A nacked message is displaced itself. One whose lock timed out stays while a nacked one
// waits, since its consumer may ack it late: of those the one that was nacked last goes. Groups that block, or deliver
// at most once, displace nothing. In a share of the retry queue what is read and not handed out counts for a nacked
// message, too, and one without a delay goes behind it in any case: while it waited here the share would claim no
// other. See adr/0052.

// MaxFailed is how many failed messages of a share stay in memory, those in flight again included.
const MaxFailed = 1000

// waitsAgain reports whether a message in this phase waits for its next attempt. It may be its first one, if it was
// returned unseen or is claimed.
func (p phase) waitsAgain() bool {
	switch p {
	case delayed, unclaimed, unsaved, ready, isolated:
		return true
	}
	return false
}

// failedBefore reports whether a message is one of those that MaxFailed bounds.
func (m *message) failedBefore() bool {
	return m.attempts > 0 && m.phase.waitsAgain() || m.attempts > 1 && m.phase == inFlight
}

// failedMessages is how many messages the share holds that were handed out before, and neither leave nor are blocked.
func (s *Share) failedMessages() int {
	return s.of(delayed, unclaimed, unsaved, ready, isolated) - int(s.unseen) + int(s.repeats)
}

// waitsNacked notes that a message waits for its next attempt after a nack, and may be displaced for another one.
func (s *Share) waitsNacked(seq core.Seq, m *message) {
	if m.failure != Nacked {
		return
	}
	if len(s.nacked) >= 64+2*s.of(delayed, unclaimed) {
		s.nacked = slices.DeleteFunc(s.nacked, func(seq core.Seq) bool { return s.displaceable(seq) == nil })
	}
	s.nacked = append(s.nacked, seq)
}

// listNacked finds the messages anew that may be displaced, since the rules of the group were changed.
func (s *Share) listNacked() {
	s.nacked = nil
	s.table.each(func(seq core.Seq, _ *message) {
		if s.displaceable(seq) != nil {
			s.nacked = append(s.nacked, seq)
		}
	})
}

// displaces reports whether messages of the group are displaced at all.
func (s *Share) displaces() bool {
	return s.group.spec.Exhausted != core.ExhaustedBlock && !s.group.atMostOnce()
}

// displaceable is a message that may be displaced for another one: it was nacked, and no checkpoint counts its next
// attempt.
func (s *Share) displaceable(seq core.Seq) *message {
	m := s.table.get(seq)
	if m != nil && m.failure == Nacked && (m.phase == delayed || m.phase == unclaimed) && !s.exhausted(seq, m) {
		return m
	}
	return nil
}

// isDisplaced reports whether a message that failed, has attempts left and waits until then (ns, 0: for no delay), has
// to go since as many as may stay have failed before it. It displaces another one instead if that goes first.
func (s *Share) isDisplaced(m *message, until int64) bool {
	if !s.displaces() || m.attempts == 0 { // one that was about to leave unseen may come back
		return false
	}
	others := s.failedMessages()
	if m.failedBefore() {
		others--
	}
	if line := s.supply.len(); m.failure == Nacked && s.returning && line > 0 {
		if others += line; until == 0 {
			return true
		}
	}
	if others < int(s.group.mostFailed) {
		return false
	}
	return m.failure == Nacked || !s.displaceNacked()
}

// displaceNacked displaces the message that was nacked last of those that wait, and reports whether there was one.
func (s *Share) displaceNacked() bool {
	for len(s.nacked) > 0 {
		last := len(s.nacked) - 1
		seq := s.nacked[last]
		s.nacked = s.nacked[:last]
		m := s.displaceable(seq)
		if m == nil {
			continue
		}
		until := int64(0)
		if m.phase == delayed {
			until = m.due
		}
		s.displace(seq, m, until)
		return true
	}
	return false
}

// displace has a message leave for the retry queue until it may be handed out again (ns, 0: at once), however soon that
// is.
func (s *Share) displace(seq core.Seq, m *message, until int64) {
	s.transferOf(seq).displaced = true
	s.leave(seq, m, RetryQueue, until)
}
