package wire

import "github.com/columbamq/columba/core"

// BatchHeaderLen is the size of: magic/version u16 | flags u16 | count u32 | base seq u64 | append time i64 |
// extent checksum u32 | header crc u32.
const BatchHeaderLen = 32

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
func PutBatchHeader(dst []byte, h BatchHeader) { panic("unwritten") }

// DecodeBatch checks the header (magic, version, header CRC, count within limits) of a batch that fills b exactly.
// It does not look at the records: see CheckRecords and ExtendChecksum.
func DecodeBatch(b []byte) (Batch, error) { panic("unwritten") }

// NextBatch splits the first batch off a run of batches by walking its records' lengths.
func NextBatch(b []byte) (batch Batch, rest []byte, err error) { panic("unwritten") }

// ExtendChecksum rolls an extent's checksum on over records: crc32c over the records' crcs.
func ExtendChecksum(sum uint32, records []byte) uint32 { panic("unwritten") }
