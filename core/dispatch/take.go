package dispatch

import (
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

// handout is one Take under way, for one session: messages are chosen, and what was chosen is handed out.
type handout struct {
	budget
	session SessionID
	due     int64
	taken   int // bytes
	runs    []Run
	last    *batch // of the last run made here …
	end     int    // … and the index behind it
}

// Ready reports whether Take has something to hand out.
func (g *Group) Ready() bool {
	if g.admit(groupScope, 1) == 0 {
		return false
	}
	g.holdFirsts()
	return g.isolatedReady() || g.turns.ready() || g.mergedTurns.ready()
}

// Waiting is a lower bound of how many first deliveries there are to hand out: those of next, the share whose turn is
// next. In a group with a delay, and when there is no such share, it is 0, and next is nil. It takes no walk.
func (g *Group) Waiting() (n int, next *Share) {
	if g.turns == nil || !g.turns.firstsReady() || g.spec.Delay > 0 {
		return 0, nil
	}
	s := *g.turns.waiting[firstTurn].front()
	n = s.firsts.len()
	if s.mayBegin() {
		delayed, withheld := s.supply.late()
		n += min(s.supply.len()-delayed-withheld, s.roomForFirsts())
	}
	return n, s
}

// TooLarge is the size of the message that the last Take had no room for, in bytes; 0 while there is none.
func (g *Group) TooLarge() int {
	if g.tooLarge == 0 || !g.Ready() {
		return 0
	}
	return int(g.tooLarge)
}

// Take hands out what the credit allows and appends it to runs: shares in turn, retries and first deliveries mixed,
// messages contiguous in a batch as one run. Each is locked until now + lock timeout. Attempts count here.
func (g *Group) Take(session SessionID, credit Credit, now time.Time, runs []Run) []Run {
	now64 := g.at(now)
	g.settleGiven()
	most := g.admit(scopeOf(session), credit.Messages)
	if g.taking == nil {
		g.taking = new(handout)
	}
	h := g.taking
	*h = handout{
		budget:  budget{messages: most, bytes: credit.Bytes, largest: credit.Largest},
		session: session, due: now64 + int64(g.spec.LockTimeout), runs: runs,
	}
	for alone := g.takeAlone(h); !alone && h.messages > 0 && !h.stopped; {
		s, kind := g.nextInTurn()
		if s == nil {
			break
		}
		left := h.messages
		s.take(h, kind)
		s.turns().handed(kind, left-h.messages)
		g.countMerged(s, left-h.messages)
		s.wake()
	}
	g.tooLarge = 0
	if h.stopped {
		g.tooLarge = int32(min(h.tooLarge, math.MaxInt32))
	}
	runs = h.runs
	g.gave(session, most-h.messages)
	g.spend(most-h.messages, h.taken)
	*h = handout{} // it keeps neither batches nor the caller's runs
	return runs
}

// take hands out one turn's worth.
func (s *Share) take(h *handout, kind turn) {
	s.look()
	waiting := &s.firsts
	if kind == retryTurn {
		waiting = &s.retries
	}
	left := s.group.turnOf(s, kind, h.messages)
	for left > 0 {
		c := s.chooseReady(waiting, &h.budget)
		if c.count == 0 {
			break
		}
		s.handOut(h, c)
		left--
	}
	for bytes := turnBytes; kind == firstTurn && left > 0 && bytes > 0 && !h.stopped && s.mayBegin(); s.look() {
		if c := s.supply.choose(min(left, s.roomForFirsts()), bytes, &h.budget); c.count > 0 {
			s.handOut(h, c)
			left -= c.count
			bytes -= c.size
		}
	}
}

// chooseReady takes the next message out of a queue of those in phase ready: their next attempts are counted durably.
func (s *Share) chooseReady(waiting *queue[core.Seq], b *budget) chosen {
	for waiting.len() > 0 {
		seq := *waiting.front()
		m := s.table.get(seq)
		if m == nil || m.phase != ready || m.batch == nil {
			waiting.pop()
			continue
		}
		i := s.place(m.batch, seq)
		if s.expired(m.batch, i) {
			waiting.pop()
			s.expire(seq, m)
			continue
		}
		c := chosen{batch: m.batch, first: seq, count: 1, size: m.batch.sizeAt(i), retry: true}
		if !b.fits(c.size) {
			return chosen{}
		}
		waiting.pop()
		return c
	}
	return chosen{}
}

// handOut hands out what was chosen: locks and numbers of attempts begin here.
func (s *Share) handOut(h *handout, c chosen) {
	attempt := uint16(1)
	if c.retry {
		attempt = s.again(h, c.first)
	} else {
		s.supply.begin(c, message{due: h.due, session: h.session, attempts: 1, phase: inFlight})
	}
	s.handed(h, c, attempt)
}

// again begins the next attempt of a message, and answers its number.
func (s *Share) again(h *handout, seq core.Seq) uint16 {
	m := s.table.get(seq)
	s.move(seq, m, none) // the counts of its phase go by its attempts
	if m.attempts < math.MaxUint16 {
		m.attempts++
	}
	if m.attempts > 1 {
		s.group.counters.Redelivered++
	}
	m.session, m.due = h.session, h.due
	if s.group.atMostOnce() {
		s.move(seq, m, handed)
		s.group.given = append(s.group.given, messageRef{s, seq})
	} else {
		s.move(seq, m, inFlight)
	}
	return m.attempts
}

// handed notes a run in flight, in a row in its batch, joined to the one before where it goes on from it.
func (s *Share) handed(h *handout, c chosen, attempt uint16) {
	b, base, count := c.batch, c.first, uint32(c.count)
	i := s.place(b, base)
	enqueued := b.enqueuedAt(i)
	bytes := b.Bytes[b.Offsets[i]:b.Offsets[i+c.count]]
	h.spend(c.count, c.size)
	h.taken += c.size
	s.change()
	s.group.counters.Delivered += uint64(count)
	if !s.group.atMostOnce() {
		s.group.lockRun(s, base, count, attempt, h.due)
	}
	follows := h.last == b && h.end == i
	h.last, h.end = b, i+int(count)
	if n := len(h.runs); n > 0 && follows {
		if r := &h.runs[n-1]; r.Attempt == attempt && r.Base+core.Seq(r.Count) == base && r.Enqueued == enqueued {
			r.Count += count
			r.Bytes = r.Bytes[:len(r.Bytes)+len(bytes)] // both are of the batch's
			if b.due != nil {
				r.Due = r.Due[:r.Count]
			}
			return
		}
	}
	run := Run{Share: s, Base: base, Count: count, Attempt: attempt, Enqueued: enqueued, Bytes: bytes, Buffer: b.Buffer}
	if b.due != nil {
		run.Due = b.due.since[i : i+int(count)]
	}
	h.runs = append(h.runs, run)
}
