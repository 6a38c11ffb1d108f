package dispatch

import (
	"bytes"
	"time"

	"github.com/columbamq/columba/core"
)

// A message that has to wait long is parked: appended to the retry queue of its group, and then settled where it was. So it pins no extent
// and costs no memory.
//
//	inFlight ── Nack ─▶ parking ── Checkpoint, Saved ─▶ leaving ── TakeParking ─▶ lodging ── Parked ─▶ done
//	                                                      ▲                         │ ParkFailed
//	                                                      └──── Tick at due ── stranded ── its time has come, and it is here only ─▶ unsaved
//
// A checkpoint has room for so many departures only; those that it does not tell of wait for a later one, and are handed out from here if their time comes
// before.
//
// That it leaves is durable before anything is appended: an owner that takes over appends it again, and does not hand out a second one of it. From
// the first append on, an ack or a nack of the delivery that was is stale.

const (
	// ParkAfter is the longest wait in memory; a message that has to wait longer is parked.
	ParkAfter = 30 * time.Second
	// parkPatience is how long a message stays while it is not the only one that failed and nothing has succeeded since: when the group turns out to
	// be stalled, the attempt does not count, and what is parked says so.
	parkPatience = 2 * time.Second
	// departAtOnce is how many messages of a share are under way to the retry queue.
	departAtOnce = 2048
)

// departure is what is kept of a message that is to be parked, or whose metadata are to be replaced.
type departure struct {
	due      int64  // ns: when it may be handed out again
	metadata []byte // in place of its own; nil: it keeps those
	told     uint64 // token of the first checkpoint that says that it leaves; 0: none does
	failed   int64  // ns: when the attempt did after which it is to be parked
	away     bool   // an append of it may have come to pass
}

// Parking is a message on its way to the retry queue.
type Parking struct {
	Share    *Share
	Of       Source
	Seq      core.Seq
	Attempts uint16 // here: see Past
	Excused  uint16 // of these
	Failure  Failure
	Text     string
	Metadata []byte // in place of the record's, nil: it keeps those; not to be changed
	Session  SessionID
	Enqueued int64     // unix µs
	Due      time.Time // not before
	Again    bool      // an append of it may have come to pass: look before it is repeated
	Record   []byte    // encoded; as it was read; valid until Parked or ParkFailed of this message
}

// parked is what a group knows of parked messages. Most groups have none.
type parked struct {
	leaving queue[deadRef] // what TakeParking yields next, if it still leaves
	copies  copies
}

func (g *Group) parks() *parked {
	if g.parked == nil {
		g.parked = new(parked)
	}
	return g.parked
}

// Replace has the metadata of a message replaced with the nack, or the rejection, that follows. It is copied. CodeStale like Nack, CodeThrottled above MaxNoted.
func (s *Share) Replace(seq core.Seq, attempt uint16, metadata []byte, now time.Time) error {
	s.group.at(now)
	switch {
	case s.current(seq, attempt) == nil:
		return s.stale()
	case len(metadata) > core.MaxMetadata:
		return core.Errorf(core.CodeTooLarge, "metadata has %d bytes; at most %d may be left with a message", len(metadata), core.MaxMetadata)
	case s.noted+len(metadata)-len(s.metadataOf(seq)) > MaxNoted:
		return errNoted
	}
	s.keepMetadata(seq, bytes.Clone(metadata))
	return nil
}

// depart is what is kept of a message that is to be parked.
func (s *Share) depart(seq core.Seq) *departure {
	if s.departures == nil {
		s.departures = make(map[core.Seq]*departure)
	}
	d := s.departures[seq]
	if d == nil {
		d = &departure{}
		s.departures[seq] = d
	}
	return d
}

// leaves reports whether a message that failed, and may be handed out again at until (ns, 0: at once), is to be parked.
func (s *Share) leaves(seq core.Seq, until int64) bool {
	d := s.departures[seq]
	return until-s.group.now > int64(ParkAfter) || d != nil && d.metadata != nil
}

