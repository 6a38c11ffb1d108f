package dispatch

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// DecodeState reads a checkpoint's blob: CodeCorrupt on damage, CodeNewerFormat for a later version.
func DecodeState(blob []byte) (State, error) {
	if len(blob) < 1+crc32.Size || len(blob) > maxStateSize {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint has %d bytes", len(blob))
	}
	body, sum := blob[:len(blob)-crc32.Size], binary.LittleEndian.Uint32(blob[len(blob)-crc32.Size:])
	if crc32.Checksum(body, castagnoli) != sum {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint of %d bytes fails its checksum", len(blob))
	}
	var st State
	version, d := body[0], decoder{b: body[1:]}
	if version >= policiesVersion && version <= stateVersion {
		st.policies.decode(&d)
		st.told = true
	}
	if d.bad {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint of %d bytes has damaged policies", len(blob))
	}
	if version == stateVersion {
		st.covers = d.covers()
	}
	if d.bad {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint of %d bytes has damaged covers", len(blob))
	}
	done, rest, err := decodeWindow(version, d.b)
	if err != nil {
		return State{}, err
	}
	st.done, d.b = *done, rest
	if st.decodeEntries(&d, version); d.bad {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint of %d bytes has damaged entries", len(blob))
	}
	return st, nil
}

// decodeWindow reads what is done, in the form of a version.
func decodeWindow(version byte, b []byte) (done *acklevel.Window, rest []byte, err error) {
	switch {
	case version == plainVersion:
		return acklevel.DecodeRanges(b, maxStateSize)
	case version > plainVersion && version <= stateVersion:
		done, _, rest, err := acklevel.Decode(b, maxStateSize)
		return done, rest, err
	}
	return nil, nil, core.Errorf(core.CodeNewerFormat, "checkpoint has version %d, this build reads up to %d; use a newer build", version, stateVersion)
}

// decodeEntries reads all entries before it makes room for their messages: a few bytes may tell of many.
func (st *State) decodeEntries(d *decoder, version byte) {
	var entries []entry
	at, messages := place{st.done.Frontier() + 1, 0}, 0
	for n := d.uvarint(uint64(len(d.b))); n > 0 && !d.bad; n-- {
		e := d.entry(version, &at)
		messages += int(e.count)
		d.must(messages <= maxMessages)
		entries = append(entries, e)
	}
	if d.must(len(d.b) == 0); d.bad || messages == 0 {
		return
	}
	st.messages = make(map[core.Seq]entry, messages)
	for _, e := range entries {
		first, count := e.first, e.count
		e.first, e.count = 0, 0
		for i := range core.Seq(count) {
			st.messages[first+i] = e
		}
	}
}

// decoder reads parts of a blob from the front. Once one is damaged it is bad, and yields zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) must(ok bool) {
	if !ok {
		d.bad, d.b = true, nil
	}
}

