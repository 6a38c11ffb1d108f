package wire

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// DecodeRecord decodes the first record of b into r and returns its encoded size. It verifies CRC, flags and every
// length. CodeBadRecord on damage, CodeVersion on unknown flags. Never allocates on success.
func DecodeRecord(b []byte, r *Record) (n int, err error) {
	n, err = recordSize(b)
	if err != nil {
		return 0, err
	}
	b = b[:n:n]
	if binary.LittleEndian.Uint32(b[4:]) != recordCRC(b) {
		return 0, core.Errorf(core.CodeBadRecord, "record of %d bytes does not match its checksum; send it again", n)
	}
	flags := binary.LittleEndian.Uint32(b[8:])
	attributes := int(binary.LittleEndian.Uint16(b[12:]))
	codec := Codec(flags & codecMask >> codecShift)
	if flags&^knownFlags != 0 || codec > CodecZstd || binary.LittleEndian.Uint16(b[14:]) != 0 {
		return 0, core.Errorf(core.CodeVersion, "record flags %#x are of a newer version; upgrade this host", flags)
	}
	if attributes > n-RecordHeaderLen {
		return 0, core.Errorf(core.CodeBadRecord, "record says %d bytes of attributes but %d follow", attributes, n-RecordHeaderLen)
	}
	*r = Record{Codec: codec, Payload: b[RecordHeaderLen+attributes:]}
	if len(r.Payload) > MaxPayload {
		return 0, core.Errorf(core.CodeTooLarge, "payload has %d bytes; at most %d are allowed", len(r.Payload), MaxPayload)
	}
	if flags &= attributeFlags; flags|uint32(attributes) == 0 {
		return n, nil
	}
	if flags == recordID && attributes == len(r.ID.ID) { // most records
		if r.ID.ID = core.ID(b[RecordHeaderLen:]); !r.ID.IsZero() {
			return n, nil
		}
	}
	if problem := r.decodeAttributes(flags, b[RecordHeaderLen:RecordHeaderLen+attributes]); problem != "" {
		return 0, core.Errorf(core.CodeBadRecord, "record is malformed: %s", problem)
	}
	return n, nil
}

// recordSize is the size of the first record of b, which holds all of it.
func recordSize(b []byte) (int, error) {
	if len(b) < RecordHeaderLen {
		return 0, core.Errorf(core.CodeBadRecord, "record header is cut off after %d bytes", len(b))
	}
	n := int64(binary.LittleEndian.Uint32(b)) + 8
	if n < RecordHeaderLen || n > MaxRecord {
		return 0, core.Errorf(core.CodeBadRecord, "record length %d is not in %d … %d", n, RecordHeaderLen, MaxRecord)
	}
	if n > int64(len(b)) {
		return 0, core.Errorf(core.CodeBadRecord, "record of %d bytes is cut off after %d", n, len(b))
	}
	return int(n), nil
}

// decodeAttributes returns the defect of the attributes, "" if there is none.
func (r *Record) decodeAttributes(flags uint32, attributes []byte) string {
	c := cursor{b: attributes}
	var present uint32 // the flags of what turned out not to be zero
	mark := func(flag uint32, ok bool) {
		if ok {
			present |= flag
		}
	}
	if flags&recordID != 0 {
		r.ID.ID = c.id()
		mark(recordID, !r.ID.IsZero())
	}
	if flags&recordProducer != 0 {
		r.Producer, r.ProducerSeq = c.id(), c.u64()
		mark(recordProducer, !r.Producer.IsZero() || r.ProducerSeq != 0)
	}
	if flags&recordKey != 0 {
		r.Key = c.shortBytes()
		mark(recordKey, inRange(r.Key, MaxKey))
	}
	if flags&recordPriority != 0 {
		r.Priority = c.u8()
		mark(recordPriority, r.Priority != 0)
	}
	present |= r.decodeTimes(flags, &c) | r.decodeTexts(flags, &c)
	switch {
	case c.short:
		return "its attributes are cut off"
	case present != flags:
		return "an attribute is flagged but empty, or too long"
	case len(c.b) != 0:
		return "bytes follow its last attribute"
	}
	return r.badTime()
}

// decodeTimes reads the attributes from deliver_at to first enqueue time and returns the flags of those not zero.
func (r *Record) decodeTimes(flags uint32, c *cursor) (present uint32) {
	for _, v := range [...]struct {
		flag uint32
		to   *int64
	}{{recordDeliverAt, &r.DeliverAt}, {recordDelay, &r.Delay}, {recordExpireAt, &r.ExpireAt}} {
		if flags&v.flag != 0 {
			if *v.to = c.i64(); *v.to != 0 {
				present |= v.flag
			}
		}
	}
	if flags&recordAttempts != 0 {
		if r.Attempts = c.u16(); r.Attempts != 0 {
			present |= recordAttempts
		}
	}
	if flags&recordPolls != 0 {
		if r.Polls = c.u16(); r.Polls != 0 {
			present |= recordPolls
		}
	}
	if flags&recordFirstEnqueue != 0 {
		if r.FirstEnqueue = c.i64(); r.FirstEnqueue != 0 {
			present |= recordFirstEnqueue
		}
	}
	return present
}

// decodeTexts reads the attributes from the headers to the end and returns the flags of those that are not empty and in
// range.
func (r *Record) decodeTexts(flags uint32, c *cursor) (present uint32) {
	mark := func(flag uint32, ok bool) {
		if ok {
			present |= flag
		}
	}
	if flags&recordHeaders != 0 {
		r.Headers = c.longBytes()
		mark(recordHeaders, len(r.Headers) > 0 && validHeaders(r.Headers))
	}
	if flags&recordTraceParent != 0 {
		r.TraceParent = c.shortBytes()
		mark(recordTraceParent, inRange(r.TraceParent, MaxTraceParent))
	}
	if flags&recordMetadata != 0 {
		r.Metadata = c.longBytes()
		mark(recordMetadata, len(r.Metadata) > 0)
	}
	if flags&recordOrigin != 0 {
		r.Origin = core.Receipt{Extent: core.ExtentID{ID: c.id()}, Seq: core.Seq(c.u64())}
		mark(recordOrigin, r.Origin != core.Receipt{})
	}
	if flags&recordReasonCode != 0 {
		r.ReasonCode = c.shortBytes()
		mark(recordReasonCode, inRange(r.ReasonCode, MaxReasonCode))
	}
	if flags&recordReason != 0 {
		r.Reason = c.longBytes()
		mark(recordReason, inRange(r.Reason, MaxReason))
	}
	if flags&recordLastConsumer != 0 {
		r.LastConsumer = c.shortBytes()
		mark(recordLastConsumer, inRange(r.LastConsumer, MaxConsumerName))
	}
	if flags&recordExtra != 0 {
		r.Extra = c.take(len(c.b))
		mark(recordExtra, len(r.Extra) > 0 && validExtra(r.Extra))
	}
	return present
}

func inRange(v []byte, most int) bool { return len(v) > 0 && len(v) <= most }