// metadataOf are those that replace the message's own.
func (s *Share) metadataOf(seq core.Seq) []byte {
	if d := s.departures[seq]; d != nil {
		return d.metadata
	}
	return nil
}

// park has a message wait for the checkpoint that says that it leaves.
func (s *Share) park(seq core.Seq, m *message, until int64) {
	d := s.depart(seq)
	d.due, d.told, d.failed = max(until, s.group.now), 0, s.group.now
	m.due = d.due
	s.move(m, parking)
	if s.parting == nil {
		s.parting = new(queue[core.Seq])
	}
	s.parting.push(seq)
	if s.stays(d) {
		m.due = min(m.due, d.failed+int64(parkPatience))
	}
	if m.due > s.group.now || s.mayStay(d) { // else it only waits for the checkpoint
		s.group.wakeAt(s, seq, m.due)
	}
}

// stays reports whether a message waits to be parked until it is known whether its attempt counts.
func (s *Share) stays(d *departure) bool {
	return s.group.streak.gathers() && s.group.now < d.failed+int64(parkPatience) && d.due > d.failed+int64(parkPatience)
}

// Parting is how many messages wait for a checkpoint that says that they leave. While it is not 0, save a checkpoint soon.
func (s *Share) Parting() int {
	n := s.of(parking)
	if n > 0 && !s.mayPart(1) {
		return 0
	}
	return n
}

// PartingMany reports whether a checkpoint taken now could tell of so many more departures that it is worth its cost at once: what is parked in masses does
// not wait for checkpoints, and those are no more than its number asks for.
func (s *Share) PartingMany() bool {
	waiting := s.of(parking)
	return waiting >= departAtOnce/2 && min(waiting, departAtOnce-s.of(leaving, lodging, stranded))-s.told >= departAtOnce/2 && s.mayPart(s.told+departAtOnce/2)
}

// mayPart reports whether none of the first n messages that wait for such a checkpoint stays until it is known whether its attempt counts.
func (s *Share) mayPart(n int) bool {
	if !s.group.streak.gathers() {
		return true
	}
	for _, seq := range s.partingSeqs() { // in the order in which they failed
		if m := s.table.get(seq); m != nil && m.phase == parking {
			if s.stays(s.departures[seq]) {
				return false
			}
			if n--; n == 0 {
				break
			}
		}
	}
	return true
}

// partingSeqs are the messages that wait for that, and some that do not any more.
func (s *Share) partingSeqs() []core.Seq {
	if s.parting == nil {
		return nil
	}
	return s.parting.all()
}

// tell chooses the departures that the next checkpoint tells of.
func (s *Share) tell() {
	room := departAtOnce - s.of(leaving, lodging, stranded)
	s.told = 0
	for _, seq := range s.partingSeqs() {
		if s.told >= room {
			return
		}
		if m := s.table.get(seq); m != nil && m.phase == parking {
			d := s.departures[seq]
			switch {
			case d.told > 0:
			case s.stays(d):
				return
			default:
				d.told = s.token
			}
			s.told++
		}
	}
}

// untell takes back what a checkpoint was to tell that had no room for all: later ones may not tell of it either, and there is no hurry with the next.
func (s *Share) untell() {
	s.told = departAtOnce
	for _, seq := range s.partingSeqs() {
		if m := s.table.get(seq); m != nil && m.phase == parking {
			s.departures[seq].told = 0
		}
	}
}

// departingEntry is how a checkpoint tells of a message that leaves.
func (s *Share) departingEntry(seq core.Seq, m *message, e *entry) {
	d := s.departures[seq]
	if e.kind, e.due = departing, milli(d.due); m.phase == parking && d.told == 0 {
		e.kind = waiting
	}
}

// leave queues a message for TakeParking.
func (s *Share) leave(seq core.Seq, m *message) {
	s.move(m, leaving)
	if m.batch != nil {
		s.group.parks().leaving.push(deadRef{s, seq})
	}
}

// isAway reports whether a message that leaves may be in the retry queue already.
func (s *Share) isAway(seq core.Seq, m *message) bool {
	return m.phase == lodging || m.phase >= parking && s.departures[seq].away
}

