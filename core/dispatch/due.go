package dispatch

import (
	"math"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// A share of a timer extent hands its messages out in the order in which they are due, whatever their seqs. So there is no place up to which
// it was read, and next stays where the share began. See dueSupply for what was never handed out.

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
	s.offer(b)
	return nil
}

// Known is what the reader of a timer extent needs not be sent: what is done, or held.
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
