package dispatch

import (
	"math"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// Offer gives the share the next batch. It must begin at or before ReadFrom (else CodeGap; nothing is taken and the
// buffer stays the caller's); what the share already has of it, or is done, is skipped. A batch of nothing new is
// released at once.
func (s *Share) Offer(r Records, now time.Time) error {
	s.group.at(now)
	n := len(r.Offsets) - 1
	if n < 1 || r.Base < 1 || uint64(r.Base) > math.MaxUint64-uint64(n) || int(r.Offsets[n]) > len(r.Bytes) || r.Expire != nil && len(r.Expire) != n || !slices.IsSorted(r.Offsets) {
		return core.Errorf(core.CodeBadArgument, "batch of %d records from seq %d is not well formed", n, r.Base)
	}
	if s.gone {
		return core.Errorf(core.CodeStale, "extent %s is not read here any more", s.extent)
	}
	if s.timers {
		return core.Errorf(core.CodeBadArgument, "extent %s holds timers", s.extent)
	}
	from := s.ReadFrom()
	if r.Base > from {
		return core.Errorf(core.CodeGap, "batch begins at seq %d; read extent %s from seq %d", r.Base, s.extent, from)
	}
	b := &batch{Records: r, first: from, last: r.Base + core.Seq(n) - 1}
	if b.last < from {
		if r.Buffer != nil {
			r.Buffer.Release()
		}
		return nil
	}
	s.next = b.last + 1
	s.offer(b)
	return nil
}

// DueRecords are messages of a timer extent in the order in which they are due: record i has the seq Seqs[i] and the
// bytes Bytes[Offsets[i]:Offsets[i+1]]. All slices and Buffer belong to the share from OfferDue until Buffer.Release.
type DueRecords struct {
	Seqs      []core.Seq
	Offsets   []uint32 // one more than there are records; rising
	Bytes     []byte
	DeliverAt []int64   // of each record, unix ms; 0: when it was enqueued
	Enqueued  []int64   // of each record, unix µs
	Expire    []int64   // as in Records
	History   []History // the same
	Buffer    Buffer
}

func (r *DueRecords) wellFormed() bool {
	n := len(r.Seqs)
	return n > 0 && len(r.Offsets) == n+1 && len(r.DeliverAt) == n && len(r.Enqueued) == n && (r.Expire == nil || len(r.Expire) == n) && (r.History == nil || len(r.History) == n) &&
		int(r.Offsets[n]) <= len(r.Bytes) && slices.IsSorted(r.Offsets) && !slices.Contains(r.Seqs, 0)
}

// OfferDue gives a share of a timer extent further messages, in any order of seqs. Messages that are done, or were
// offered before, are skipped; records of nothing new are released at once. On an error the buffer stays the caller's.
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
	b := &batch{Records: Records{Offsets: r.Offsets, Bytes: r.Bytes, Expire: r.Expire, History: r.History, Buffer: r.Buffer}}
	b.due = &due{seqs: r.Seqs, enqueued: r.Enqueued, since: r.DeliverAt}
	for i, ms := range r.DeliverAt {
		b.due.since[i] = max(min(ms, math.MaxInt64/int64(time.Millisecond))*1000, r.Enqueued[i])
	}
	s.offer(b)
	return nil
}

// offer takes the messages of a batch in.
func (s *Share) offer(b *batch) {
	s.offers++
	b.offer = s.offers
	b.at = len(s.held)
	s.held, s.heldBytes = append(s.held, b), s.heldBytes+len(b.Bytes)
	s.touch()
	s.supply.add(b)
	if b.left == 0 {
		s.release(b)
	}
	s.squeeze()
	s.wake()
}

// batch is a batch of records held until none of its messages is needed any more.
//
//	left == its messages that are in the supply or have a phase;  live == the bytes of those
type batch struct {
	Records
	due   *due
	first core.Seq // what lies below was known before
	last  core.Seq
	left  int
	live  int
	lent  int    // messages yielded by TakeTransfers and not answered: they pin the bytes as they are
	offer uint64 // which of the share's offers brought it
	at    int    // index in the share's held batches; -1: released
}

