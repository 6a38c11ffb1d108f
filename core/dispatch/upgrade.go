package dispatch

// Versions of checkpoints that earlier builds wrote. They are read, and never written:
//
//	1  the window has ranges only; no entry is excused, has metadata or leaves for the retry queue
//	2  the window may have bits, and entries may be excused
//	3  entries may have metadata, and may leave for the retry queue
//
// They have no policies. Flags are one byte: the kind, 2 bits; the failure, 2 bits; text, excused, metadata, a bit
// each. A due counts from that of the entry before, from 0 after an entry without one. The kinds 0 and 1 are those of
// today. The others become:
//
//	3  leaves for the retry queue      kindTransferring to the retry queue, Failed
//	2  had its last attempt: blocked, or perhaps in the dead letter queue already
//	                                   kindTransferring to the dead letter queue: rejected ones as Failed, those without a failure, which expired, as Expired or
//	                                   Swept with an attempt less, others as Exhausted
//
// So whoever resumes a blocked one of those looks for it before it appends it, and blocks it again in a group that
// still blocks.
const (
	plainVersion = 1
	bitsVersion  = 2
	parkVersion  = 3
)

const (
	oldTextBit     = 1 << 4
	oldExcusedBit  = 1 << 5
	oldMetadataBit = 1 << 6
	oldEnded       = 2
	oldDeparting   = 3
)

// oldFlags reads the flags of an earlier version.
func (d *decoder) oldFlags(e *entry, version byte) (with uint64) {
	flags, known := d.byte(), byte(2*oldTextBit-1)
	if version >= bitsVersion {
		known |= oldExcusedBit
	}
	if version >= parkVersion {
		known |= oldMetadataBit
	}
	old := flags & 3
	d.must(flags&^known == 0 && (old != oldDeparting || version >= parkVersion))
	e.failure = Failure(flags >> 2 & 3)
	switch {
	case old == oldDeparting:
		e.kind, e.to, e.reason = kindTransferring, RetryQueue, Failed
	case old != oldEnded:
		e.kind = kind(old)
	default:
		e.kind, e.to = kindTransferring, DeadLetterQueue
		switch e.failure {
		case NoFailure:
			e.reason = Expired
		case Rejected:
			e.reason = Failed
		default:
			e.reason = Exhausted
		}
	}
	for _, bit := range [][2]uint64{{oldTextBit, textBit}, {oldExcusedBit, excusedBit}, {oldMetadataBit, metadataBit}} {
		if uint64(flags)&bit[0] != 0 {
			with |= bit[1]
		}
	}
	return with
}

// upgrade is done after an entry of an earlier version was read.
func (e *entry) upgrade(at *place) {
	if !e.dies() {
		return
	}
	at.due = 0
	if e.reason == Expired {
		e.attempts--
		e.excused = min(e.excused, e.attempts)
		if e.attempts == 0 {
			e.reason = Swept
		}
	}
}
