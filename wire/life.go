package wire

import (
	"encoding/binary"
	"slices"
)

// Life is how a dead letter ended once before: after that it was merged, and died again.
type Life struct {
	Attempts     uint16 // of that life
	Total        uint16 // of that and all before it, also those that are forgotten
	DeadSince    int64  // unix µs
	ReasonCode   []byte
	Reason       []byte
	LastConsumer []byte
}

// Bounds of the lives that a record carries: the oldest are forgotten, and what was said last is cut.
const (
	MaxLives      = 8
	MaxLifeReason = 256
)

// A life in an extra field: attempts u16 | total u16 | dead since i64 | reason code, u8 length | reason, u16 length |
// last consumer, u8 length.
// AppendLife adds a life behind those that extra has; other fields stay.
func AppendLife(extra []byte, l Life) []byte {
	lives := 1
	for range eachExtra(extra, extraLife) {
		lives++
	}
	out := make([]byte, 0, len(extra)+512)
	for f := range allExtra(extra) {
		if f.kind == extraLife && lives > MaxLives {
			lives--
			continue
		}
		out = append(out, f.whole...)
	}
	l.Reason = clipText(l.Reason, MaxLifeReason)
	l.ReasonCode = clipText(l.ReasonCode, MaxReasonCode)
	l.LastConsumer = clipText(l.LastConsumer, MaxConsumerName)
	out = binary.LittleEndian.AppendUint16(out, extraLife)
	at := len(out)
	out = append(out, 0, 0)
	out = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(out, l.Attempts), l.Total)
	out = binary.LittleEndian.AppendUint64(out, uint64(l.DeadSince))
	out = appendShort(appendLong(appendShort(out, l.ReasonCode), l.Reason), l.LastConsumer)
	binary.LittleEndian.PutUint16(out[at:], uint16(len(out)-at-2))
	return out
}

// Lives are those that extra has, the oldest first; what is damaged is left out. They alias extra.
func Lives(extra []byte) (out []Life) {
	for value := range eachExtra(extra, extraLife) {
		c := cursor{b: value}
		l := Life{Attempts: c.u16(), Total: c.u16(), DeadSince: int64(c.u64()), ReasonCode: c.shortBytes(), Reason: c.longBytes(), LastConsumer: c.shortBytes()}
		if !c.short && len(c.b) == 0 && l.DeadSince >= 0 && l.DeadSince/1000 <= MaxMillis {
			out = append(out, l)
		}
	}
	return slices.Clip(out)
}