func (d *decoder) byte() byte {
	if d.must(len(d.b) > 0); d.bad {
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if d.must(n > 0 && v <= most); d.bad {
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if d.must(n > 0); d.bad {
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bytes reads a length up to most, and as many bytes.
func (d *decoder) bytes(most uint64) []byte {
	n := d.uvarint(most)
	if d.must(n <= uint64(len(d.b))); d.bad {
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// text reads bytes that are left out when there are none.
func (d *decoder) text(most uint64) string {
	v := d.bytes(most)
	d.must(len(v) > 0)
	return string(v)
}

// decode reads what append wrote, without the policies that are not known here: a later build may have them.
func (p *policyStates) decode(d *decoder) {
	whole, before := len(d.b), byte(0)
	for n := d.uvarint(MaxPolicies); n > 0 && !d.bad; n-- {
		id := d.byte()
		d.must(id > before) // they rise
		state := d.bytes(MaxPolicies)
		if !d.bad && int(id) <= len(p) {
			p[id-1] = string(state)
		}
		before = id
	}
	d.must(whole-len(d.b) <= MaxPolicies)
}

// entry reads an entry, and moves the place on behind it.
func (d *decoder) entry(version byte, at *place) (e entry) {
	gap, count, next := d.uvarint(math.MaxUint64), d.uvarint(maxMessages-1)+1, uint64(at.next)
	d.must(gap <= math.MaxUint64-next && count <= math.MaxUint64-next-gap)
	e.first, e.count = at.next+core.Seq(gap), uint32(count)
	at.next = e.first + core.Seq(count)
	var with uint64
	if version >= policiesVersion {
		with = d.flags(&e)
	} else {
		with = d.oldFlags(&e, version)
	}
	e.attempts = uint16(d.uvarint(math.MaxUint16))
	d.must(e.attempts > 0 || version >= policiesVersion && e.dies())
	if with&notCountedBit != 0 {
		e.notCounted = uint16(d.uvarint(uint64(e.attempts)))
		d.must(e.notCounted > 0)
	}
	d.must(uint16(e.unsure) <= e.notCounted)
	if e.hasDue() {
		e.due = at.due + d.varint()
		d.must(e.due >= 0 && e.due <= maxDue)
		at.due = e.due
	}
	if with&textBit != 0 {
		e.text = d.text(MaxReason)
	}
	if with&metadataBit != 0 {
		e.metadata = d.text(core.MaxMetadata)
	}
	if version < policiesVersion {
		e.upgrade(at)
	}
	return e
}

// flags reads those of an entry; with has the bits of what follows.
func (d *decoder) flags(e *entry) (with uint64) {
	with = d.uvarint(1<<flagBits - 1)
	e.kind, e.failure = kind(with&3), Failure(with>>failureShift&7)
	e.to, e.reason = Destination(with>>toShift&3), Reason(with>>reasonShift&7)
	e.unsure, e.held = uint8(with>>unsureShift&3), with&heldBit != 0
	d.must(e.failure <= Expired && e.to < Destinations && e.reason < reasons)
	d.must(e.kind == kindTransferring || e.to == 0 && e.reason == 0)
	d.must(e.kind == kindLocked || e.dies() || !e.held)
	return with
}

// Versions of checkpoints that earlier builds wrote. They are read, and never written:
//
//	1  the window has ranges only; no entry has attempts that do not count, has metadata or leaves for the retry queue
//	2  the window may have bits, and entries may have attempts that do not count
//	3  entries may have metadata, and may leave for the retry queue
//	4  as today, without covers
//
// Those before 4 have no policies. Their flags are one byte: the kind, 2 bits; the failure, 2 bits; text, notCounted,
// metadata, a bit each. A due counts from that of the entry before, from 0 after an entry without one. The kinds 0 and
// 1 are those of today. The others become:
//
//	3  leaves for the retry queue      kindTransferring to the retry queue, Failed
//	2  had its last attempt: blocked, or perhaps in the dead letter queue already
//	                                   kindTransferring to the dead letter queue: rejected ones as Failed, those without a failure, which expired, as ExpiredRetry or
//	                                   Swept with an attempt less, others as Exhausted
//
// So whoever resumes a blocked one of those looks for it before it appends it, and blocks it again in a group that
// still blocks.
const (
	plainVersion    = 1
	bitsVersion     = 2
	retryVersion    = 3
	policiesVersion = 4
)

const (
	oldTextBit       = 1 << 4
	oldNotCountedBit = 1 << 5
	oldMetadataBit   = 1 << 6
	oldEnded         = 2
	oldDeparting     = 3
)

// oldFlags reads the flags of an earlier version.
func (d *decoder) oldFlags(e *entry, version byte) (with uint64) {
	flags, known := d.byte(), byte(2*oldTextBit-1)
	if version >= bitsVersion {
		known |= oldNotCountedBit
	}
	if version >= retryVersion {
		known |= oldMetadataBit
	}
	old := flags & 3
	d.must(flags&^known == 0 && (old != oldDeparting || version >= retryVersion))
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
			e.reason = ExpiredRetry
		case Rejected:
			e.reason = Failed
		default:
			e.reason = Exhausted
		}
	}
	for _, bit := range [][2]uint64{{oldTextBit, textBit}, {oldNotCountedBit, notCountedBit}, {oldMetadataBit, metadataBit}} {
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
	if e.reason == ExpiredRetry {
		e.attempts--
		e.notCounted = min(e.notCounted, e.attempts)
		if e.attempts == 0 {
			e.reason = Swept
		}
	}
}
