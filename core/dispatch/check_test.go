package dispatch

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/columbamq/columba/core"
)

// check verifies the equations of Group and Share, and that every seq that was read stands in exactly one place.
func (g *Group) check() error {
	flying, claims := 0, claimCount{}
	covered := map[*Share]map[core.Seq]bool{}
	cover := func(s *Share, seq core.Seq) {
		if covered[s] == nil {
			covered[s] = map[core.Seq]bool{}
		}
		covered[s][seq] = true
	}
	last := int64(0)
	for _, l := range g.locks.all() {
		if l.due < last {
			return fmt.Errorf("locks are out of order")
		}
		last = l.due
		for i := range l.count {
			if m := l.share.table.get(l.base + core.Seq(i)); m != nil && m.phase == inFlight && m.due == l.due && m.attempts == l.attempt {
				cover(l.share, l.base+core.Seq(i))
			}
		}
	}
	for i, t := range g.timers {
		if i > 0 && g.timers[(i-1)/2].due > t.due {
			return fmt.Errorf("timers are not a heap at %d", i)
		}
		if t.live() { // seq 0 too: the share's own
			cover(t.share, t.seq)
		}
	}
	var inTurn [turnKinds]map[*Share]bool
	for kind := range turnKinds {
		inTurn[kind] = map[*Share]bool{}
		var ordinary, merged []*Share
		if g.turns != nil {
			ordinary = g.turns.waiting[kind].all()
		}
		if g.mergedTurns != nil {
			merged = g.mergedTurns.waiting[kind].all()
		}
		for _, s := range slices.Concat(ordinary, merged) {
			if inTurn[kind][s] || !s.inTurn[kind] {
				return fmt.Errorf("a share has two turns of kind %d, or does not know of one", kind)
			}
			inTurn[kind][s] = true
		}
		for _, s := range merged {
			if !s.merged {
				return fmt.Errorf("a share takes its turn among the merged ones")
			}
		}
	}
	for _, s := range g.shares {
		if err := s.check(covered[s]); err != nil {
			return err
		}
		if (s.alarm > 0) && !covered[s][0] {
			return fmt.Errorf("a share that has to look at the age of its messages has no deadline")
		}
		for kind := range turnKinds {
			if s.hasTurn(kind) && !inTurn[kind][s] {
				return fmt.Errorf("a share with work of kind %d has no turn", kind)
			}
		}
		flying += s.of(inFlight)
		s.table.each(func(seq core.Seq, m *message) {
			if s.isClaimed(m) {
				claims.messages++
				claims.bytes += m.batch.sizeAt(s.place(m.batch, seq))
			}
		})
		if inLine := g.line != nil && slices.Contains(g.line.shares.all(), s); inLine != s.inLine || s.mayClaim() && !inLine {
			return fmt.Errorf("a share may claim %v, and is in line %v, counted %v", s.mayClaim(), inLine, s.inLine)
		}
	}
	if claims != g.claimed {
		return fmt.Errorf("group counts %+v claimed, shares %+v", g.claimed, claims)
	}
	if err := g.breaker.check(); err != nil {
		return err
	}
	held := map[SessionID]int{}
	for _, s := range g.shares {
		s.table.each(func(_ core.Seq, m *message) {
			if m.phase == inFlight {
				held[m.session.known()]++
			}
		})
	}
	for id, x := range g.sessions.of {
		if x.held != held[id] || x.held == 0 && !x.present {
			return fmt.Errorf("session %d holds %d messages, counted %+v", id, held[id], *x)
		}
		delete(held, id)
	}
	if len(held) > 0 {
		return fmt.Errorf("sessions hold messages and are not known: %v", held)
	}
	firsts := int32(0)
	for _, s := range g.shares {
		retries := 0
		s.table.each(func(_ core.Seq, m *message) {
			if m.phase == inFlight && m.attempts <= 1 {
				firsts++
			}
			if m.isRetry() || m.phase.leaves() || m.phase == unclaimed || m.phase == unsaved { // what expired unseen leaves, or comes back
				retries++
			}
		})
		if n := s.retriesHere(); n != retries && !g.atMostOnce() && !s.returning && s.missing == 0 {
			return fmt.Errorf("a share says that it holds %d retries, and holds %d", n, retries)
		}
	}
	if firsts != g.firsts {
		return fmt.Errorf("%d first attempts are in flight, counted %d", firsts, g.firsts)
	}
	if flying != int(g.inFlight) {
		return fmt.Errorf("group counts %d in flight, shares %d", g.inFlight, flying)
	}
	return nil
}

