// Package wire owns the data plane's bytes: records, batches and frames, their limits and checksums.
package wire

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/columbamq/columba/core"
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
	Origin       core.Receipt // of a message in a retry queue or a dead letter queue
	ReasonCode   []byte
	Reason       []byte
	LastConsumer []byte
	Extra        []byte // skippable type-length-value fields
	Codec        Codec
	Payload      []byte
}

// Flag bits of a record: which attributes follow, in the order of the bits. A set bit means a value that is not zero
// and not empty, so that a record has one encoding only.
const (
	recordID           uint32 = 1 << iota // 16 bytes
	recordProducer                        // 16 bytes | seq u64
	recordKey                             // u8 length | bytes
	recordPriority                        // u8
	recordDeliverAt                       // i64
	recordDelay                           // i64
	recordExpireAt                        // i64
	recordAttempts                        // u16
	recordPolls                           // u16
	recordFirstEnqueue                    // i64
	recordHeaders                         // u16 length | bytes
	recordTraceParent                     // u8 length | bytes
	recordMetadata                        // u16 length | bytes
	recordOrigin                          // extent 16 bytes | seq u64
	recordReasonCode                      // u8 length | bytes
	recordReason                          // u16 length | bytes
	recordLastConsumer                    // u8 length | bytes
	recordExtra                           // the rest of the attributes
)

// The payload's codec has two bits of the flags.
const (
	codecShift        = 24
	codecMask  uint32 = 3 << codecShift
)

const (
	attributeFlags = recordExtra<<1 - 1
	knownFlags     = attributeFlags | codecMask
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lengthCRC are the tables by which recordCRC takes in the four bytes of the length at once: a call of crc32.Update for
// them would cost as much as a small record.
var lengthCRC = func() (t [4][256]uint32) {
	for i := range 256 {
		c := castagnoli[i]
		for k := range t {
			t[k][i] = c
			c = castagnoli[c&0xff] ^ c>>8
		}
	}
	return t
}()

// recordCRC is the checksum of one whole encoded record: its length field and all that follows the crc field.
func recordCRC(record []byte) uint32 {
	c := ^binary.LittleEndian.Uint32(record)
	c = lengthCRC[3][c&0xff] ^ lengthCRC[2][c>>8&0xff] ^ lengthCRC[1][c>>16&0xff] ^ lengthCRC[0][c>>24]
	return crc32.Update(^c, castagnoli, record[8:])
}
