package dispatch

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

// A share of the retry queue's extents takes parked messages in, when their time has come, with the attempts that their records tell of. They
// are retries: their next attempts are counted durably first, a claim at a time as in a group that delivers at most once, and only while somebody
// takes messages. An append whose outcome was not known is repeated, so there may be two of one: the second one that comes is settled unseen.

const (
	// CopiesKnownFor is for how long a second copy of a parked message is known as such …
	CopiesKnownFor = 10 * time.Minute
	// copiesKnown … if no more than that many come meanwhile: some 4 MiB.
	copiesKnown = 32_768
)

// Returning makes s a share of the group's retry queue, before anything is offered to it.
func (s *Share) Returning() {
	s.returning = true
	s.supply = newDueSupply(s)
}

// IsReturning reports whether the share's messages were parked.
func (s *Share) IsReturning() bool { return s.returning }

// came notes that record i of a batch has come, and reports whether it is the first of its parking.
func (s *Share) came(b *batch, i int, seq core.Seq) (first bool) {
	if b.Past == nil || !s.returning { // whoever publishes may name an origin
		return true
	}
	if s.group.copies == nil {
		s.group.copies = new(copies)
	}
	return s.group.copies.fresh(b.Past[i], copyPlace(s.extent, seq), s.group.now)
}

// originOf is where a message was before it went to the retry queue first, as far as its record is read.
func (s *Share) originOf(seq core.Seq, m *message) core.Receipt {
	if s.returning && m.batch != nil {
		if at := m.batch.pastAt(s.place(m.batch, seq)).Origin; at.Seq > 0 {
			return at
		}
	}
	return core.Receipt{Extent: s.extent, Seq: seq}
}

// attemptsLeft is how many attempts a parked message has.
func (s *Share) attemptsLeft(past Past) int {
	most := s.group.spec.MaxDeliveries
	if most == core.UnlimitedDeliveries {
		return math.MaxInt
	}
	return most - int(past.here()-min(past.Excused, past.here()))
}

// goOn has a parked message go on where it left off.
func (s *Share) goOn(seq core.Seq, m *message, past Past) {
	m.attempts = past.here()
	m.failure = Nacked
	if past.Expired { // its last attempt is isolated
		m.failure = LockExpired
	}
	x := uncounted{attempts: min(past.Excused, m.attempts)}            // in place of those of before the share was rebuilt
	x.unsure = uint8(min(uint16(past.Unsure), x.attempts, mostUnsure)) // else no checkpoint could tell of it
	s.setUncounted(seq, x)
}

// copyPlace tells places apart, as far as need be: two that look the same only keep a copy.
func copyPlace(extent core.ExtentID, seq core.Seq) uint64 {
	return binary.LittleEndian.Uint64(extent.ID[8:]) ^ uint64(seq)*0x9e3779b97f4a7c15
}

// parted tells one parking of a message from all others.
type parted struct {
	origin   core.Receipt
	attempts uint16
	epoch    uint64
}

// copies are the parked messages that came lately, and where from. Two generations bound them: what is in neither came
// long ago.
type copies struct {
	now, before map[parted]uint64
	began       int64 // ns: the present generation
}

// fresh notes that a parked message came from a place, and reports whether it is the first of its parking, or came from there before.
func (c *copies) fresh(p Past, place uint64, now int64) bool {
	if p.Origin.Seq == 0 || p.Attempts == math.MaxUint16 { // attempts that are not counted any further do not tell one parking from the next
		return true
	}
	if c.now == nil || now-c.began > int64(CopiesKnownFor) || len(c.now) >= copiesKnown {
		c.now, c.before, c.began = make(map[parted]uint64), c.now, now
	}
	k := parted{p.Origin, p.Attempts, p.Epoch}
	first, known := c.now[k]
	if !known {
		first, known = c.before[k]
	}
	if known {
		return first == place
	}
	c.now[k] = place
	return true
}
