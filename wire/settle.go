package wire

import (
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
)

// SeqRun is Count seqs from Base that were delivered as the given attempt.
type SeqRun struct {
	Base    core.Seq
	Count   uint32
	Attempt uint16
}

// Settled is TypeAck and TypeReturn: handle u32 | n u32 | runs {base u64, count u32, attempt u16, reserved u16}.
// Decoding appends the runs to a slice of the caller's, so that it need not allocate.
type Settled struct {
	Handle uint32
	Runs   []SeqRun
}

const seqRunLen = 16

// Append writes the body.
func (s *Settled) Append(dst []byte) []byte {
	dst = slices.Grow(dst, 8+len(s.Runs)*seqRunLen)
	dst = binary.LittleEndian.AppendUint32(dst, s.Handle)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Runs)))
	for _, r := range s.Runs {
		dst = appendRun(dst, r.Base, r.Count, r.Attempt)
	}
	return dst
}

// Decode reads a body into s, reusing Runs.
func (s *Settled) Decode(body []byte) error {
	c := cursor{b: body}
	handle, n := c.u32(), c.u32()
	s.Handle, s.Runs = handle, s.Runs[:0]
	if c.short || uint64(n)*seqRunLen != uint64(len(c.b)) {
		return core.Errorf(core.CodeBadFrame, "settlement of %d runs has a body of %d bytes", n, len(body))
	}
	if n > MaxSettledRuns {
		return core.Errorf(core.CodeTooLarge, "settlement has %d runs; at most %d are allowed in one frame", n, MaxSettledRuns)
	}
	for range n {
		r := SeqRun{Base: core.Seq(c.u64()), Count: c.u32(), Attempt: c.u16()}
		if err := checkRun(r.Base, r.Count, c.u16()); err != nil {
			return err
		}
		s.Runs = append(s.Runs, r)
	}
	return nil
}

func appendRun(dst []byte, base core.Seq, count uint32, attempt uint16) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(base))
	dst = binary.LittleEndian.AppendUint32(dst, count)
	return binary.LittleEndian.AppendUint32(dst, uint32(attempt)) // attempt u16 | reserved u16
}

func checkRun(base core.Seq, count uint32, reserved uint16) error {
	if reserved != 0 {
		return core.Errorf(core.CodeVersion, "a run of seqs uses a field of a newer version")
	}
	if !validRun(base, count) {
		return core.Errorf(core.CodeBadFrame, "%d seqs from %d are not a run", count, base)
	}
	return nil
}

// Nack is TypeNack and TypeReject: handle u32 | attempt u16 | reason_len u16 | seq u64 | delay i64 | metadata_len u32 |
// reason | metadata. DelayMillis < 0 means "the group's backoff".
type Nack struct {
	Handle      uint32
	Seq         core.Seq
	Attempt     uint16
	DelayMillis int64
	Reason      []byte // ≤ MaxReason
	Metadata    []byte // replaced metadata; empty = unchanged
}

// Append writes the body. A longer Reason is cut to MaxReason; longer Metadata (MaxAttributes) is refused by the
// receiver.
func (n *Nack) Append(dst []byte) []byte {
	reason := clipText(n.Reason, MaxReason)
	dst = binary.LittleEndian.AppendUint32(dst, n.Handle)
	dst = binary.LittleEndian.AppendUint16(dst, n.Attempt)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(reason)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(n.Seq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(n.DelayMillis))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(n.Metadata)))
	return append(append(dst, reason...), n.Metadata...)
}

// Decode reads a body into n; Reason and Metadata alias it.
func (n *Nack) Decode(body []byte) error {
	c := cursor{b: body}
	d := Nack{Handle: c.u32(), Attempt: c.u16()}
	reason := int(c.u16())
	d.Seq, d.DelayMillis = core.Seq(c.u64()), c.i64()
	metadata := c.u32()
	if c.short || uint64(reason)+uint64(metadata) != uint64(len(c.b)) {
		return core.Errorf(core.CodeBadFrame, "nack has a body of %d bytes, which its lengths do not add up to", len(body))
	}
	switch {
	case reason > MaxReason:
		return core.Errorf(core.CodeTooLarge, "reason has %d bytes; at most %d are allowed", reason, MaxReason)
	case metadata > MaxAttributes:
		return core.Errorf(core.CodeTooLarge, "metadata has %d bytes; at most %d are allowed", metadata, MaxAttributes)
	case d.Seq == 0:
		return core.Errorf(core.CodeBadFrame, "nack names seq 0; seqs count from 1")
	case d.DelayMillis > MaxMillis:
		return core.Errorf(core.CodeBadArgument, "delay of %d ms is beyond the year 9999", d.DelayMillis)
	}
	d.Reason, d.Metadata = c.take(reason), c.take(int(metadata))
	*n = d
	return nil
}

// Extend is TypeExtend: the lock of this delivery now ends Millis from the host's now.
// Body: handle u32 | attempt u16 | reserved u16 | seq u64 | millis i64.
type Extend struct {
	Handle  uint32
	Seq     core.Seq
	Attempt uint16
	Millis  int64
}

const extendLen = 24

// Append writes the body.
func (e *Extend) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, e.Handle)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(e.Attempt)) // attempt u16 | reserved u16
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Seq))
	return binary.LittleEndian.AppendUint64(dst, uint64(e.Millis))
}

// Decode reads a body into e.
func (e *Extend) Decode(body []byte) error {
	if len(body) != extendLen {
		return core.Errorf(core.CodeBadFrame, "extend has a body of %d bytes, not %d", len(body), extendLen)
	}
	c := cursor{b: body}
	d := Extend{Handle: c.u32(), Attempt: c.u16()}
	reserved := c.u16()
	d.Seq, d.Millis = core.Seq(c.u64()), c.i64()
	if err := checkRun(d.Seq, 1, reserved); err != nil {
		return err
	}
	if d.Millis < 0 || d.Millis > MaxMillis {
		return core.Errorf(core.CodeBadArgument, "extending a lock by %d ms is not possible; use 0 or more", d.Millis)
	}
	*e = d
	return nil
}