func (s *Share) check(covered map[core.Seq]bool) error {
	var count [phases]int32
	var transfers [Destinations]transfers
	left, live := map[*batch]int{}, map[*batch]int{}
	missing, tracked, again, failed := 0, 0, int32(0), 0
	retries, pending := map[core.Seq]bool{}, map[core.Seq]bool{}
	for _, seq := range s.retries.all() {
		retries[seq] = true
	}
	for _, seq := range s.firsts.all() {
		retries[seq] = true
	}
	if a := s.group.isolation; a != nil && a.counted.share == s {
		retries[a.counted.seq] = true
	}
	isolatedMessages := map[core.Seq]bool{}
	for _, x := range s.group.isolatedMessages() {
		isolatedMessages[x.seq] = isolatedMessages[x.seq] || x.share == s
	}
	for _, p := range s.pending.all() {
		pending[p.seq] = true
	}
	var err error
	fail := func(format string, args ...any) { err = fmt.Errorf(format, args...) }
	s.table.each(func(seq core.Seq, m *message) {
		tracked++
		if m.phase == inFlight && m.attempts > 1 {
			again++
		}
		if m.failedBefore() {
			failed++
		}
		if s.displaceable(seq) != nil && !slices.Contains(s.nacked, seq) {
			fail("seq %d was nacked and waits, and nothing knows that it may be displaced", seq)
		}
		count[m.phase]++
		if m.batch == nil {
			missing++
		} else {
			left[m.batch]++
			live[m.batch] += m.batch.sizeAt(s.place(m.batch, seq))
		}
		switch {
		case m.phase == none || s.done.Done(seq):
			fail("seq %d has phase %d and is done: %v", seq, m.phase, s.done.Done(seq))
		case m.batch == nil && seq < s.next:
			fail("seq %d was read but has no bytes", seq)
		case (m.phase == inFlight || m.phase == delayed || m.phase == held) && !covered[seq]:
			fail("seq %d in phase %d has no deadline", seq, m.phase)
		case m.phase == ready && m.batch != nil && !retries[seq]:
			fail("seq %d is ready but nobody knows", seq)
		case m.phase == isolated && (m.batch != nil && !isolatedMessages[seq] || !s.needsIsolation(seq, m)):
			fail("seq %d is to be handed out alone but nobody knows", seq)
		case m.phase == unclaimed && m.batch != nil && !s.group.line.has(s, seq):
			fail("seq %d waits for credit but nobody knows", seq)
		case m.phase == unsaved && !pending[seq]:
			fail("seq %d waits for a checkpoint that will not say so", seq)
		case m.phase.leaves() && s.table.note(seq).transfer == nil:
			fail("seq %d leaves, and nothing is known of it", seq)
		case m.phase == announced && s.table.note(seq).transfer.token == 0:
			fail("seq %d is announced by no checkpoint", seq)
		case m.phase.leaves() && m.phase != held && !s.knownTransfer(seq, m):
			fail("seq %d in phase %d leaves but nobody knows", seq, m.phase)
		}
		switch x := s.table.note(seq).transfer; {
		case !m.phase.leaves():
		case m.phase == leaving:
			transfers[x.to].leaving++
		default:
			transfers[x.to].underWay++
		}
	})
	if err != nil {
		return err
	}
	for to, want := range transfers {
		if s.transfers == nil {
			break
		}
		if got := &s.transfers[to]; got.leaving != want.leaving || got.underWay != want.underWay {
			return fmt.Errorf("%d leave for the %s, %d are under way, counted %d, %d", want.leaving, Destination(to), want.underWay, got.leaving, got.underWay)
		}
	}
	supplied := 0
	supply := func(b *batch, i int) {
		supplied++
		left[b]++
		live[b] += b.sizeAt(i)
	}
	switch x := s.supply.(type) {
	case *logSupply:
		for _, b := range x.batches.all() {
			for seq := max(b.first, x.cursor); seq <= b.last; seq++ {
				if !s.done.Done(seq) && s.table.get(seq) == nil {
					supply(b, int(seq-b.Base))
				}
			}
		}
	case *dueSupply:
		if err := x.check(supply); err != nil {
			return err
		}
	}
	undone := 0
	for seq := s.done.Frontier() + 1; seq < s.next; seq++ {
		if !s.done.Done(seq) {
			undone++
		}
	}
	count[none] = s.count[none]
	switch {
	case failed != s.failedMessages():
		return fmt.Errorf("%d messages have failed and stay, counted %d", failed, s.failedMessages())
	case again != s.repeats:
		return fmt.Errorf("%d retries are in flight, counted %d", again, s.repeats)
	case count != s.count:
		return fmt.Errorf("phases are %v, counted %v", count, s.count)
	case tracked != s.table.n || missing != s.missing || supplied != s.supply.len():
		return fmt.Errorf("tracked, missing, supplied are %d, %d, %d, counted %d, %d, %d", tracked, missing, supplied, s.table.n, s.missing, s.supply.len())
	case undone != tracked-missing+supplied && !s.timers:
		return fmt.Errorf("%d messages read and not done, %d tracked with bytes, %d in the supply", undone, tracked-missing, supplied)
	case s.table.noted > tracked:
		return fmt.Errorf("%d notes of %d messages", s.table.noted, tracked)
	}
	bytes := 0
	lent := map[*batch]int{}
	for _, b := range s.lent {
		lent[b]++
	}
	for _, b := range s.held {
		bytes += len(b.Bytes)
		if b.left != left[b] || b.live != live[b] || b.lent != lent[b] || b.left+b.lent == 0 {
			return fmt.Errorf("batch %d has %d messages, %d bytes left, counted %d, %d", b.Base, left[b], live[b], b.left, b.live)
		}
	}
	notes, noted, extended := 0, 0, 0
	s.table.eachNote(func(_ core.Seq, _ *message, x note) {
		notes++
		if noted += x.bytes(); x.extended != 0 {
			extended++
		}
	})
	if notes != s.table.noted {
		return fmt.Errorf("%d notes, counted %d", notes, s.table.noted)
	}
	if extended > s.of(inFlight) {
		return fmt.Errorf("%d locks were moved, %d messages are in flight", extended, s.count[inFlight])
	}
	if noted != s.noteBytes {
		return fmt.Errorf("%d bytes of texts and metadata, counted %d", noted, s.noteBytes)
	}
	if bytes != s.heldBytes {
		return fmt.Errorf("%d bytes held, counted %d", bytes, s.heldBytes)
	}
	return nil
}

