package wire

import (
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
)

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
	TypeDue           FrameType = 36 // Due: of a timer extent

	// consumer → output host
	TypeConsumeHello  FrameType = 40 // columba.v1.ConsumeHello
	TypeConsumeCredit FrameType = 41 // Credit; with FlagRecall it is answered by the same
	TypeAck           FrameType = 42 // Settled
	TypeNack          FrameType = 43 // Nack
	TypeReject        FrameType = 44 // Nack (delay unused)
	TypeExtend        FrameType = 45 // Extend
	TypeReturn        FrameType = 46 // Settled: never handed to the application, not counted as an attempt
	// TypeConsumeClose, empty: deliver no more. The host answers with the same, the consumer returns what arrived before
	// that and was not handed out, and closes again: that ends the stream.
	TypeConsumeClose FrameType = 47
	// TypeConfirm, Position: the host answers with the same once it has applied the settlements before it. Sent only if
	// ConsumeHelloOK says so.
	TypeConfirm FrameType = 52
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

const (
	// FlagTokens on TypeDeliver: tokens follow the records; on TypeHandle: the extent's token follows.
	FlagTokens uint16 = 1
	// FlagMore on TypeDue: more is due than the credit allows.
	FlagMore uint16 = 1
	// FlagRecall on TypeConsumeCredit: from the consumer, give back the messages that it may still be sent; from the host,
	// so many were.
	FlagRecall uint16 = 1
)

// knownFrameFlags are the flag bits this build understands on a frame of type t.
func knownFrameFlags(t FrameType) uint16 {
	switch t {
	case TypeDeliver, TypeHandle:
		return FlagTokens
	case TypeDue:
		return FlagMore
	case TypeConsumeCredit:
		return FlagRecall
	}
	return 0
}

// AppendFrameHeader writes the header of a frame with a body of bodyLen bytes.
func AppendFrameHeader(dst []byte, t FrameType, flags uint16, stream uint32, bodyLen int) []byte {
	dst = append(dst, byte(t), FrameVersion)
	dst = binary.LittleEndian.AppendUint16(dst, flags)
	dst = binary.LittleEndian.AppendUint32(dst, stream)
	return binary.LittleEndian.AppendUint32(dst, uint32(bodyLen))
}

// AppendFrame writes header and body.
func AppendFrame(dst []byte, t FrameType, stream uint32, body []byte) []byte {
	dst = slices.Grow(dst, FrameHeaderLen+len(body))
	return append(AppendFrameHeader(dst, t, 0, stream, len(body)), body...)
}

// BeginFrame writes a header whose length EndFrame fills in once the body has been appended: at is where it stands.
func BeginFrame(dst []byte, t FrameType, flags uint16, stream uint32) (out []byte, at int) {
	return AppendFrameHeader(dst, t, flags, stream, 0), len(dst)
}

// EndFrame completes the header at at.
func EndFrame(dst []byte, at int) {
	binary.LittleEndian.PutUint32(dst[at+8:], uint32(len(dst)-at-FrameHeaderLen))
}

// NextFrame reads the first frame of a websocket message and returns what follows it. A length beyond the message is
// CodeBadFrame; a version above FrameVersion or an unknown flag is CodeVersion. Never allocates on success.
func NextFrame(msg []byte) (f Frame, rest []byte, err error) {
	if len(msg) < FrameHeaderLen {
		return Frame{}, nil, core.Errorf(core.CodeBadFrame, "frame header is cut off after %d bytes", len(msg))
	}
	f = Frame{
		Type:    FrameType(msg[0]),
		Version: msg[1],
		Flags:   binary.LittleEndian.Uint16(msg[2:]),
		Stream:  binary.LittleEndian.Uint32(msg[4:]),
	}
	n, follow := binary.LittleEndian.Uint32(msg[8:]), msg[FrameHeaderLen:]
	switch {
	case f.Version == 0 || f.Type == 0:
		return Frame{}, nil, core.Errorf(core.CodeBadFrame, "frame has type %d and version %d; both count from 1", f.Type, f.Version)
	case f.Version > FrameVersion:
		return Frame{}, nil, core.Errorf(core.CodeVersion, "frame of type %d has version %d; this host speaks up to %d", f.Type, f.Version, FrameVersion)
	case f.Flags&^knownFrameFlags(f.Type) != 0:
		return Frame{}, nil, core.Errorf(core.CodeVersion, "flags %#x of a frame of type %d are of a newer version", f.Flags, f.Type)
	case uint64(n) > uint64(len(follow)):
		return Frame{}, nil, core.Errorf(core.CodeBadFrame, "frame of type %d says %d bytes of body but %d follow", f.Type, n, len(follow))
	}
	f.Body = follow[:n:n]
	return f, follow[n:], nil
}
