package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// dueSupply is the supply of a share that hands its messages out in the order in which they come: one of a timer
// extent, whose messages are read when they are due, or one of the retry queue. It keeps no attempts: a message that
// comes back from the retry queue gets those when it is taken out.
//
//	each message is in waiting once, or in delayed, or the share withholds it
type dueSupply struct {
	share    *Share
	at       map[core.Seq]record
	waiting  queue[core.Seq] // may be handed out; others are skipped
	delayed  timers          // kept back by the group's delay, since they were enqueued; others are skipped
	delays   int             // messages in delayed
	withheld int             // see Withhold
}

// record is where the record of a message is, and where the message stands.
type record struct {
	batch *batch
	i     int32
	state dueState
}

type dueState uint8

const (
	dueWaiting dueState = iota
	dueDelayed
	dueWithheld
)

func newDueSupply(s *Share) *dueSupply { return &dueSupply{share: s, at: make(map[core.Seq]record)} }

func (d *dueSupply) len() int { return len(d.at) }

func (d *dueSupply) ready() bool { return len(d.at) > d.delays+d.withheld }

func (d *dueSupply) late() (delayed, withheld int) { return d.delays, d.withheld }

func (d *dueSupply) add(b *batch) {
	for i := range len(b.Offsets) - 1 {
		if seq := b.seqAt(i); b.due != nil || seq >= b.first {
			d.admit(b, i, seq)
		}
	}
}

// admit takes record i of a batch: a new message, or the bytes of a restored one.
func (d *dueSupply) admit(b *batch, i int, seq core.Seq) {
	s := d.share
	if _, here := d.at[seq]; here || s.done.Done(seq) {
		return
	}
	m := s.table.get(seq)
	if m != nil && m.batch != nil {
		return
	}
	switch {
	case m != nil:
		if s.timers {
			s.table.setPlace(seq, i)
		}
		s.complete(seq, m, b)
	case s.tooOld(b.sinceAt(i) * 1000):
		s.group.counters.Skipped++
		s.settleUnseen(seq)
		return
	default:
		d.at[seq] = record{b, int32(i), dueWithheld}
		if _, waits := s.withheld[seq]; waits {
			d.withheld++
		} else {
			d.queue(seq)
		}
	}
	s.top = max(s.top, seq)
	b.left++
	b.live += b.sizeAt(i)
}

// queue has a message wait for its turn, or for the end of the group's delay. It is counted nowhere.
func (d *dueSupply) queue(seq core.Seq) {
	r := d.at[seq]
	if at := d.opens(r); at > d.share.group.now {
		r.state = dueDelayed
		d.delays++
		d.delayed.push(timer{due: at, seq: seq})
	} else {
		r.state = dueWaiting
		d.waiting.push(seq)
	}
	d.at[seq] = r
}

// opens is when the group's delay lets a message go, ns; 0: it keeps nothing back.
func (d *dueSupply) opens(r record) int64 {
	if s := d.share; s.group.spec.Delay > 0 && !s.returning {
		return r.batch.enqueuedAt(int(r.i))*1000 + int64(s.group.spec.Delay)
	}
	return 0
}

// withhold keeps a message back, if it is here, until it is released.
func (d *dueSupply) withhold(seq core.Seq) {
	r, here := d.at[seq]
	if !here || r.state == dueWithheld {
		return
	}
	d.uncount(r.state)
	if r.state == dueWaiting {
		d.waiting.filter(func(waiting *core.Seq) bool { return *waiting != seq }) // it will be queued again
	}
	r.state = dueWithheld
	d.at[seq] = r
	d.withheld++
}

func (d *dueSupply) release(seq core.Seq) {
	if r, here := d.at[seq]; here && r.state == dueWithheld {
		d.withheld--
		d.queue(seq)
	}
}

func (d *dueSupply) uncount(state dueState) {
	switch state {
	case dueDelayed:
		d.delays--
	case dueWithheld:
		d.withheld--
	}
}

