package dispatch

import (
	"bytes"
	"time"
	"unicode/utf8"

	"github.com/columbamq/columba/core"
)

// These are made once, since they may be frequent.
var (
	errStale = core.Errorf(core.CodeStale, "this is not the current delivery of the message: the delivery was settled, its lock timed out, or the message moved to the retry queue or the dead letter queue")
	errOnce  = core.Errorf(core.CodeStale, "the group delivers at most once: a message is settled as it is delivered; there is nothing to nack, reject or extend")
)

// stale is why there is no current delivery to settle.
func (s *Share) stale() error {
	if s.group.atMostOnce() {
		return errOnce
	}
	return errStale
}

// refuse appends a refusal, joined to the one before where it goes on from it.
func refuse(bad []Refusal, base core.Seq, count uint32) []Refusal {
	if n := len(bad); n > 0 && bad[n-1].Base+core.Seq(bad[n-1].Count) == base && bad[n-1].Code == core.CodeStale {
		bad[n-1].Count += count
		return bad
	}
	return append(bad, Refusal{base, count, core.CodeStale})
}

// Ack settles count messages from base, delivered to a session under attempt: any attempt handed out so far will do,
// however late, until the message is settled, see tooLate. Refused acks are appended to bad (CodeStale: settled before,
// or never handed out), the others are applied.
func (s *Share) Ack(base core.Seq, count uint32, attempt uint16, now time.Time, bad []Refusal) []Refusal {
	s.group.at(now)
	end := base + core.Seq(count)           // exclusive
	if count == 0 || s.group.atMostOnce() { // all that was handed out is settled
		return bad
	}
	if count > MaxSettleRun || end < base || attempt == 0 {
		return refuse(bad, base, count)
	}
	from := base // of the acks not yet in the window
	for seq := base; seq < end; {
		key := uint64(seq) >> chunkBits
		stop := chunkEnd(seq, end)
		c := s.table.chunk(key)
		if c == nil {
			s.doneRun(from, seq)
			bad = refuse(bad, seq, uint32(stop-seq))
			seq, from = stop, stop
			continue
		}
		for seq < stop {
			if n := s.ackTogether(c, seq, stop, attempt); n > 0 {
				seq += core.Seq(n)
				continue
			}
			m := &c.messages[seq&chunkMask]
			if attempt > m.attempts || m.phase == none || m.phase >= blocked && s.tooLate(seq, m) {
				s.doneRun(from, seq)
				bad = refuse(bad, seq, 1)
				seq++
				from = seq
				continue
			}
			s.group.acked(m.session)
			s.forget(seq, m)
			c.live &^= 1 << (seq & chunkMask)
			seq++
		}
		if c.live == 0 {
			s.table.free(key, c)
		}
	}
	s.doneRun(from, end)
	s.wake()
	return bad
}

// doneRun marks the seqs from … end-1, just acked, as done.
func (s *Share) doneRun(from, end core.Seq) {
	if from < end {
		s.change()
		s.group.succeeded(int(end - from))
		s.group.counters.Acked += s.done.AckRange(from, uint64(end-from))
	}
}

// tooLate reports whether a message takes no ack any more although it is not settled yet: the queue that it is
// transferred to may have it, or a consumer rejected it. An ack would make the second of two settlements that are both
// told to have worked, and perhaps a dead letter of an acked message. A message that is blocked since its attempts are
// used up takes acks of all of them, like one that waits.
func (s *Share) tooLate(seq core.Seq, m *message) bool {
	if m.phase != blocked && !m.phase.leaves() {
		return false
	}
	x := s.table.note(seq).transfer
	return m.phase == appending || m.failure == Rejected || x != nil && x.mayBeThere
}

// forget takes a message out of every count and clears it; its bit in its chunk is the caller's.
func (s *Share) forget(seq core.Seq, m *message) {
	if m.phase == inFlight && m.attempts == 1 { // most are
		s.count[inFlight]--
		s.flying(m, -1)
	} else {
		s.forgetRetry(seq, m)
	}
	if b := m.batch; b != nil {
		s.unref(b, 1, b.sizeAt(s.place(b, seq))) // both inlined, for each ack
	} else {
		s.missing--
	}
	if s.table.noted > 0 {
		s.forgetNote(seq)
	}
	s.table.n--
	*m = message{}
}

