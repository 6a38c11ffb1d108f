package session

import (
	"fmt"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/lease"
)

// Slots is how many controllers can hold a session lease at a time.
const Slots = 16

// memberFor is for how long a controller counts as a member whose row is seen unchanged: it believes that it holds its
// lease for less.
const memberFor = lease.TTL + 2*time.Second

// slotName is the name of the lease of a slot.
func slotName(slot int) string { return fmt.Sprint("controller/", slot) }

// slotKeys are the keys of the leases of all slots, slotOf tells the slot of each.
var slotKeys, slotOf = func() ([]metadata.Key, map[metadata.Key]int) {
	keys, of := make([]metadata.Key, Slots), make(map[metadata.Key]int, Slots)
	for i := range keys {
		keys[i] = metadata.LeaseKey(slotName(i))
		of[keys[i]] = i
	}
	return keys, of
}()

// members is what one controller knows of the session leases. It has no clock and does no I/O.
//
// Another run is a member from when its row was seen, until the row has been seen unchanged for memberFor, or released:
//
//	        first seen since this session began
//	unknown ───────────────────────────────────────▶ member that knows this session
//	   └──seen before──▶ member ──acknowledges it─────────▲
//
// A run that is first seen since the session began has taken its lease since. It has read all rows after that, and so
// knows this session.
type members struct {
	self  core.RunID
	host  core.HostID
	slots [Slots]slot
	term  uint64    // of this run's session; 0: it has none
	began time.Time // the session
	know  map[core.RunID]struct{}
}

// slot is the row of a slot as it was seen last.
type slot struct {
	lease.Record
	sighting lease.Sighting
	asked    time.Time // before the last answer was asked for
	damaged  bool      // the row cannot be decoded: nobody takes or renews the lease
	renewed  bool      // its run has changed the row since it was seen here first
	reach
}

// lives reports whether the run in the slot may hold its lease.
func (s *slot) lives() bool { return !s.Run.IsZero() && s.asked.Sub(s.sighting.Since()) < memberFor }

func (s *slot) see(asked time.Time) {
	if asked.After(s.asked) {
		s.asked = asked
	}
}

// answers begins to take an answer about all slots. One without a row is seen unchanged: a holder whose row was deleted
// renews it no more.
func (m *members) answers(asked time.Time) {
	for i := range m.slots {
		m.slots[i].damaged = false
		m.slots[i].see(asked)
	}
}

// sees takes an answer about a slot.
func (m *members) sees(i int, r lease.Record, v metadata.Version, answered time.Time) {
	s := &m.slots[i]
	if !s.sighting.News(v) {
		return
	}
	s.sighting.See(v, answered)
	s.renewed = r.Run == s.Run
	if r.Run != s.Run {
		s.reach = reach{}
	}
	if r.Run != s.Run && m.term > 0 {
		delete(m.know, s.Run)
		m.know[r.Run] = struct{}{}
	}
	s.Record = r
}

// seesDamage takes an answer about a slot whose row cannot be decoded. It may hide a renewal by the run that was seen
// last, which holds its lease until that has ended, but it is the last one: a change needs the row as it was.
func (m *members) seesDamage(i int, v metadata.Version, answered time.Time) {
	s := &m.slots[i]
	s.damaged = true
	s.sighting.See(v, answered)
}

// begin a session. All rows were asked for and seen after its lease was taken.
func (m *members) begin(term uint64, now time.Time) {
	m.term, m.began, m.know = term, now, make(map[core.RunID]struct{})
}

// end the session.
func (m *members) end() { m.term, m.know = 0, nil }

// knows notes that a run has acknowledged a session of this one.
func (m *members) knows(run core.RunID, term uint64) {
	if term == m.term && term > 0 {
		m.know[run] = struct{}{}
	}
}

// others are the members besides this run, and those of them that do not know its session.
func (m *members) others() (all, ignorant []lease.Record) {
	for i := range m.slots {
		s := &m.slots[i]
		if s.Run == m.self || !s.lives() {
			continue
		}
		all = append(all, s.Record)
		if _, ok := m.know[s.Run]; !ok {
			ignorant = append(ignorant, s.Record)
		}
	}
	return all, ignorant
}

// term of the session that a run holds, as far as it was seen.
func (m *members) termOf(run core.RunID) (term uint64, ok bool) {
	for i := range m.slots {
		if s := &m.slots[i]; s.Run == run && s.lives() {
			term, ok = max(term, s.Term), true
		}
	}
	return term, ok
}

// holds reports whether the rows show the lease that a run says it holds, as it is or renewed since.
func (m *members) holds(run core.RunID, h Holding) bool {
	for i := range m.slots {
		if s := &m.slots[i]; s.Run == run && s.Term >= h.Term && s.Counter >= h.Counter {
			return true
		}
	}
	return false
}

// renews reports whether a run has renewed its lease while this controller looked, and may still hold it. A row that
// was copied stays as it is.
func (m *members) renews(run core.RunID) bool {
	for i := range m.slots {
		if s := &m.slots[i]; s.Run == run && s.renewed && s.lives() {
			return true
		}
	}
	return false
}

// damaged reports whether a row cannot be decoded: it may be the one that is looked for.
func (m *members) damaged() bool {
	for i := range m.slots {
		if m.slots[i].damaged {
			return true
		}
	}
	return false
}

// choose a slot to contend for: the one that the host had last, else a free one, in an order that differs by the host,
// else the one whose holder has been silent for longest. full: all are other hosts', but for damaged ones.
func (m *members) choose(self core.HostID, first int) (best int, full bool) {
	rank := func(i int) int {
		switch s := &m.slots[i]; {
		case s.damaged:
			return 3
		case s.Owner == self:
			return 0
		case !s.lives():
			return 1
		}
		return 2
	}
	best = first % Slots
	for n := range Slots {
		i := (first + n) % Slots
		switch a, b := rank(i), rank(best); {
		case a < b, a == b && a == 2 && m.slots[i].sighting.Since().Before(m.slots[best].sighting.Since()):
			best = i
		}
	}
	return best, rank(best) >= 2
}
