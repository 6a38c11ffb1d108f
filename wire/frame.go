package wire

import "github.com/columbamq/columba/core"

// FrameVersion is the newest frame version this build speaks.
const FrameVersion = 1

// FrameHeaderLen is the size of: type u8 | version u8 | flags u16 | stream u32 | length u32.
const FrameHeaderLen = 12

// FrameType names a frame. Numbers are stable.
type FrameType uint8

const (
	// Any direction. Bodies: protobuf (api columba.v1).
	TypeError       FrameType = 1 // columba.v1.Error; closes the stream (stream 0: the connection)
	TypeDrain       FrameType = 2 // empty: the host is going away, move
	TypeReconfigure FrameType = 3 // columba.v1.Reconfigure

	// publisher → input host
	TypePublishHello FrameType = 10 // columba.v1.PublishHello
	TypePublish      FrameType = 11 // Publish
	TypePublishClose FrameType = 12 // empty
	// input host → publisher
	TypePublishHelloOK FrameType = 13 // columba.v1.PublishHelloOK
	TypePublishAck     FrameType = 14 // PublishAck
	TypeThrottled      FrameType = 15 // columba.v1.Throttled

	// input host → store
	TypeOpenAppend  FrameType = 20 // columba.v1.OpenAppend
	TypeAppend      FrameType = 21 // Append
	TypeCommitted   FrameType = 22 // Position: committed seq
	TypeCloseAppend FrameType = 23 // empty
	// store → input host
	TypeOpened    FrameType = 24 // columba.v1.Opened
	TypeAppendAck FrameType = 25 // Position: durable seq
	TypeRefused   FrameType = 26 // columba.v1.Error; the stream is closed

	// output host → store
	TypeOpenRead   FrameType = 30 // columba.v1.OpenRead
	TypeReadCredit FrameType = 31 // Position: bytes granted on top
	TypeCloseRead  FrameType = 32 // empty
	// store → output host
	TypeBatches       FrameType = 33 // one or more batches back to back
	TypeReadCommitted FrameType = 34 // Position: committed seq (everything up to it was or will be sent)
	TypeReadSealed    FrameType = 35 // Position: L

	// consumer → output host
	TypeConsumeHello  FrameType = 40 // columba.v1.ConsumeHello
	TypeConsumeCredit FrameType = 41 // Credit
	TypeAck           FrameType = 42 // Settled
	TypeNack          FrameType = 43 // Nack
	TypeReject        FrameType = 44 // Nack (delay unused)
	TypeExtend        FrameType = 45 // Extend
	TypeReturn        FrameType = 46 // Settled: never handed to the application, not counted as an attempt
	TypeConsumeClose  FrameType = 47 // empty
	// output host → consumer
	TypeConsumeHelloOK FrameType = 48 // columba.v1.ConsumeHelloOK
	TypeHandle         FrameType = 49 // Handle
	TypeDeliver        FrameType = 50 // Deliver
	TypeAckResult      FrameType = 51 // AckResult
)

// Frame is one decoded frame; Body aliases the message it came from.
type Frame struct {
	Type    FrameType
	Version uint8
	Flags   uint16
	Stream  uint32
	Body    []byte
}

// AppendFrameHeader writes the header of a frame with a body of bodyLen bytes.
func AppendFrameHeader(dst []byte, t FrameType, flags uint16, stream uint32, bodyLen int) []byte {
	panic("unwritten")
}

// AppendFrame writes header and body.
func AppendFrame(dst []byte, t FrameType, stream uint32, body []byte) []byte { panic("unwritten") }

// BeginFrame writes a header whose length EndFrame fills in once the body has been appended: at is where it stands.
func BeginFrame(dst []byte, t FrameType, flags uint16, stream uint32) (out []byte, at int) {
	panic("unwritten")
}

// EndFrame completes the header at at.
func EndFrame(dst []byte, at int) { panic("unwritten") }

// NextFrame reads the first frame of a websocket message and returns what follows it. A length beyond the message is
// CodeBadFrame; a version above FrameVersion is CodeVersion. Never allocates on success.
func NextFrame(msg []byte) (f Frame, rest []byte, err error) { panic("unwritten") }

// Publish is TypePublish: first u64 | records. The publisher numbers its records on a stream from 1; First is the
// number of the first record here.
type Publish struct {
	First   uint64
	Records []byte
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

// Credit is TypeConsumeCredit: how many more messages and bytes the consumer takes, on top of what it granted before.
type Credit struct {
	Messages uint32
	Bytes    uint64
}

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

// Nack is TypeNack and TypeReject. DelayMillis < 0 means "the group's backoff".
type Nack struct {
	Handle      uint32
	Seq         core.Seq
	Attempt     uint16
	DelayMillis int64
	Reason      []byte // ≤ MaxReason
	Metadata    []byte // replaced metadata; empty = unchanged
}

// Extend is TypeExtend: the lock of this delivery now ends Millis from the host's now.
type Extend struct {
	Handle  uint32
	Seq     core.Seq
	Attempt uint16
	Millis  int64
}

// Handle is TypeHandle: the short name of an extent on this stream, sent before its first use.
type Handle struct {
	Handle uint32
	Extent core.ExtentID
}

// DeliverRun is Count records with seqs from Base, delivered as Attempt, enqueued (their batch's append time) at Enqueued unix µs.
type DeliverRun struct {
	Base     core.Seq
	Count    uint32
	Attempt  uint16
	Enqueued int64
}

// Deliver is TypeDeliver: handle u32 | n u32 | runs {base u64, count u32, attempt u16, reserved u16, enqueued i64} |
// records_len u32 | records | tokens. Tokens (u16 length each, one per record, in order) are there with FlagTokens only.
type Deliver struct {
	Handle  uint32
	Runs    []DeliverRun
	Records []byte
	Tokens  []byte
}

// FlagTokens on TypeDeliver: tokens follow the records.
const FlagTokens uint16 = 1

// AckResult is TypeAckResult: settlements that were refused.
type AckResult struct {
	Entries []AckFailure
}

// AckFailure is one refused settlement.
type AckFailure struct {
	Handle  uint32
	Seq     core.Seq
	Attempt uint16
	Code    core.Code
}

// PublishAck is TypePublishAck: runs in any order, each published record in exactly one run of one ack.
type PublishAck struct {
	Runs []AckRun
}
