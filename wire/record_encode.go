package wire

import (
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
)

// AppendRecord encodes r, CRC included. It fails (CodeTooLarge, CodeBadArgument) before writing anything.
func AppendRecord(dst []byte, r *Record) ([]byte, error) {
	if err := r.validate(); err != nil {
		return dst, err
	}
	flags, attributes := r.layout()
	if attributes > MaxAttributes {
		return dst, core.Errorf(core.CodeTooLarge, "attributes have %d bytes; at most %d are allowed", attributes, MaxAttributes)
	}
	at := len(dst)
	size := RecordHeaderLen + attributes + len(r.Payload)
	dst = slices.Grow(dst, size)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(size-8))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(attributes)) // attrs_len u16 | reserved u16
	if attributes > 0 {
		dst = r.appendAttributes(dst, flags)
	}
	dst = append(dst, r.Payload...)
	binary.LittleEndian.PutUint32(dst[at+4:], recordCRC(dst[at:]))
	return dst, nil
}

// AttributesLen is the size of the record's attributes; at most MaxAttributes can be encoded.
func (r *Record) AttributesLen() int {
	_, size := r.layout()
	return size
}

// layout is the record's flags and the size of its attributes.
func (r *Record) layout() (flags uint32, size int) {
	add := func(present bool, flag uint32, n int) {
		if present {
			flags |= flag
			size += n
		}
	}
	add(!r.ID.IsZero(), recordID, 16)
	add(!r.Producer.IsZero() || r.ProducerSeq != 0, recordProducer, 24)
	add(len(r.Key) > 0, recordKey, 1+len(r.Key))
	add(r.Priority != 0, recordPriority, 1)
	add(r.DeliverAt != 0, recordDeliverAt, 8)
	add(r.Delay != 0, recordDelay, 8)
	add(r.ExpireAt != 0, recordExpireAt, 8)
	add(r.Attempts != 0, recordAttempts, 2)
	add(r.Polls != 0, recordPolls, 2)
	add(r.FirstEnqueue != 0, recordFirstEnqueue, 8)
	add(len(r.Headers) > 0, recordHeaders, 2+len(r.Headers))
	add(len(r.TraceParent) > 0, recordTraceParent, 1+len(r.TraceParent))
	add(len(r.Metadata) > 0, recordMetadata, 2+len(r.Metadata))
	add(r.Origin != core.Receipt{}, recordOrigin, 24)
	add(len(r.ReasonCode) > 0, recordReasonCode, 1+len(r.ReasonCode))
	add(len(r.Reason) > 0, recordReason, 2+len(r.Reason))
	add(len(r.LastConsumer) > 0, recordLastConsumer, 1+len(r.LastConsumer))
	add(len(r.Extra) > 0, recordExtra, len(r.Extra))
	return flags | uint32(r.Codec)<<codecShift, size
}

func (r *Record) appendAttributes(dst []byte, flags uint32) []byte {
	if flags&recordID != 0 {
		dst = append(dst, r.ID.ID[:]...)
	}
	if flags&recordProducer != 0 {
		dst = append(dst, r.Producer[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, r.ProducerSeq)
	}
	if flags&recordKey != 0 {
		dst = appendShort(dst, r.Key)
	}
	if flags&recordPriority != 0 {
		dst = append(dst, r.Priority)
	}
	dst = r.appendTimes(dst, flags)
	if flags&recordHeaders != 0 {
		dst = appendLong(dst, r.Headers)
	}
	if flags&recordTraceParent != 0 {
		dst = appendShort(dst, r.TraceParent)
	}
	if flags&recordMetadata != 0 {
		dst = appendLong(dst, r.Metadata)
	}
	if flags&recordOrigin != 0 {
		dst = append(dst, r.Origin.Extent.ID[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Origin.Seq))
	}
	if flags&recordReasonCode != 0 {
		dst = appendShort(dst, r.ReasonCode)
	}
	if flags&recordReason != 0 {
		dst = appendLong(dst, r.Reason)
	}
	if flags&recordLastConsumer != 0 {
		dst = appendShort(dst, r.LastConsumer)
	}
	return append(dst, r.Extra...)
}

// appendTimes writes the attributes from deliver_at to first enqueue time.
func (r *Record) appendTimes(dst []byte, flags uint32) []byte {
	if flags&recordDeliverAt != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.DeliverAt))
	}
	if flags&recordDelay != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Delay))
	}
	if flags&recordExpireAt != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.ExpireAt))
	}
	if flags&recordAttempts != 0 {
		dst = binary.LittleEndian.AppendUint16(dst, r.Attempts)
	}
	if flags&recordPolls != 0 {
		dst = binary.LittleEndian.AppendUint16(dst, r.Polls)
	}
	if flags&recordFirstEnqueue != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.FirstEnqueue))
	}
	return dst
}

// appendShort writes a value with a one-byte length.
func appendShort(dst, v []byte) []byte {
	return append(append(dst, byte(len(v))), v...)
}

// appendLong writes a value with a two-byte length.
func appendLong(dst, v []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(v))), v...)
}
