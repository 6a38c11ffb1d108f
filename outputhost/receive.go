package outputhost

import (
	"sync/atomic"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/outputhost/records"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// HandleFrame implements ws.StreamHandler.
func (r *reader) HandleFrame(f wire.Frame, m *ws.Message) {
	var err error
	switch f.Type {
	case wire.TypeBatches:
		err = r.batches(f.Body, m)
	case wire.TypeDue:
		err = r.due(f.Body, f.Flags&wire.FlagMore != 0, m)
	case wire.TypeReadCommitted, wire.TypeReadSealed:
		var seq uint64
		if seq, err = wire.DecodePosition(f.Body); err == nil {
			err = r.position(f.Type == wire.TypeReadSealed, core.Seq(seq))
		}
	case wire.TypeRefused, wire.TypeError:
		err = convert.FrameError(f.Body)
	default:
		err = core.Errorf(core.CodeBadFrame, "unexpected frame %d on a read stream", f.Type)
	}
	if err != nil {
		r.lost(err)
		return
	}
	r.g.pump()
}

// position notes how far the extent may be read, or its end. An end that contradicts what is known is not believed.
func (r *reader) position(sealed bool, seq core.Seq) error {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	s := r.s
	r.hearLocked()
	r.g.touchLocked(s)
	r.told, r.upTo = true, max(r.upTo, seq)
	if sealed {
		if s.end && s.l != seq || seq+1 < s.rules.ReadFrom() {
			return core.Errorf(core.CodeCorrupt, "store %s says extent %s ends at %d; it was read up to %d, its end known as %d", r.store, s.extent.ID, seq, s.rules.ReadFrom()-1, s.l)
		}
		s.end, s.l = true, seq
		if s.timers() && !s.exhausted() {
			return core.Errorf(core.CodeCorrupt, "store %s has sent all of timer extent %s, but %d messages are missing", r.store, s.extent.ID, s.rules.Unread(seq))
		}
	}
	s.last = max(s.last, seq)
	if seq < s.rules.ReadFrom() {
		s.misses = 0
	}
	return nil
}

// hearLocked notes a sign of life of the store.
func (r *reader) hearLocked() { r.heard, r.probe = r.g.h.deps.Now(), firstProbe }

// offer gives the share what came, in so many bytes, by f, which is called with the group's mutex held. Nothing is
// given to a share that was removed. A message that the share does not take is released.
func (r *reader) offer(b *buffer, bytes int, f func(s *share) error) error {
	r.g.mu.Lock()
	taken, err := !r.s.removed, error(nil)
	if taken {
		r.hearLocked()
		r.g.touchLocked(r.s)
		r.told = true
		r.granted -= bytes
		err = f(r.s)
	}
	r.g.mu.Unlock()
	if !taken || err != nil {
		b.Release()
	}
	return err
}

// batches offers what came to the share. Bytes with a wrong checksum are never delivered: another replica is asked.
func (r *reader) batches(body []byte, m *ws.Message) error {
	for len(body) > 0 {
		batch, read, rest, err := records.Batch(body)
		if err != nil {
			return core.Errorf(core.CodeCorrupt, "batch at %d of extent %s: %w", batch.Base, r.s.extent.ID, err)
		}
		body = rest
		var b *buffer
		if read.Bytes, b = hold(read.Bytes, m); b != nil {
			read.Buffer = b
		}
		err = r.offer(b, len(batch.Bytes), func(s *share) error {
			if s.end && batch.Last() > s.l { // of a replica that has not heard of the end
				return core.Errorf(core.CodeCorrupt, "store %s sends batch %d of extent %s, which ends at %d", r.store, batch.Base, s.extent.ID, s.l)
			}
			s.last = max(s.last, batch.Last())
			err := s.rules.Offer(read, r.heard)
			if err == nil {
				s.misses = 0
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// due offers messages of a timer extent to the share.
func (r *reader) due(body []byte, more bool, m *ws.Message) error {
	read, err := records.Due(body)
	if err != nil {
		return core.Errorf(core.CodeCorrupt, "timer extent %s: %w", r.s.extent.ID, err)
	}
	var b *buffer
	if read.Bytes, b = hold(read.Bytes, m); b != nil {
		read.Buffer = b
	}
	return r.offer(b, len(body), func(s *share) error {
		r.more, s.misses = more, 0
		return s.rules.OfferDue(read, r.heard)
	})
}

// buffer counts the references to one websocket message that holds batches.
type buffer struct {
	m    *ws.Message
	refs atomic.Int32
}

// Release implements dispatch.Buffer. A nil buffer holds nothing.
func (b *buffer) Release() {
	if b == nil {
		return
	}
	if b.refs.Add(-1) == 0 {
		b.m.Release()
	}
}

// smallPart of a message is less than one in so many bytes. A backlog comes in messages of 1 MiB with batches of a
// tenth of that, which must not be copied here, and once more when they are handed out.
const smallPart = 16

// hold keeps the records' bytes: by a reference to the message, or, for what is a small part of it, by a copy (and
// nil), so that one stuck record does not keep a whole message: only until its share has read on for a while, see
// dispatch, or that many times its batch.
func hold(bytes []byte, m *ws.Message) ([]byte, *buffer) {
	if smallPart*len(bytes) < len(m.Bytes) {
		return append([]byte(nil), bytes...), nil
	}
	m.Retain()
	b := &buffer{m: m}
	b.refs.Store(1)
	return bytes, b
}
