package wire

import "encoding/binary"

// Past is the history of a message in a retry queue, besides its attempts, in an extra field: settled u16 | not counted
// u16 | epoch u64, and if it is not 0 unsure u8.
type Past struct {
	Settled uint16 // deliveries of a life before, which ended in the dead letter queue
	Excused uint16 // deliveries since then that do not count
	Epoch   uint64 // of the group that parked it
	Unsure  uint8  // of the excused ones: handed out, or about to be, by an output host that died
}

const pastLen = 12

// ReadPast returns the history in the extra fields; zero without one.
func ReadPast(extra []byte) Past {
	for b := range eachExtra(extra, extraPast) {
		if len(b) != pastLen && len(b) != pastLen+1 {
			continue
		}
		p := Past{Settled: binary.LittleEndian.Uint16(b), Excused: binary.LittleEndian.Uint16(b[2:]), Epoch: binary.LittleEndian.Uint64(b[4:])}
		if len(b) > pastLen {
			p.Unsure = b[pastLen]
		}
		return p
	}
	return Past{}
}

// WithPast returns a copy of valid extra fields with this history in place of any other.
func WithPast(extra []byte, p Past) []byte {
	b := binary.LittleEndian.AppendUint16(make([]byte, 0, pastLen+1), p.Settled)
	b = binary.LittleEndian.AppendUint16(b, p.Excused)
	b = binary.LittleEndian.AppendUint64(b, p.Epoch)
	if p.Unsure > 0 {
		b = append(b, p.Unsure)
	}
	return setExtra(extra, extraPast, b)
}

// WithoutPast is a copy of valid extra fields that says nothing of a past.
func WithoutPast(extra []byte) []byte { return setExtra(extra, extraPast, nil) }
