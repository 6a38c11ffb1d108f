package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// A supply has the messages of a share that were read and never handed out. They have no phase, and no place in the
// share's table: mostly there are many of them, and all that is kept of one is where its record is. A message is chosen
// first, and then taken out: it is handed out, or claimed. See logSupply and dueSupply for the order in which messages
// are chosen.
type supply interface {
	// add takes the messages of a batch in that are new to the share, and gives restored messages their bytes.
	add(b *batch)
	// len is how many messages there are.
	len() int
	// ready reports whether a message is old enough, and not too old, to be chosen.
	ready() bool
	// late is how many messages are not: by the group's delay, or because it is decided whether they are cancelled.
	late() (delayed, withheld int)
	// oldest is since when the first of the others could be handed out, unix µs; 0: there are none.
	oldest() int64
	// look applies the rules of age to the messages, and answers when it has to be done again, ns; 0: no need.
	look() int64

	// choose names the messages to be handed out next: up to most in a row of one batch, while their bytes are within
	// the turn's and the budget's. The count is 0 when there is none, or when some were settled instead: choose again.
	choose(most, bytes int, b *budget) chosen
	// begin takes out what was chosen. Each message has its entry in the table from now on: as, in the phase that it
	// names.
	begin(c chosen, as message)
	// drop takes a message out that is settled, and reports whether it was here.
	drop(seq core.Seq) bool

	// find is where the record of a message is; no batch: it is not here.
	find(seq core.Seq) (b *batch, i int)
	// until is when a message may be handed out that was found, ns; 0: now.
	until(seq core.Seq) int64
	// forgot reports whether a message that was found waits for nothing: a defect.
	forgot(seq core.Seq) bool
	// rest gives the memory of busier times back.
	rest()
}

// chosen names messages that are to be handed out next, or claimed: count in a row of a batch, size bytes in all.
type chosen struct {
	batch *batch
	first core.Seq
	count int
	size  int
	retry bool // it has an entry in the table, with the attempts so far
}

// budget is what may be handed out yet.
type budget struct {
	messages int
	bytes    int
	largest  int  // one message may be as large, as the only one
	stopped  bool // the next message was larger than the bytes left …
	tooLarge int  // … by its size
}

// fits reports whether a message of size may be handed out next.
func (b *budget) fits(size int) bool {
	if size <= b.bytes {
		return true
	}
	if size <= b.largest {
		b.bytes = size // the only one: nothing is left after it
		return true
	}
	b.stopped, b.tooLarge = true, size
	return false
}

func (b *budget) spend(messages, bytes int) {
	b.messages -= messages
	b.bytes -= bytes
	b.largest = 0
}

// The rules of age hold for what was never handed out, and was not merged into the group: the group's delay and its
// skipping of older messages. A message that expires is not handed out after that, for the first time or again.

// look applies the rules of age to what was never handed out, and sets the deadline at which that has to be done again.
func (s *Share) look() {
	alarm := s.supply.look()
	if alarm == s.alarm {
		return
	}
	if s.alarm = alarm; alarm > 0 {
		s.group.wakeAt(s, 0, alarm)
	}
}

// expired reports whether the message of record i of a batch has expired.
func (s *Share) expired(b *batch, i int) bool {
	if b.Expire == nil {
		return false
	}
	at := b.Expire[i]
	return at > 0 && at <= s.group.now/int64(time.Millisecond)
}

// expire ends a message that has expired and has a phase, but is not in flight.
func (s *Share) expire(seq core.Seq, m *message) {
	s.group.counters.Expired++
	if s.group.spec.Expired != core.ExpiredDLQ {
		s.settle(seq, m)
		return
	}
	m.failure = Expired
	s.change()
	s.leave(seq, m, DeadLetterQueue, 0)
}

// visibleAt is when the group's delay lets the messages of a batch go, ns.
func (s *Share) visibleAt(b *batch) int64 { return b.Enqueued*1000 + int64(s.group.spec.Delay) }

// KeepsBack reports whether the group's delay holds back a message that was enqueued then (unix µs), and that is not
// read here.
func (s *Share) KeepsBack(enqueued int64, now time.Time) bool {
	return !s.merged && enqueued*1000+int64(s.group.spec.Delay) > now.UnixNano()
}

// KeptBack reports whether the group's delay holds back the message that was read last, and so all that are not read
// yet.
func (s *Share) KeptBack() bool {
	l, ok := s.supply.(*logSupply)
	return ok && s.group.spec.Delay > 0 && l.n > 0 && !s.merged && s.visibleAt(*l.batches.back()) > s.group.now
}

// complete gives a restored message its bytes.
func (s *Share) complete(seq core.Seq, m *message, b *batch) {
	s.stand(seq, m, -1)
	m.batch = b
	s.stand(seq, m, 1)
	s.missing--
	switch m.phase {
	case unclaimed:
		s.group.awaitCredit(s, seq)
	case ready:
		s.queueReady(seq, m)
	case isolated:
		s.waitAlone(seq)
	case transferring:
		s.read(seq)
	}
}