// forgetRetry is what forget does to one that is not in its first attempt.
func (s *Share) forgetRetry(seq core.Seq, m *message) {
	if m.isRetry() {
		s.group.retryLimit().sum.ended++
	}
	s.stand(seq, m, -1)
	if m.phase >= leaving {
		s.tally(s.table.note(seq).transfer.to, m.phase, -1)
	}
}

// settle ends a message that has a phase.
func (s *Share) settle(seq core.Seq, m *message) {
	s.forget(seq, m)
	key := uint64(seq) >> chunkBits
	c := s.table.chunk(key)
	if c.live &^= 1 << (seq & chunkMask); c.live == 0 {
		s.table.free(key, c)
	}
	s.done.Ack(seq)
	s.change()
}

// settleUnseen ends a message that nobody was handed, and that is in no supply any more.
func (s *Share) settleUnseen(seq core.Seq) {
	s.done.Ack(seq)
	s.change()
}

// settleAnywhere settles a message that is not settled, whether it was handed out, waits in the supply or was not read.
func (s *Share) settleAnywhere(seq core.Seq) {
	if m := s.table.get(seq); m != nil {
		s.settle(seq, m)
		return
	}
	s.supply.drop(seq)
	s.settleUnseen(seq)
}

// current is the message of seq if attempt is its current, locked delivery, else nil.
func (s *Share) current(seq core.Seq, attempt uint16) *message {
	if m := s.table.get(seq); m != nil && m.phase == inFlight && m.attempts == attempt {
		return m
	}
	return nil
}

// Holder is the session that has the current, locked delivery of a message; EarlierSession if an earlier owner made it.
// Two deliveries may have the same attempt: one that was given back does not count, and a crash may forget a first one.
func (s *Share) Holder(seq core.Seq) (id SessionID, locked bool) {
	m := s.table.get(seq)
	if m == nil || m.phase != inFlight {
		return 0, false
	}
	return m.session, true
}

// Nack fails the current delivery of a message: it comes back after delay (at most core.MaxNackDelay), or if delay < 0
// after the group's backoff, which random in [0, 1) jitters. See judge for what follows. Text is copied. CodeStale
// unless attempt is the current, locked delivery.
func (s *Share) Nack(seq core.Seq, attempt uint16, delay time.Duration, text []byte, random float64, now time.Time) error {
	t := s.group.at(now)
	m := s.current(seq, attempt)
	if m == nil {
		return s.stale()
	}
	if delay < 0 {
		delay = s.group.spec.Backoff.Delay(int(attempt), random)
	}
	until := int64(0)
	if delay > 0 {
		until = t + int64(min(delay, core.MaxNackDelay))
	}
	s.group.counters.Nacked++
	s.group.nacked(m.session)
	s.noteFailure(seq, m, Nacked, text)
	s.failed(seq, m, until)
	s.wake()
	return nil
}

// Reject sends the message of the current delivery to its end (core.Exhausted) at once. CodeStale like Nack.
func (s *Share) Reject(seq core.Seq, attempt uint16, text []byte, now time.Time) error {
	s.group.at(now)
	m := s.current(seq, attempt)
	if m == nil {
		return s.stale()
	}
	s.group.counters.Rejected++
	s.noteFailure(seq, m, Rejected, text)
	s.failed(seq, m, 0)
	s.wake()
	return nil
}

// noteFailure notes how an attempt failed, and what a consumer said of it.
func (s *Share) noteFailure(seq core.Seq, m *message, f Failure, text []byte) {
	if len(text) > 0 || m.failure != NoFailure { // else there is no text
		s.setText(seq, clip(text, MaxReason))
	}
	m.failure = f
}

// Extend moves the end of the lock of the current delivery to now + d (d ≤ core.MaxLockTimeout), also earlier.
// CodeStale like Nack.
func (s *Share) Extend(seq core.Seq, attempt uint16, d time.Duration, now time.Time) error {
	t := s.group.at(now)
	m := s.current(seq, attempt)
	if m == nil {
		return s.stale()
	}
	due := t + int64(min(max(d, 0), core.MaxLockTimeout))
	if due != m.due {
		s.extend(seq, m)
		m.due = due
		s.change()
		s.group.wakeAt(s, seq, due)
	}
	return nil
}

