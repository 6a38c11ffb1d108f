package wire

import "encoding/binary"

// timeAt is where the deliver_at or the delay of a valid record is or would be: they have the same size and the same
// place.
func timeAt(record []byte) (flags uint32, at int) {
	flags, at = binary.LittleEndian.Uint32(record[8:]), RecordHeaderLen
	if flags&recordID != 0 {
		at += 16
	}
	if flags&recordProducer != 0 {
		at += 24
	}
	if flags&recordKey != 0 {
		at += 1 + int(record[at])
	}
	if flags&recordPriority != 0 {
		at++
	}
	return flags, at
}

// DeliverAt is the due time of one encoded record whose CRC was verified before, unix ms; 0 without one.
func DeliverAt(record []byte) int64 {
	flags, at := timeAt(record)
	if flags&recordDeliverAt == 0 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(record[at:]))
}

// FixDeliverAt is when a whole, valid record is to be delivered at the earliest, in unix ms, 0 at any time. One with a
// delay says it from now on: the delay becomes a deliver_at, in place, now and the delay after it.
func FixDeliverAt(record []byte, now int64) int64 {
	flags, at := timeAt(record)
	switch {
	case flags&recordDeliverAt != 0:
		return int64(binary.LittleEndian.Uint64(record[at:]))
	case flags&recordDelay == 0:
		return 0
	}
	due := now + int64(binary.LittleEndian.Uint64(record[at:]))
	if due > MaxMillis { // no record says that; it stays a delay, for whoever refuses it
		return due
	}
	binary.LittleEndian.PutUint32(record[8:], flags&^recordDelay|recordDeliverAt)
	binary.LittleEndian.PutUint64(record[at:], uint64(due))
	binary.LittleEndian.PutUint32(record[4:], recordCRC(record))
	return due
}