// check verifies the equations of a breaker.
func (b *breaker) check() error {
	if b == nil {
		return nil
	}
	row := 0
	for row < len(b.latest) && b.latest[len(b.latest)-1-row].fails > 0 {
		row++
	}
	seen := map[core.Receipt]bool{}
	for _, o := range b.latest {
		if o.fails > 0 && seen[o.id] {
			return fmt.Errorf("the breaker counts one message twice")
		}
		seen[o.id] = true
	}
	switch {
	case len(b.latest) > breakerWindow || row != int(b.row):
		return fmt.Errorf("the breaker remembers %d outcomes, %d failures in a row, and counts %d", len(b.latest), row, b.row)
	case b.open && (b.percent == 0 || len(b.latest) > 0 || b.left > breakerMost || b.left == 0 && b.next == 0):
		return fmt.Errorf("the breaker is open: %+v", *b)
	}
	return nil
}

// check verifies that each message is in one place, and calls f with its record.
func (d *dueSupply) check(f func(b *batch, i int)) error {
	waiting, delayed := map[core.Seq]int{}, map[core.Seq]bool{}
	for _, seq := range d.waiting.all() {
		waiting[seq]++
	}
	for _, x := range d.delayed {
		if r, here := d.at[x.seq]; here {
			delayed[x.seq] = delayed[x.seq] || d.opens(r) == x.due
		}
	}
	var count [dueWithheld + 1]int
	for seq, r := range d.at {
		f(r.batch, int(r.i))
		count[r.state]++
		switch s := d.share; {
		case s.done.Done(seq) || s.table.get(seq) != nil:
			return fmt.Errorf("seq %d is in the supply, and settled or begun", seq)
		case r.state == dueWaiting && waiting[seq] != 1:
			return fmt.Errorf("seq %d waits %d times", seq, waiting[seq])
		case r.state == dueDelayed && (!delayed[seq] || s.alarm == 0):
			return fmt.Errorf("seq %d is kept back without a deadline", seq)
		case r.state == dueWithheld && s.withheld[seq] == 0:
			return fmt.Errorf("seq %d is withheld by nobody", seq)
		}
	}
	if count[dueDelayed] != d.delays || count[dueWithheld] != d.withheld {
		return fmt.Errorf("%d are kept back, %d withheld; counted %d, %d", count[dueDelayed], count[dueWithheld], d.delays, d.withheld)
	}
	return nil
}

// eachNote calls f for every message with a note, in any order.
func (t *table) eachNote(f func(core.Seq, *message, note)) {
	for k, c := range t.chunks {
		left := c.noted
		for _, x := range c.notes {
			i := bits.TrailingZeros64(left)
			left &= left - 1
			f(core.Seq(k<<chunkBits|uint64(i)), &c.messages[i], x)
		}
	}
}
