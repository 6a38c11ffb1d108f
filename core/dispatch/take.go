package dispatch

import (
	"math"
	"sort"
	"time"

	"github.com/columbamq/columba/core"
)

// turnMessages and turnBytes are what a share may hand out before the next one's turn.
const (
	turnMessages = 256
	turnBytes    = 256 << 10
)

// handout is one Take under way.
type handout struct {
	session  SessionID
	messages int // credit left
	bytes    int
	oversize bool
	stopped  bool // the next message is larger than the bytes left
	due      int64
	runs     []Run
	last     *batch // of the last run made here …
	end      int    // … and the index behind it
}

// Take hands out what the credit allows and appends it to runs: shares in turn, retries and first deliveries mixed,
// messages contiguous in a batch as one run. Each is locked until now + lock timeout. Attempts count here.
func (g *Group) Take(session SessionID, credit Credit, now time.Time, runs []Run) []Run {
	now64 := g.at(now)
	g.settleGiven()
	most := g.admit(scope{session: session}, credit.Messages)
	h := handout{
		session: session, messages: most, bytes: credit.Bytes, oversize: credit.Oversize,
		due: now64 + int64(g.spec.LockTimeout), runs: runs,
	}
	for alone := g.takeAlone(&h); !alone && h.messages > 0 && !h.stopped; {
		s, kind := g.nextInTurn()
		if s == nil {
			break
		}
		left := h.messages
		s.take(&h, kind)
		g.handedOf(s, kind, left-h.messages)
		s.wake()
	}
	g.gave(session, most-h.messages)
	return h.runs
}

// take hands out one turn's worth. What has to be claimed first is claimed as the credit goes, since each claim takes a checkpoint.
func (s *Share) take(h *handout, kind turn) {
	s.look()
	left := s.group.turnOf(s, kind, h.messages)
	if kind == retryTurn {
		left -= s.takeReady(&s.retries, h, left)
	} else {
		left -= s.takeReady(&s.firsts, h, left)
	}
	if s.claims() {
		if left > 0 && !h.stopped && s.canBegin() {
			s.claim(min(h.messages, turnMessages), min(h.bytes, turnBytes))
		}
		return
	}
	bytes := turnBytes
	for kind == firstTurn && left > 0 && bytes > 0 && !h.stopped && s.mayBegin() {
		var n, size int
		if s.timers {
			n, size = s.takeDue(h)
		} else {
			n, size = s.takeRun(h, left, bytes)
		}
		left -= n
		bytes -= size
		s.look()
	}
}

// takeReady hands out up to most messages in phase ready: the next attempt of each is counted durably.
func (s *Share) takeReady(waiting *queue[core.Seq], h *handout, most int) (n int) {
	for n < most && waiting.len() > 0 {
		seq := *waiting.front()
		m := s.table.get(seq)
		if m == nil || m.phase != ready || m.batch == nil {
			waiting.pop()
			continue
		}
		if s.lapsed(m.batch, seq) {
			waiting.pop()
			s.lapse(seq, m)
			continue
		}
		if !h.fits(s.size(m.batch, seq)) {
			break
		}
		s.again(h, waiting.pop(), m)
		n++
	}
	return n
}

// again hands out a message whose next attempt is counted.
func (s *Share) again(h *handout, seq core.Seq, m *message) {
	if m.attempts < math.MaxUint16 {
		m.attempts++
	}
	if m.attempts > 1 {
		s.group.counters.Redelivered++
	}
	m.session, m.due = h.session, h.due
	if s.group.once() {
		s.give(seq, m)
	} else {
		s.move(m, inFlight)
	}
	s.handed(h, m.batch, seq, 1, m.attempts)
}

// fits reports whether a message of size may be handed out next.
func (h *handout) fits(size int) bool {
	if size <= h.bytes {
		return true
	}
	if h.oversize {
		h.bytes = size // the only one: nothing is left after it
		return true
	}
	h.stopped = true
	return false
}

// handed notes a run in flight, in a row in its batch, joined to the one before where it goes on from it.
func (s *Share) handed(h *handout, b *batch, base core.Seq, count uint32, attempt uint16) {
	i, enqueued := s.place(b, base), s.enqueued(b, base)
	bytes := b.Bytes[b.Offsets[i]:b.Offsets[i+int(count)]]
	h.messages -= int(count)
	h.bytes -= len(bytes)
	h.oversize = false
	s.changed = true
	s.group.counters.Delivered += uint64(count)
	if !s.group.once() {
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

// skipBatches drops batches that the cursor has passed.
func (s *Share) skipBatches() {
	for s.batches.len() > 0 && (*s.batches.front()).last < s.cursor {
		s.batches.pop()
	}
}

// takeRun begins the next run of buffered messages, of one batch.
func (s *Share) takeRun(h *handout, messages, bytes int) (n, size int) {
	s.skipBatches()
	b := *s.batches.front()
	first := max(s.cursor, b.first)
	count := min(int(b.last-first)+1, messages, h.messages, MaxOutstanding-(s.table.n-s.missing))
	if s.rate > 0 {
		count = min(count, s.allowed())
	}
	if s.top >= first || s.done.Top() >= first || b.Expire != nil {
		first, count = s.clean(b, first, count)
	}
	s.cursor = first
	if count == 0 {
		return 0, 0
	}
	i := int(first - b.Base)
	start := b.Offsets[i]
	if size := int(b.Offsets[i+1] - start); size > min(bytes, h.bytes) {
		if size > h.bytes && !h.fits(size) {
			return 0, 0
		}
		count = 1
	} else if total := int(b.Offsets[i+count] - start); total > min(bytes, h.bytes) {
		most := uint32(min(bytes, h.bytes))
		count = sort.Search(count, func(k int) bool { return b.Offsets[i+k+1]-start > most })
	}
	s.begin(b, first, count, h)
	s.handed(h, b, first, uint32(count), 1)
	return count, int(b.Offsets[i+count] - start)
}

// clean finds the first message of a batch at or above first that is buffered, and up to count in a row of such. What has lapsed before
// them is settled.
func (s *Share) clean(b *batch, first core.Seq, count int) (core.Seq, int) {
	for ; first <= b.last; first++ {
		if !s.fresh(first) {
			continue
		}
		if !s.lapsed(b, first) {
			break
		}
		s.lapseUnseen(b, first)
	}
	n := 0
	for ; n < count && first+core.Seq(n) <= b.last && s.fresh(first+core.Seq(n)) && !s.lapsed(b, first+core.Seq(n)); n++ {
	}
	return first, n
}

// begin puts count buffered messages of a batch in flight as attempt 1.
func (s *Share) begin(b *batch, first core.Seq, count int, h *handout) {
	fresh := message{batch: b, due: h.due, session: h.session, attempts: 1, phase: inFlight}
	for seq, left := first, count; left > 0; {
		c := s.table.make(uint64(seq) >> chunkBits)
		at := int(seq & chunkMask)
		n := min(chunkLen-at, left)
		for i := range n {
			c.messages[at+i] = fresh
		}
		c.live |= (1<<n - 1) << at
		seq, left = seq+core.Seq(n), left-n
	}
	s.table.n += count
	s.count[inFlight] += int32(count)
	s.group.inFlight += count
	s.group.sessions.holds(h.session, count)
	s.buffered -= count
	s.cursor = first + core.Seq(count)
	if s.rate > 0 {
		s.spent(count)
	}
}