// due is what a batch of a timer extent knows of its records, beside Records; nil for one of a log.
type due struct {
	seqs     []core.Seq
	enqueued []int64 // unix µs
	since    []int64 // unix µs: when they were enqueued and due
}

// place is the index of seq in its batch.
func (s *Share) place(b *batch, seq core.Seq) int {
	if b.due != nil {
		return s.table.place(seq)
	}
	return int(seq - b.Base)
}

// seqAt is the reverse.
func (b *batch) seqAt(i int) core.Seq {
	if b.due != nil {
		return b.due.seqs[i]
	}
	return b.Base + core.Seq(i)
}

// recordAt is record i, encoded.
func (b *batch) recordAt(i int) []byte { return b.Bytes[b.Offsets[i]:b.Offsets[i+1]] }

func (b *batch) sizeAt(i int) int { return int(b.Offsets[i+1] - b.Offsets[i]) }

// enqueuedAt is when record i was appended, unix µs.
func (b *batch) enqueuedAt(i int) int64 {
	if b.due != nil {
		return b.due.enqueued[i]
	}
	return b.Enqueued
}

// historyAt is the history of record i.
func (b *batch) historyAt(i int) History {
	if b.History == nil {
		return History{}
	}
	return b.History[i]
}

// sinceAt is since when record i could be handed out for all that its publisher wanted, unix µs.
func (b *batch) sinceAt(i int) int64 {
	if b.due != nil {
		return b.due.since[i]
	}
	return b.Enqueued
}

// unref says that the batch does not need the bytes of n of its messages, size in all, any more.
func (s *Share) unref(b *batch, n, size int) {
	b.left -= n
	b.live -= size
	if b.left == 0 && b.lent == 0 {
		s.release(b)
	}
}

func (s *Share) release(b *batch) {
	n := len(s.held) - 1
	s.held[b.at] = s.held[n]
	s.held[b.at].at = b.at
	s.held[n] = nil
	s.held = s.held[:n]
	b.at = -1
	s.heldBytes -= len(b.Bytes)
	s.touch()
	buffer := b.Buffer
	b.Records, b.due = Records{Base: b.Base, Enqueued: b.Enqueued}, nil
	if buffer != nil {
		buffer.Release()
	}
}

// squeezeAge is after how many further batches one is old.
const squeezeAge = 128

// squeeze releases the buffers of old batches, which may pin more than the batch, and when the share holds much memory
// those of batches of which little is left. Records that are still needed are copied.
func (s *Share) squeeze() {
	much := s.heldBytes >= s.squeezeAt
	if !much && s.offers%squeezeAge != 0 {
		return
	}
	for _, b := range s.held {
		old := b.Buffer != nil && s.offers-b.offer >= squeezeAge
		if b.lent == 0 && (old || much && b.live < len(b.Bytes)/4) {
			s.squeezeBatch(b)
		}
	}
	if much {
		s.squeezeAt = max(MaxOutstandingBytes/2, s.heldBytes+MaxOutstandingBytes/8)
	}
}

func (s *Share) squeezeBatch(b *batch) {
	offsets := make([]uint32, len(b.Offsets))
	kept := make([]byte, 0, b.live)
	for i := range len(b.Offsets) - 1 {
		offsets[i] = uint32(len(kept))
		seq := b.seqAt(i)
		in, _ := s.supply.find(seq)
		if m := s.table.get(seq); m != nil {
			in = m.batch
		}
		if in == b {
			kept = append(kept, b.Bytes[b.Offsets[i]:b.Offsets[i+1]]...)
		}
	}
	offsets[len(offsets)-1] = uint32(len(kept))
	s.heldBytes += len(kept) - len(b.Bytes)
	s.touch()
	buffer := b.Buffer
	b.Offsets, b.Bytes, b.Buffer = offsets, kept, nil
	if buffer != nil {
		buffer.Release()
	}
}

// takeBack has a batch pinned no more by a message that was written elsewhere.
func (s *Share) takeBack(seq core.Seq) {
	b := s.lent[seq]
	if b == nil {
		return
	}
	delete(s.lent, seq)
	if b.lent--; b.lent == 0 && (b.left == 0 || s.gone) {
		s.release(b)
	}
}
