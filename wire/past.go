package wire

import "encoding/binary"

// Past is what a record of a parked message says of it besides its attempts, in an extra field: settled u16 | excused u16 | epoch u64.
type Past struct {
	Settled uint16 // deliveries of a life before, which ended in the dead letter queue
	Excused uint16 // deliveries since then that do not count
	Epoch   uint64 // of the group that parked it
}

const pastLen = 12

// ReadPast is the zero Past for a record that says nothing.
func ReadPast(extra []byte) Past {
	for b := range eachExtra(extra, extraPast) {
		if len(b) == pastLen {
			return Past{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint64(b[4:])}
		}
	}
	return Past{}
}

// WithPast is a copy of valid extra fields that says this, and no other past.
func WithPast(extra []byte, p Past) []byte {
	b := binary.LittleEndian.AppendUint16(make([]byte, 0, pastLen), p.Settled)
	b = binary.LittleEndian.AppendUint16(b, p.Excused)
	return setExtra(extra, extraPast, binary.LittleEndian.AppendUint64(b, p.Epoch))
}

// WithoutPast is a copy of valid extra fields that says nothing of a past.
func WithoutPast(extra []byte) []byte { return setExtra(extra, extraPast, nil) }
