package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/columbamq/columba/core"
)

// BatchHeaderLen is the size of: magic/version u16 | flags u16 | count u32 | base seq u64 | append time i64 |
// extent checksum u32 | header crc u32.
const BatchHeaderLen = 32

const (
	batchMagic   = 0xcb // first byte
	batchVersion = 1    // second byte
)

// BatchHeader describes a batch: what a store keeps as one value, the same bytes on every replica.
type BatchHeader struct {
	Flags      uint16
	Count      uint32
	Base       core.Seq
	AppendTime int64  // unix µs, of the input host; never goes back within an extent
	Checksum   uint32 // of the extent after this batch, rolling
}

// Last is the seq of the batch's last record.
func (h BatchHeader) Last() core.Seq { return h.Base + core.Seq(h.Count) - 1 }

// Batch is a decoded header and the records as they came; Bytes is the whole.
type Batch struct {
	BatchHeader
	Bytes   []byte
	Records []byte
}

// PutBatchHeader writes the header into dst[:BatchHeaderLen].
func PutBatchHeader(dst []byte, h BatchHeader) {
	dst = dst[:BatchHeaderLen]
	dst[0], dst[1] = batchMagic, batchVersion
	binary.LittleEndian.PutUint16(dst[2:], h.Flags)
	binary.LittleEndian.PutUint32(dst[4:], h.Count)
	binary.LittleEndian.PutUint64(dst[8:], uint64(h.Base))
	binary.LittleEndian.PutUint64(dst[16:], uint64(h.AppendTime))
	binary.LittleEndian.PutUint32(dst[24:], h.Checksum)
	binary.LittleEndian.PutUint32(dst[28:], crc32.Checksum(dst[:28], castagnoli))
}

// DecodeBatch checks the header (magic, version, header CRC, count within limits) of a batch that fills b exactly.
// It does not look at the records: see CheckRecords and ExtendChecksum. CodeBadRecord on damage, CodeVersion for a
// version or a flag this build does not know. Never allocates on success.
func DecodeBatch(b []byte) (Batch, error) {
	h, err := decodeBatchHeader(b)
	if err != nil {
		return Batch{}, err
	}
	return Batch{BatchHeader: h, Bytes: b, Records: b[BatchHeaderLen:]}, nil
}

func decodeBatchHeader(b []byte) (BatchHeader, error) {
	if len(b) < BatchHeaderLen {
		return BatchHeader{}, core.Errorf(core.CodeBadRecord, "batch header is cut off after %d bytes", len(b))
	}
	if b[0] != batchMagic {
		return BatchHeader{}, core.Errorf(core.CodeBadRecord, "batch begins with byte %#x, not %#x", b[0], batchMagic)
	}
	if b[1] != batchVersion {
		return BatchHeader{}, core.Errorf(core.CodeVersion, "batch has version %d; this build reads version %d", b[1], batchVersion)
	}
	if binary.LittleEndian.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli) {
		return BatchHeader{}, core.Errorf(core.CodeBadRecord, "batch header does not match its checksum")
	}
	h := BatchHeader{
		Flags:      binary.LittleEndian.Uint16(b[2:]),
		Count:      binary.LittleEndian.Uint32(b[4:]),
		Base:       core.Seq(binary.LittleEndian.Uint64(b[8:])),
		AppendTime: int64(binary.LittleEndian.Uint64(b[16:])),
		Checksum:   binary.LittleEndian.Uint32(b[24:]),
	}
	if h.Flags != 0 {
		return BatchHeader{}, core.Errorf(core.CodeVersion, "batch flags %#x are of a newer version; upgrade this host", h.Flags)
	}
	if h.Count == 0 || h.Count > MaxBatchRecords || int64(h.Count)*RecordHeaderLen > int64(len(b)-BatchHeaderLen) {
		return BatchHeader{}, core.Errorf(core.CodeBadRecord, "batch of %d bytes cannot hold %d records", len(b), h.Count)
	}
	if h.Base == 0 || uint64(h.Base) > math.MaxUint64-uint64(h.Count) {
		return BatchHeader{}, core.Errorf(core.CodeBadRecord, "batch of %d records cannot begin at seq %d", h.Count, h.Base)
	}
	return h, nil
}

// NextBatch splits the first batch off a run of batches by walking its records' lengths. Never allocates on success.
func NextBatch(b []byte) (batch Batch, rest []byte, err error) {
	h, err := decodeBatchHeader(b)
	if err != nil {
		return Batch{}, nil, err
	}
	end := BatchHeaderLen
	for i := range h.Count {
		n, err := recordSize(b[end:])
		if err != nil {
			return Batch{}, nil, core.Errorf(core.CodeOf(err), "record %d of the batch at seq %d: %w", i+1, h.Base, err)
		}
		end += n
	}
	whole := b[:end:end]
	return Batch{BatchHeader: h, Bytes: whole, Records: whole[BatchHeaderLen:]}, b[end:], nil
}

// ExtendChecksum rolls an extent's checksum on over records: crc32c over the records' crcs. The records' lengths must
// have been checked (CheckRecords, NextBatch); it stops where they are damaged.
func ExtendChecksum(sum uint32, records []byte) uint32 {
	for len(records) > 0 {
		record, rest, err := NextRecord(records)
		if err != nil {
			return sum
		}
		sum = crc32.Update(sum, castagnoli, record[4:8])
		records = rest
	}
	return sum
}
