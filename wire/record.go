// Package wire owns the data plane's bytes: records, batches and frames, their limits and checksums.
package wire

import "github.com/columbamq/columba/core"

// Limits, checked before anything is allocated.
const (
	RecordHeaderLen  = 16 // len u32 | crc u32 | flags u32 | attrs_len u16 | reserved u16
	MaxPayload       = 16 << 20
	MaxAttributes    = 64<<10 - 1
	MaxKey           = 128
	MaxReason        = 1024
	MaxConsumerName  = 128
	MaxBatchRecords  = 65535
	MaxBatchBytes    = 1 << 20 // target of the writer; one larger record travels alone
	InternalHeadroom = 64 << 10
)

// Codec names how the payload is packed.
type Codec uint8

const (
	CodecNone Codec = 0
	CodecZstd Codec = 1
)

// Record is one message as it travels and rests. A zero field is absent and costs nothing on the wire. Byte slices of a
// decoded Record alias the buffer it was decoded from.
type Record struct {
	ID           core.MessageID
	Producer     core.ID // reserved for idempotent publish
	ProducerSeq  uint64
	Key          []byte
	Priority     uint8 // reserved
	DeliverAt    int64 // unix ms; at most one of DeliverAt and Delay
	Delay        int64 // ms from the input host's clock
	ExpireAt     int64 // unix ms
	Attempts     uint16
	Polls        uint16
	FirstEnqueue int64  // unix µs
	Headers      []byte // encoded: see AppendHeaders, EachHeader
	TraceParent  []byte
	Metadata     []byte
	Origin       core.Receipt // of a parked or dead-lettered message
	ReasonCode   []byte
	Reason       []byte
	LastConsumer []byte
	Extra        []byte // skippable type-length-value fields
	Codec        Codec
	Payload      []byte
}

// AppendRecord encodes r, CRC included. It fails (CodeTooLarge, CodeBadArgument) before writing anything.
func AppendRecord(dst []byte, r *Record) ([]byte, error) { panic("unwritten") }

// DecodeRecord decodes the first record of b into r and returns its encoded size. It verifies CRC, flags and every
// length. CodeBadRecord on damage, CodeVersion on unknown flags. Never allocates on success.
func DecodeRecord(b []byte, r *Record) (n int, err error) { panic("unwritten") }

// NextRecord splits the first encoded record off b by its length alone, without verifying its CRC.
func NextRecord(b []byte) (record, rest []byte, err error) { panic("unwritten") }

// CheckRecords verifies that b is whole, valid records (lengths, CRCs, flags; payload ≤ maxPayload) and counts them.
func CheckRecords(b []byte, maxPayload int) (count int, err error) { panic("unwritten") }

// PayloadOf is the payload of one encoded record whose CRC was verified before.
func PayloadOf(record []byte) []byte { panic("unwritten") }

// AppendHeaders encodes name/value pairs for Record.Headers.
func AppendHeaders(dst []byte, pairs ...[2]string) ([]byte, error) { panic("unwritten") }

// EachHeader calls yield for every pair until it returns false.
func EachHeader(headers []byte, yield func(name, value []byte) bool) error { panic("unwritten") }