// Return takes back current deliveries that no application saw, of a session or an earlier owner: they are ready again
// under the same attempt number. Refused ones (CodeStale) are appended to bad.
func (s *Share) Return(by SessionID, base core.Seq, count uint32, attempt uint16, now time.Time, bad []Refusal) []Refusal {
	s.group.at(now)
	if s.group.atMostOnce() { // it may not be handed out again
		return bad
	}
	if count > MaxSettleRun || base+core.Seq(count) < base {
		return refuse(bad, base, count)
	}
	end := base + core.Seq(count) // exclusive
	for seq := base; seq < end; {
		stop := chunkEnd(seq, end)
		if s.table.chunk(uint64(seq)>>chunkBits) == nil { // of nothing that is here
			bad = refuse(bad, seq, uint32(stop-seq))
			seq = stop
			continue
		}
		for ; seq < stop; seq++ {
			if m := s.current(seq, attempt); m != nil && attempt > 0 && (m.session == by || m.session == EarlierSession) {
				s.giveBack(seq, m)
			} else {
				bad = refuse(bad, seq, 1)
			}
		}
	}
	s.wake()
	return bad
}

// giveBack has a message in flight, which no application saw, ready again under the same attempt number.
func (s *Share) giveBack(seq core.Seq, m *message) {
	s.group.counters.Returned++
	s.endLock(seq)
	s.move(seq, m, none)
	m.attempts--
	s.capNotCounted(seq, m)
	s.change()
	switch {
	case m.attempts > 0 && s.exhausted(seq, m): // max deliveries was lowered meanwhile
		s.judge(seq, m, 0)
		return
	case s.needsIsolation(seq, m):
		s.setApart(seq, m)
	default:
		s.move(seq, m, ready)
		if m.batch != nil {
			s.queueReady(seq, m)
		}
	}
	m.session = 0
}

// chunkEnd is where the chunk of seq ends within seq … end-1. Seqs up to the highest there is overflow nothing.
func chunkEnd(seq, end core.Seq) core.Seq { return seq + min(end-seq, chunkLen-seq&chunkMask) }

// MaxNoteBytes bounds the bytes of texts and metadata that a share keeps; while the retry queue takes nothing it keeps
// them for long. Above it Replace refuses.
const MaxNoteBytes = 32 << 20

// errNotes is what a nack or a rejection gets that leaves metadata for which there is no room.
var errNotes = core.Errorf(core.CodeThrottled, "messages with new metadata wait for the retry queue, and more of them do not fit; try again later, or without metadata")

// Replace has the metadata of a message replaced with the nack, or the rejection, that follows. It is copied. CodeStale
// like Nack, CodeThrottled above MaxNoteBytes.
func (s *Share) Replace(seq core.Seq, attempt uint16, metadata []byte, now time.Time) error {
	s.group.at(now)
	switch {
	case s.current(seq, attempt) == nil:
		return s.stale()
	case len(metadata) > core.MaxMetadata:
		return core.Errorf(core.CodeTooLarge, "metadata has %d bytes; at most %d may be left with a message", len(metadata), core.MaxMetadata)
	case s.noteBytes+len(metadata)-len(s.metadataOf(seq)) > MaxNoteBytes:
		return errNotes
	}
	s.setMetadata(seq, bytes.Clone(metadata))
	return nil
}

// setText notes the text of a message.
func (s *Share) setText(seq core.Seq, text string) {
	if x := s.table.note(seq); x.text != text {
		s.noteBytes += len(text) - len(x.text)
		x.text = text
		s.table.setNote(seq, x)
	}
}

// setMetadata has metadata replace those of a message.
func (s *Share) setMetadata(seq core.Seq, metadata []byte) {
	x := s.transferOf(seq)
	s.noteBytes += len(metadata) - len(x.metadata)
	s.touch()
	x.metadata = metadata
}

// keepNote keeps a note of another share.
func (s *Share) keepNote(seq core.Seq, x note) {
	if x == (note{}) {
		return
	}
	s.table.setNote(seq, x)
	s.noteBytes += x.bytes()
}

// forgetNote forgets what is kept of a message beside the table.
func (s *Share) forgetNote(seq core.Seq) {
	x := s.table.note(seq)
	if x == (note{}) {
		return
	}
	s.noteBytes -= x.bytes()
	s.table.setNote(seq, note{})
}

// metadataOf are those that replace the message's own.
func (s *Share) metadataOf(seq core.Seq) []byte {
	if x := s.table.note(seq).transfer; x != nil {
		return x.metadata
	}
	return nil
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