// savedParting lets messages go whose leaving is durable.
func (s *Share) savedParting(token uint64) {
	for s.parting != nil && s.parting.len() > 0 {
		seq := *s.parting.front()
		m := s.table.get(seq)
		if m != nil && m.phase == parking {
			if told := s.departures[seq].told; told == 0 || told > token {
				return
			}
			s.leave(seq, m)
			s.told = max(s.told-1, 0)
		}
		s.parting.pop()
	}
}

// TakeParking appends up to most messages (≥ 0) that are to be appended to the retry queue. Each is yielded once; answer with Parked or
// ParkFailed.
func (g *Group) TakeParking(most int, out []Parking) []Parking {
	for n := 0; n < most && g.parked != nil && g.parked.leaving.len() > 0; {
		ref := g.parked.leaving.pop()
		s, seq := ref.share, ref.seq
		m := s.table.get(seq)
		if m == nil || m.phase != leaving || m.batch == nil {
			continue
		}
		d := s.departures[seq]
		if !d.away && s.lapsed(m.batch, seq) { // one that may be in the retry queue ends there
			s.lapse(seq, m)
			continue
		}
		s.move(m, lodging)
		s.lend(seq, m.batch)
		out = append(out, Parking{
			Share: s, Of: s.source(), Seq: seq, Attempts: m.attempts, Excused: uint16(s.excuses(seq)), Failure: m.failure, Text: s.texts[seq], Metadata: d.metadata,
			Session: m.session, Enqueued: s.enqueued(m.batch, seq), Due: g.instant(d.due), Again: d.away, Record: s.record(m.batch, seq),
		})
		n++
	}
	return out
}

// Parked settles a message that TakeParking yielded: the retry queue has it durably.
func (s *Share) Parked(seq core.Seq, now time.Time) {
	s.group.at(now)
	s.takeBack(seq)
	if m := s.table.get(seq); m != nil && m.phase == lodging {
		s.group.counters.Parked++
		s.settle(seq, m)
		s.wake()
	}
}

// ParkFailed keeps a message that TakeParking yielded. It is yielded again at retryAt, until the retry queue has it; when its time comes before, it is
// handed out from here. That is out of the question once the retry queue may have it, as far as is known.
func (s *Share) ParkFailed(seq core.Seq, unknown bool, retryAt, now time.Time) {
	s.group.at(now)
	s.takeBack(seq)
	m := s.table.get(seq)
	if m == nil || m.phase != lodging {
		return
	}
	d := s.departures[seq]
	d.away = d.away || unknown
	m.due = s.group.nanos(retryAt)
	if s.mayStay(d) {
		m.due = min(m.due, d.due)
	}
	s.move(m, stranded)
	s.group.wakeAt(s, seq, m.due)
}

// mayStay reports whether a message that leaves can as well be handed out from here.
func (s *Share) mayStay(d *departure) bool { return !d.away && d.metadata == nil }

// dueParting has a message that has not left yet handed out from here when its time has come, or tries once more to park it.
func (s *Share) dueParting(seq core.Seq, m *message) {
	switch d := s.departures[seq]; {
	case s.mayStay(d) && d.due <= s.group.now:
		s.forgetDeparture(seq)
		s.retry(seq, m)
	case m.phase == stranded:
		s.leave(seq, m)
	case m.due < d.due: // it has stayed for long enough
		m.due = d.due
		s.group.wakeAt(s, seq, m.due)
	}
}

// replacePark is replace for messages that leave.
func (s *Share) replacePark(seq core.Seq, m *message, was phase) {
	switch was {
	case stranded:
		s.move(m, stranded)
		s.group.wakeAt(s, seq, m.due)
	case parking:
		s.park(seq, m, s.departures[seq].due)
	case lodging:
		if s.lent[seq] != nil {
			s.move(m, lodging)
			return
		}
		s.departures[seq].away = true
		s.leave(seq, m)
	default:
		s.leave(seq, m)
	}
}

func (s *Share) source() Source {
	return Source{Extent: s.extent, Returning: s.returning, Merged: s.merged}
}
