package wire

import (
	"encoding/binary"
	"math"

	"github.com/columbamq/columba/core"
)

// Publish is TypePublish: first u64 | records. The publisher numbers its records on a stream from 1; First is the
// number of the first record here.
type Publish struct {
	First   uint64
	Records []byte
}

// Append writes the body.
func (p *Publish) Append(dst []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, p.First), p.Records...)
}

// Decode reads a body; Records aliases it. It does not look at the records: see CheckRecords.
func (p *Publish) Decode(body []byte) error {
	if len(body) < 8+RecordHeaderLen {
		return errShort("publish", len(body))
	}
	first := binary.LittleEndian.Uint64(body)
	if first == 0 || first > math.MaxUint64-MaxBatchRecords {
		return core.Errorf(core.CodeBadFrame, "publish begins at number %d; records are numbered from 1", first)
	}
	p.First, p.Records = first, body[8:]
	return nil
}

// AppendPublishHead writes a Publish frame up to its records, of recordsLen bytes, which the caller sends after it.
func AppendPublishHead(dst []byte, stream uint32, first uint64, recordsLen int) []byte {
	dst = AppendFrameHeader(dst, TypePublish, 0, stream, 8+recordsLen)
	return binary.LittleEndian.AppendUint64(dst, first)
}

// AckStatus is the outcome of a run of published records.
type AckStatus uint8

const (
	AckOK      AckStatus = 0 // durable; Extent and Base are set
	AckRefused AckStatus = 1 // definitely not stored; Code says why
	AckUnknown AckStatus = 2 // may or may not be stored
)

// AckRun is one run of a PublishAck: Count records from number First share an outcome; AckOK ones have seqs from Base.
type AckRun struct {
	First  uint64
	Count  uint32
	Status AckStatus
	Extent core.ExtentID
	Base   core.Seq
	Code   core.Code // with AckRefused and AckUnknown; ≤ 64 bytes
}

// PublishAck is TypePublishAck: runs in any order, each published record in exactly one run of one ack.
// Body: n u32 | runs {first u64, count u32, status u8, code_len u8, reserved u16, then extent 16 bytes and base u64
// with AckOK, else the code}.
type PublishAck struct {
	Runs []AckRun
}

const ackRunLen = 16 // the fixed part

// Append writes the body. A Code longer than MaxReasonCode is cut.
func (a *PublishAck) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(a.Runs)))
	for i := range a.Runs {
		r := &a.Runs[i]
		dst = binary.LittleEndian.AppendUint64(dst, r.First)
		dst = binary.LittleEndian.AppendUint32(dst, r.Count)
		if r.Status == AckOK {
			dst = append(dst, byte(r.Status), 0, 0, 0)
			dst = append(dst, r.Extent.ID[:]...)
			dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Base))
			continue
		}
		code := clipCode(r.Code)
		dst = append(dst, byte(r.Status), byte(len(code)), 0, 0)
		dst = append(dst, code...)
	}
	return dst
}

// Decode reads a body into a, reusing Runs. It allocates for more runs than fit and for codes outside the catalogue
// only.
func (a *PublishAck) Decode(body []byte) error {
	c := cursor{b: body}
	n := c.u32()
	a.Runs = a.Runs[:0]
	if uint64(n)*ackRunLen > uint64(len(c.b)) {
		return errShort("publish ack", len(body))
	}
	for range n {
		r := AckRun{First: c.u64(), Count: c.u32(), Status: AckStatus(c.u8())}
		codeLen, reserved := int(c.u8()), c.u16()
		if r.Status == AckOK {
			r.Extent, r.Base = core.ExtentID{ID: c.id()}, core.Seq(c.u64())
		} else {
			r.Code = codeOf(c.take(codeLen))
		}
		switch {
		case c.short:
			return errShort("publish ack", len(body))
		case r.Status > AckUnknown || reserved != 0:
			return core.Errorf(core.CodeVersion, "publish ack has status %d of a newer version", r.Status)
		case r.Status == AckOK && (codeLen != 0 || !validRun(r.Base, r.Count)):
			return core.Errorf(core.CodeBadFrame, "publish ack of %d records from seq %d is malformed", r.Count, r.Base)
		case codeLen > MaxReasonCode || !validRun(core.Seq(r.First), r.Count):
			return core.Errorf(core.CodeBadFrame, "publish ack of %d records from number %d is malformed", r.Count, r.First)
		}
		a.Runs = append(a.Runs, r)
	}
	return c.end("publish ack")
}
