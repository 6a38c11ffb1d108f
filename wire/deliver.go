package wire

import (
	"encoding/binary"
	"slices"

	"github.com/columbamq/columba/core"
)

// Credit is TypeConsumeCredit: how many more messages and bytes the consumer takes, on top of what it granted before.
// Body: messages u32 | bytes u64.
type Credit struct {
	Messages uint32
	Bytes    uint64
}

const creditLen = 12

// Append writes the body.
func (c *Credit) Append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, c.Messages), c.Bytes)
}

// Decode reads a body into c.
func (c *Credit) Decode(body []byte) error {
	if len(body) != creditLen {
		return core.Errorf(core.CodeBadFrame, "credit has a body of %d bytes, not %d", len(body), creditLen)
	}
	*c = Credit{Messages: binary.LittleEndian.Uint32(body), Bytes: binary.LittleEndian.Uint64(body[4:])}
	return nil
}

// Handle is TypeHandle: the short name of an extent on this stream, sent before its first use.
// Body: handle u32 | extent 16 bytes | token. The token (length u16, 1 … MaxToken bytes) is there with FlagTokens only;
// it aliases the body.
type Handle struct {
	Handle uint32
	Extent core.ExtentID
	Token  []byte
}

// Append writes the body.
func (h *Handle) Append(dst []byte) []byte {
	dst = append(binary.LittleEndian.AppendUint32(dst, h.Handle), h.Extent.ID[:]...)
	if len(h.Token) > 0 {
		dst = appendLong(dst, h.Token)
	}
	return dst
}

// Decode reads a body into h.
func (h *Handle) Decode(body []byte) error {
	c := cursor{b: body}
	*h = Handle{Handle: c.u32(), Extent: core.ExtentID{ID: c.id()}}
	if c.short {
		return errShort("handle", len(body))
	}
	if len(c.b) > 0 {
		h.Token = c.longBytes()
		if c.short || len(c.b) > 0 || !inRange(h.Token, MaxToken) {
			return core.Errorf(core.CodeBadFrame, "handle has a body of %d bytes, which do not hold an extent and its token", len(body))
		}
	}
	return nil
}

// DeliverRun is Count records with seqs from Base, delivered as Attempt, enqueued (their batch's append time) at
// Enqueued unix µs.
type DeliverRun struct {
	Base     core.Seq
	Count    uint32
	Attempt  uint16
	Enqueued int64
}

// Deliver is TypeDeliver: handle u32 | n u32 | runs {base u64, count u32, attempt u16, reserved u16, enqueued i64} |
// records_len u32 | records | tokens. Tokens (u16 length each, one per record, in order) are there with FlagTokens
// only.
type Deliver struct {
	Handle  uint32
	Runs    []DeliverRun
	Records []byte
	Tokens  []byte
}

const (
	deliverFixedLen = 12 // handle, n, records_len
	deliverRunLen   = 24
)

// Append writes the body.
func (d *Deliver) Append(dst []byte) []byte {
	dst = slices.Grow(dst, deliverFixedLen+len(d.Runs)*deliverRunLen+len(d.Records)+len(d.Tokens))
	dst = appendDeliverRuns(dst, d.Handle, d.Runs, len(d.Records))
	return append(append(dst, d.Records...), d.Tokens...)
}

// AppendDeliverHead writes a Deliver frame up to its records, of recordsLen bytes, which the caller sends after it;
// then the tokens, of tokensLen bytes (with FlagTokens).
func AppendDeliverHead(dst []byte, stream uint32, flags uint16, handle uint32, runs []DeliverRun, recordsLen, tokensLen int) []byte {
	dst = slices.Grow(dst, FrameHeaderLen+deliverFixedLen+len(runs)*deliverRunLen)
	dst = AppendFrameHeader(dst, TypeDeliver, flags, stream, deliverFixedLen+len(runs)*deliverRunLen+recordsLen+tokensLen)
	return appendDeliverRuns(dst, handle, runs, recordsLen)
}

func appendDeliverRuns(dst []byte, handle uint32, runs []DeliverRun, recordsLen int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, handle)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(runs)))
	for _, r := range runs {
		dst = appendRun(dst, r.Base, r.Count, r.Attempt)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Enqueued))
	}
	return binary.LittleEndian.AppendUint32(dst, uint32(recordsLen))
}

// Decode reads a body into d, reusing Runs; Records and Tokens alias it. It checks that the runs can name the records,
// and that tokens, if any, are one per record; it does not look at the records themselves: see NextRecord,
// DecodeRecord.
func (d *Deliver) Decode(body []byte) error {
	c := cursor{b: body}
	handle, n := c.u32(), c.u32()
	*d = Deliver{Handle: handle, Runs: d.Runs[:0]}
	if c.short || uint64(n)*deliverRunLen > uint64(len(c.b)) {
		return errShort("deliver", len(body))
	}
	var records uint64
	for range n {
		r := DeliverRun{Base: core.Seq(c.u64()), Count: c.u32(), Attempt: c.u16()}
		reserved := c.u16()
		r.Enqueued = c.i64()
		if err := checkRun(r.Base, r.Count, reserved); err != nil {
			return err
		}
		records += uint64(r.Count)
		d.Runs = append(d.Runs, r)
	}
	length := c.u32()
	if c.short || uint64(length) > uint64(len(c.b)) {
		return errShort("deliver", len(body))
	}
	if records*RecordHeaderLen > uint64(length) {
		return core.Errorf(core.CodeBadFrame, "deliver frame names %d records but holds %d bytes of them", records, length)
	}
	d.Records, d.Tokens = c.take(int(length)), c.b
	if len(d.Tokens) > 0 && !validTokens(d.Tokens, records) {
		return core.Errorf(core.CodeBadFrame, "deliver frame does not hold one token for each of its %d records", records)
	}
	return nil
}

// AppendToken writes one token of Deliver.Tokens. A token has 1 to MaxToken bytes.
func AppendToken(dst, token []byte) []byte { return appendLong(dst, token) }

// NextToken splits the first token off Deliver.Tokens.
func NextToken(tokens []byte) (token, rest []byte, err error) {
	c := cursor{b: tokens}
	token = c.longBytes()
	if c.short || !inRange(token, MaxToken) {
		return nil, nil, core.Errorf(core.CodeBadFrame, "delivery token is cut off, empty or too long")
	}
	return token, c.b, nil
}

func validTokens(tokens []byte, records uint64) bool {
	var n uint64
	for ; len(tokens) > 0; n++ {
		_, rest, err := NextToken(tokens)
		if err != nil {
			return false
		}
		tokens = rest
	}
	return n == records
}