// requeue has all messages wait by the group's delay as it is now.
func (d *dueSupply) requeue() {
	var all []core.Seq
	for seq, r := range d.at {
		if r.state != dueWithheld {
			all = append(all, seq)
		}
	}
	since := func(seq core.Seq) int64 { r := d.at[seq]; return r.batch.sinceAt(int(r.i)) }
	slices.SortFunc(all, func(a, b core.Seq) int { return cmp.Or(cmp.Compare(since(a), since(b)), cmp.Compare(a, b)) })
	d.waiting, d.delayed, d.delays = queue[core.Seq]{}, nil, 0
	for _, seq := range all {
		d.queue(seq)
	}
}

// look has messages wait for their turn whose delay is over.
func (d *dueSupply) look() (alarm int64) {
	for len(d.delayed) > 0 {
		next := d.delayed[0]
		if r, here := d.at[next.seq]; here && r.state == dueDelayed && d.opens(r) == next.due {
			if next.due > d.share.group.now {
				return next.due
			}
			d.delays--
			d.queue(next.seq)
		}
		d.delayed.pop()
	}
	return 0
}

// front is the first message that waits; false: none does.
func (d *dueSupply) front() (seq core.Seq, r record, ok bool) {
	for d.waiting.len() > 0 {
		seq = *d.waiting.front()
		if r, ok = d.at[seq]; ok && r.state == dueWaiting {
			return seq, r, true
		}
		d.waiting.pop()
	}
	return 0, record{}, false
}

func (d *dueSupply) oldest() int64 {
	if _, r, ok := d.front(); ok {
		return r.batch.sinceAt(int(r.i))
	}
	return 0
}

// choose implements supply: the message that waits for longest. One that the group does not want is settled instead.
func (d *dueSupply) choose(_, _ int, budget *budget) chosen {
	s := d.share
	seq, r, ok := d.front()
	if !ok {
		return chosen{}
	}
	i := int(r.i)
	c := chosen{batch: r.batch, first: seq, count: 1, size: r.batch.sizeAt(i)}
	switch {
	case s.tooOld(r.batch.sinceAt(i) * 1000):
		s.group.counters.Skipped++
		d.drop(seq)
		s.settleUnseen(seq)
	case s.expired(r.batch, i):
		d.begin(c, message{})
		s.expire(seq, s.table.get(seq))
	case s.returning && s.attemptsLeft(r.batch.historyAt(i)) <= 0: // max deliveries was lowered since it moved to the retry queue
		d.begin(c, message{})
		s.judge(seq, s.table.get(seq), 0)
	case s.returning && r.batch.historyAt(i).LockTimedOut && s.attemptsLeft(r.batch.historyAt(i)) == 1 && !s.group.atMostOnce():
		d.begin(c, message{})
		s.setApart(seq, s.table.get(seq))
		s.group.chooseNext()
	case budget.fits(c.size):
		return c
	}
	return chosen{}
}

func (d *dueSupply) begin(c chosen, as message) {
	s, r := d.share, d.at[c.first]
	d.take(c.first, r)
	m := s.table.put(c.first)
	*m = as
	m.batch = r.batch
	if s.timers {
		s.table.setPlace(c.first, int(r.i))
	}
	if s.returning {
		s.goOn(c.first, m, r.batch.historyAt(int(r.i)))
	}
	s.stand(c.first, m, 1)
}

func (d *dueSupply) take(seq core.Seq, r record) {
	d.uncount(r.state)
	delete(d.at, seq)
	if d.waiting.len() > 0 && *d.waiting.front() == seq {
		d.waiting.pop()
	}
}

func (d *dueSupply) drop(seq core.Seq) bool {
	r, here := d.at[seq]
	if !here {
		return false
	}
	d.take(seq, r)
	d.share.unref(r.batch, 1, r.batch.sizeAt(int(r.i)))
	return true
}

func (d *dueSupply) find(seq core.Seq) (*batch, int) {
	r := d.at[seq]
	return r.batch, int(r.i)
}

func (d *dueSupply) until(seq core.Seq) int64 { return d.opens(d.at[seq]) }

