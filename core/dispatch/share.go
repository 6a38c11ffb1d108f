package dispatch

import (
	"unsafe"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// Share is a group's part of one extent.
//
// Every seq that was read is in exactly one of: done; the table, in one phase; or the supply.
//
//	table.n + supply.len() == read or restored, and not settled
//	count[p] == messages of phase p;  missing == messages of the table without bytes
type Share struct {
	Owner any // the handle of the share's owner; the rules do not look at it

	group  *Group
	extent core.ExtentID
	timers bool // see AddTimers
	gone   bool
	inTurn [turnKinds]bool
	inLine bool // of those that claim, see claimLine

	listed, staying bool // see TakeChanged
	cut             bool // the last checkpoint was cut short

	done      acklevel.Window
	next      core.Seq // everything below was read, or is done
	supply    supply
	table     table
	missing   int
	top       core.Seq // highest restored message: below it the table may hold what is not yet delivered here
	count     [phases]int32
	repeats   int32                    // retries in flight
	transfers *[Destinations]transfers // nil until a message leaves, or has its metadata replaced
	noteBytes int                      // bytes of texts and metadata in notes
	weight    *weight                  // see crowded; nil: nothing has failed, or all is settled
	nacked    []core.Seq               // messages that were nacked and wait, in the order in which they began to; others are skipped

	held      []*batch
	heldBytes int
	squeezeAt int
	offers    uint64              // batches admitted
	lent      map[core.Seq]*batch // of messages yielded by TakeTransfers and not answered
	withheld  map[core.Seq]uint64 // which call of Withhold was the last for each; nil: none is
	withholds uint64

	retries   queue[core.Seq] // phase ready, with bytes; others are skipped
	firsts    queue[core.Seq] // the same, of what no application has seen
	pending   queue[saving]   // phase unsaved; others are skipped
	token     uint64          // of the last checkpoint
	saved     uint64          // token of the last one that is durable
	covers    covers          // rows of other owners that checkpoints cover
	changed   bool
	final     bool // the last checkpoint was
	full      bool
	merged    bool // see Merged
	returning bool // see Returning
	chained   bool // see Wait
	waits     bool
	rate      int32
	unseen    int32 // messages in a phase in which others wait for their next attempt, that no application has seen
	paced     int64 // ns: the rate lets no message go before
	alarm     int64 // ns: when to look again; 0: no need
}

// Extent is what the share reads.
func (s *Share) Extent() core.ExtentID { return s.extent }

// ReadFrom is the first seq the share lacks: where to (re)open the reader. It skips what is known to be done. Of a
// timer extent it is the first one that is not done: see Known.
func (s *Share) ReadFrom() core.Seq { return s.done.NextUndone(s.next) }

// Lacks reports whether messages that were restored from a checkpoint are not read yet.
func (s *Share) Lacks() bool { return s.missing > 0 }

// outstanding is how many messages were read, or restored, and not settled.
func (s *Share) outstanding() int { return s.table.n + s.supply.len() }

// WantsMore reports whether the share takes another batch: false at a limit. A share that is full still reads the
// messages that it resumed from a checkpoint: nothing else makes room in the next ones.
func (s *Share) WantsMore() bool {
	return !s.gone && (!s.full || s.missing > 0) && !s.AtLimit()
}

// AtLimit reports whether nothing more is read, since as much as may be is outstanding: in messages, or in bytes.
func (s *Share) AtLimit() bool {
	return s.outstanding()-s.missing >= MaxOutstanding || s.heldBytes >= MaxOutstandingBytes
}

// HasReady reports whether the share has messages to hand out. It does not ask whether the group holds first deliveries
// back, or whether an earlier extent of the chain goes first.
func (s *Share) HasReady() bool {
	return s.firsts.len() > 0 || s.retries.len() > 0 || s.supply.ready() && s.roomForFirsts() > 0
}

// ReadCredit is how many bytes of batches the share takes now. The reader subtracts what it asked for before and has
// not offered yet. 0 when WantsMore is false.
func (s *Share) ReadCredit() int {
	if !s.WantsMore() {
		return 0
	}
	const least = 64 << 10 // so that small records are not asked for one by one
	room := MaxOutstandingBytes - s.heldBytes
	if n := s.outstanding() - s.missing; n > MaxOutstanding/2 { // the number will run out first: go by their mean size
		room = min(room, max(least, s.heldBytes/n*(MaxOutstanding-n)))
	}
	return room
}

// move changes a message's phase.
func (s *Share) move(seq core.Seq, m *message, to phase) {
	s.stand(seq, m, -1)
	m.phase = to
	s.stand(seq, m, 1)
}

// stand counts n more messages in the phase of one: it and those after it in its batch, or with n -1 one less.
func (s *Share) stand(seq core.Seq, m *message, n int) {
	s.count[m.phase] += int32(n)
	if m.attempts == 0 && m.phase.waitsAgain() {
		s.unseen += int32(n)
	}
	switch {
	case m.phase == inFlight:
		s.flying(m, n)
	case s.isClaimed(m):
		s.countClaims(seq, m, n)
	}
}

// flying counts a message that is in flight from now on, or with n -1 is not any more.
func (s *Share) flying(m *message, n int) {
	s.group.inFlight += int32(n)
	s.group.sessions.holds(m.session, n)
	if m.attempts > 1 {
		s.repeats += int32(n)
	} else {
		s.group.firsts += int32(n)
	}
}

// of is how many messages are in one of the phases.
func (s *Share) of(in ...phase) (n int) {
	for _, p := range in {
		n += int(s.count[p])
	}
	return n
}

// hasRoom reports whether a message of the supply could be begun, as far as the share is concerned.
func (s *Share) hasRoom() bool {
	return s.supply.ready() && !s.full && !s.waits && s.roomForFirsts() > 0
}

// roomForFirsts is how many more messages may be begun. Restored messages that are not read yet do not count. But the
// next owner restores them all, so a share holds twice MaxOutstanding with them at most.
func (s *Share) roomForFirsts() int {
	return min(MaxOutstanding+s.missing, 2*MaxOutstanding) - s.table.n
}

// Wait holds back first deliveries while on is true; redeliveries go on. So the shares of a chain of extents begin one
// after another, and within each of them redeliveries come before first deliveries.
func (s *Share) Wait(on bool) {
	s.chained = true
	if s.waits == on {
		return
	}
	s.waits = on
	s.wake()
}

// Begun reports whether every message up to last was delivered or is settled.
func (s *Share) Begun(last core.Seq) bool { return s.supply.len() == 0 && s.ReadFrom() > last }

// rest gives back the memory of busier times, when nothing is outstanding.
func (s *Share) rest() {
	if s.outstanding() > 0 {
		return
	}
	s.supply.rest()
	s.retries.trim()
	s.firsts.trim()
	s.pending.trim()
	s.table = newTable()
	s.noteBytes, s.transfers, s.weight = 0, nil, nil
	s.nacked, s.unseen = nil, 0
}

// Frontier is the ack level: every seq up to it is settled.
func (s *Share) Frontier() core.Seq { return s.done.Frontier() }

// Consumed is how many messages are settled.
func (s *Share) Consumed() uint64 { return uint64(s.done.Frontier()) + s.done.Above() }

// Done reports whether the group has consumed an extent whose last seq is last.
func (s *Share) Done(last core.Seq) bool { return s.done.Frontier() >= last }

// Unsaved is how many retries wait for a checkpoint to hold their count. While it is not 0, save a checkpoint soon. It
// is 0 while nobody takes messages, and after a checkpoint that was cut short: the next one may have no more room.
func (s *Share) Unsaved() int {
	if bool(s.group.paused) || s.cut {
		return 0
	}
	return s.of(unsaved)
}

// Changed reports whether the last checkpoint that was Saved lacks anything: whether one is due within the second.
func (s *Share) Changed() bool { return s.changed || s.saved < s.token }

// Outdated says that no checkpoint has all of the state that the share began with.
func (s *Share) Outdated() { s.change() }

// Full reports whether checkpoints have room only for the messages that have failed. The share then neither reads
// messages nor delivers any for the first time, until a checkpoint has room again.
func (s *Share) Full() bool { return s.full }

// NoteBytes is how many bytes of texts and metadata the share keeps.
func (s *Share) NoteBytes() int { return s.noteBytes }

// Held is how many bytes of memory the share holds: of batches, of notes, and of chunks of its table.
func (s *Share) Held() int {
	return s.heldBytes + s.noteBytes + len(s.table.chunks)*int(unsafe.Sizeof(chunk{}))
}

// HeldBatches is how much of that are batches.
func (s *Share) HeldBatches() int { return s.heldBytes }
