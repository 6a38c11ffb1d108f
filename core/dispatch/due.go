package dispatch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// A share of a timer extent takes its messages in the order in which they are due, whatever their seqs. So there is no place up to which
// it was read: a message that was offered and never handed out has a phase, unbegun, or early while the group's delay, since it was enqueued, keeps
// it back longer than its own; and next and cursor stay where the share began. They are too old by the time since they were due.

// DueRecords are messages of a timer extent whose time has come, in the order in which they are due: record i has the seq Seqs[i] and the
// bytes Bytes[Offsets[i]:Offsets[i+1]]. All slices and Buffer belong to the share from OfferDue until Buffer.Release.
type DueRecords struct {
	Seqs      []core.Seq
	Offsets   []uint32 // one more than there are records; rising
	Bytes     []byte
	DeliverAt []int64 // of each record, unix ms; 0: when it was enqueued
	Enqueued  []int64 // of each record, unix µs
	Expire    []int64 // as in Records
	Past      []Past  // the same
	Buffer    Buffer
}

// due is what a batch of a timer extent knows of its records, beside Records; nil for one of a log.
type due struct {
	seqs     []core.Seq
	enqueued []int64 // unix µs
	since    []int64 // unix µs: when they were enqueued and due
}

// AddTimers is AddShare for a timer extent.
func (g *Group) AddTimers(extent core.ExtentID, state State, now time.Time) *Share {
	return g.addShare(extent, state, true, now)
}

func (r *DueRecords) wellFormed() bool {
	n := len(r.Seqs)
	return n > 0 && len(r.Offsets) == n+1 && len(r.DeliverAt) == n && len(r.Enqueued) == n && (r.Expire == nil || len(r.Expire) == n) && (r.Past == nil || len(r.Past) == n) &&
		int(r.Offsets[n]) <= len(r.Bytes) && slices.IsSorted(r.Offsets) && !slices.Contains(r.Seqs, 0)
}

// OfferDue gives a share of a timer extent further messages, in any order of seqs; what is done, or was offered before, is skipped. Records
// of nothing new are released at once. On an error the buffer stays the caller's.
func (s *Share) OfferDue(r DueRecords, now time.Time) error {
	s.group.at(now)
	switch {
	case !r.wellFormed():
		return core.Errorf(core.CodeBadArgument, "%d due records are not well formed", len(r.Seqs))
	case s.gone:
		return core.Errorf(core.CodeStale, "extent %s is not read here any more", s.extent)
	case !s.timers:
		return core.Errorf(core.CodeBadArgument, "extent %s holds no timers", s.extent)
	}
	b := &batch{Records: Records{Offsets: r.Offsets, Bytes: r.Bytes, Expire: r.Expire, Past: r.Past, Buffer: r.Buffer}}
	b.due = &due{seqs: r.Seqs, enqueued: r.Enqueued, since: r.DeliverAt}
	for i, ms := range r.DeliverAt {
		b.due.since[i] = max(min(ms, math.MaxInt64/int64(time.Millisecond))*1000, r.Enqueued[i])
	}
	s.offers++
	b.offer = s.offers
	s.hold(b)
	for i, seq := range r.Seqs {
		s.admitDue(b, i, seq)
	}
	if b.left == 0 {
		s.release(b)
	}
	s.squeeze()
	s.wake()
	return nil
}

// admitDue takes record i of a batch, of timers or of the retry queue: a new message, or the bytes of a restored one.
func (s *Share) admitDue(b *batch, i int, seq core.Seq) {
	if s.done.Done(seq) {
		return
	}
	m := s.table.get(seq)
	if m != nil && m.batch != nil {
		return
	}
	past, first := s.came(b, i, seq)
	if m == nil {
		since := b.sinceAt(i) * 1000
		switch {
		case !first:
			s.group.counters.Copies++
			s.done.Ack(seq)
			s.changed = true
			return
		case s.tooOld(since):
			s.group.counters.Skipped++
			s.done.Ack(seq)
			s.changed = true
			return
		}
		m = s.table.put(seq)
		m.batch = b
		if s.timers {
			s.table.setPlace(seq, i)
		}
		if s.returning {
			s.goOn(seq, m, past)
		}
		if _, waits := s.withheld[seq]; waits {
			s.move(m, withheld)
		} else {
			s.comeDue(seq, m)
		}
		s.top = max(s.top, seq)
	} else {
		s.missing--
		m.batch = b
		if s.timers {
			s.table.setPlace(seq, i)
		}
		switch m.phase {
		case unclaimed:
			s.group.unclaimed.push(deadRef{s, seq})
		case ready:
			s.queueReady(seq, m)
		case lone:
			s.waitAlone(seq)
		case transferring:
			s.read(seq)
		}
	}
	b.left++
	b.live += int(b.Offsets[i+1] - b.Offsets[i])
}

// comeDue has a message that was read, and never handed out, wait for its turn, or for the end of the group's delay.
func (s *Share) comeDue(seq core.Seq, m *message) {
	at := s.enqueued(m.batch, seq)*1000 + int64(s.group.spec.Delay)
	if at > s.group.now && s.group.spec.Delay > 0 && !s.returning {
		m.due = at
		s.move(m, early)
		s.group.wakeAt(s, seq, at)
		return
	}
	m.due = s.since(m.batch, seq) * 1000
	s.move(m, unbegun)
	s.unbegun.push(seq)
}

// redelay has what was never handed out wait by the delay as it is now.
func (s *Share) redelay() {
	var waiting []core.Seq
	s.table.each(func(seq core.Seq, m *message) {
		if m.phase == unbegun || m.phase == early {
			waiting = append(waiting, seq)
		}
	})
	since := func(seq core.Seq) int64 { return s.since(s.table.get(seq).batch, seq) }
	slices.SortStableFunc(waiting, func(a, b core.Seq) int { return cmp.Compare(since(a), since(b)) })
	s.unbegun = queue[core.Seq]{}
	for _, seq := range waiting {
		s.comeDue(seq, s.table.get(seq))
	}
}

// tooOld reports whether the group skips a message that could have been handed out since then, ns, and never was.
func (s *Share) tooOld(since int64) bool {
	older := s.group.spec.SkipOlder
	return older > 0 && !s.returning && since+int64(older) < s.group.now
}

// takeDue hands out the message that became due first. n is 0 when it was settled instead, or does not fit.
func (s *Share) takeDue(h *handout) (n, size int) {
	seq := *s.unbegun.front()
	m := s.table.get(seq)
	switch {
	case m == nil || m.phase != unbegun:
		s.unbegun.pop()
		return 0, 0
	case s.tooOld(m.due):
		s.unbegun.pop()
		s.group.counters.Skipped++
		s.settle(seq, m)
		return 0, 0
	case s.lapsed(m.batch, seq):
		s.unbegun.pop()
		s.lapse(seq, m)
		return 0, 0
	}
	if size = s.size(m.batch, seq); !h.fits(size) {
		return 0, 0
	}
	s.unbegun.pop()
	m.attempts, m.session, m.due = 1, h.session, h.due
	s.move(m, inFlight)
	s.handed(h, m.batch, seq, 1, 1)
	return 1, size
}

// Known is what the reader of a timer extent needs not be sent: what is done, or held.
func (s *Share) Known() *acklevel.Window {
	w := s.done.Clone()
	s.table.each(func(seq core.Seq, m *message) {
		if m.batch != nil {
			w.Ack(seq)
		}
	})
	return w
}