func (d *dueSupply) forgot(seq core.Seq) bool {
	switch d.at[seq].state {
	case dueWaiting:
		return !slices.Contains(d.waiting.all(), seq)
	case dueDelayed:
		return !slices.ContainsFunc(d.delayed, func(x timer) bool { return x.seq == seq })
	}
	return false
}

func (d *dueSupply) rest() {
	if len(d.at) == 0 {
		*d = *newDueSupply(d.share)
	}
}

// Known has the seqs that the reader of a timer extent need not be sent: they are settled, or the share has the
// messages.
func (s *Share) Known() *acklevel.Window {
	w := s.done.Clone()
	s.table.each(func(seq core.Seq, m *message) {
		if m.batch != nil {
			w.Ack(seq)
		}
	})
	if d, ok := s.supply.(*dueSupply); ok {
		for seq := range d.at {
			w.Ack(seq)
		}
	}
	return w
}

// tooOld reports whether the group skips a message that could have been handed out since then, ns, and never was.
func (s *Share) tooOld(since int64) bool {
	older := s.group.spec.SkipOlder
	return older > 0 && !s.returning && since+int64(older) < s.group.now
}

// A message of a timer extent that was never handed out can be taken back. It is withheld while that is decided, in
// whatever order it is offered meanwhile, and then settled, or released. See core/cancel.

// Hold is the answer of Withhold: the state of the message that is to be withheld.
type Hold string

const (
	Held    Hold = "held"      // it is not handed out until it is released
	Settled Hold = "settled"   // the group has done with it, or never was to get it
	Handed  Hold = "delivered" // it was handed out, and is not settled
)

// Withhold keeps a message of a timer extent from being delivered for the first time, while its cancellation is
// decided.
func (s *Share) Withhold(seq core.Seq, now time.Time) Hold {
	s.group.at(now)
	if s.done.Done(seq) || s.gone || !s.timers {
		return Settled
	}
	if s.table.get(seq) != nil {
		return Handed
	}
	s.supply.(*dueSupply).withhold(seq)
	if s.withheld == nil {
		s.withheld = make(map[core.Seq]uint64)
	}
	s.withholds++
	s.withheld[seq] = s.withholds
	return Held
}

// Withholds counts the calls of Withhold that withheld a message. Read it before the decisions, and give it to Follow.
func (s *Share) Withholds() uint64 { return s.withholds }

// Withheld is how many messages are withheld.
func (s *Share) Withheld() int { return len(s.withheld) }

// Follow applies decisions about withheld messages. until is Withholds as it was before the decisions were read. A
// message in called is settled, unless the group keeps it (kept). Every other message is released, except in two cases:
// it is still being decided on (undecided), or it was withheld after until.
func (s *Share) Follow(called *acklevel.Window, kept, undecided map[core.Seq]bool, until uint64, now time.Time) {
	s.group.at(now)
	for _, seq := range slices.Sorted(maps.Keys(s.withheld)) {
		at := s.withheld[seq]
		switch {
		case s.done.Done(seq):
		case called.Done(seq) && !kept[seq]:
			s.group.counters.Cancelled++
			s.supply.drop(seq)
			s.settleUnseen(seq)
		case at > until || undecided[seq]:
			continue
		default:
			s.supply.(*dueSupply).release(seq)
		}
		delete(s.withheld, seq)
	}
	s.wake()
}

// Cancel settles the cancelled messages (called), except those that the group keeps (kept) and those that were
// delivered.
func (st *State) Cancel(called *acklevel.Window, kept map[core.Seq]bool) {
	st.done = *st.done.Clone()
	settle := func(first, last core.Seq) {
		for seq := st.done.NextUndone(first); seq != 0 && seq <= last; seq = st.done.NextUndone(seq + 1) {
			if _, begun := st.messages[seq]; !begun && !kept[seq] {
				st.done.Ack(seq)
			}
		}
	}
	settle(1, called.Frontier())
	for r := range called.Ranges() {
		settle(r.First, r.Last)
	}
}
