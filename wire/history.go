package wire

import "encoding/binary"

// History says of a message in a retry queue what became of its earlier attempts, in an extra field: settled u16 | not
// counted u16 | epoch u64, and if it is not 0 unsure u8.
type History struct {
	Settled    uint16 // deliveries of a life before, which ended in the dead letter queue
	NotCounted uint16 // deliveries since then that do not count
	Epoch      uint64 // of the group when it sent the message there
	Unsure     uint8  // of the ones not counted: handed out, or about to be, by an output host that died
}

const historyLen = 12

// ReadHistory returns the history in the extra fields; zero without one.
func ReadHistory(extra []byte) History {
	for b := range eachExtra(extra, extraHistory) {
		if len(b) != historyLen && len(b) != historyLen+1 {
			continue
		}
		p := History{Settled: binary.LittleEndian.Uint16(b), NotCounted: binary.LittleEndian.Uint16(b[2:]), Epoch: binary.LittleEndian.Uint64(b[4:])}
		if len(b) > historyLen {
			p.Unsure = b[historyLen]
		}
		return p
	}
	return History{}
}

// WithHistory returns a copy of valid extra fields with this history in place of any other.
func WithHistory(extra []byte, p History) []byte {
	b := binary.LittleEndian.AppendUint16(make([]byte, 0, historyLen+1), p.Settled)
	b = binary.LittleEndian.AppendUint16(b, p.NotCounted)
	b = binary.LittleEndian.AppendUint64(b, p.Epoch)
	if p.Unsure > 0 {
		b = append(b, p.Unsure)
	}
	return setExtra(extra, extraHistory, b)
}

// WithoutHistory is a copy of valid extra fields without a history.
func WithoutHistory(extra []byte) []byte { return setExtra(extra, extraHistory, nil) }
