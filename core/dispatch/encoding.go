package dispatch

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// The blob, little-endian:
//
//	version u8 | policies | window (see acklevel) | n uvarint | n × entry | crc32c u32 of all before
//	policies: n uvarint | n × (id u8, rising from 1 | length uvarint | bytes), at most MaxPolicies in all
//	entry: gap uvarint | count−1 uvarint | flags uvarint | attempts uvarint | with excused: excused uvarint |
//	       but for blocked and dead ones: due varint, ms since the last due before | with text: length uvarint, text |
//	       with metadata: length uvarint, metadata
//
// A gap is the number of seqs since the end of the entry before (the first: since the frontier). Version 4 is always
// written. Those before are read as the rules of upgrade.go say.
const stateVersion = 4

// flags of an entry, from the lowest bit: the kind, 2 bits; the failure of the last attempt, 3 bits; and the bits
// below. Bits that have no meaning are zero: a meaning for one of them is a new version.
const (
	failureShift = 2
	textBit      = 1 << 5
	excusedBit   = 1 << 6 // up to here they fit into one byte
	metadataBit  = 1 << 7
	toShift      = 8  // the destination, 2 bits; only of kindTransferring, like the reason
	reasonShift  = 10 // 3 bits
	unsureShift  = 13 // 2 bits: how many attempts do not count since they were unsure
	heldBit      = 1 << 15
	flagBits     = 16
)

const (
	maxMessages  = 4 * MaxOutstanding // of a checkpoint: those of two owners, each with as many as a share holds
	maxStateSize = 2 * MaxCheckpoint
	maxDue       = math.MaxInt64 / int64(time.Millisecond)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendState appends the blob; if cut is set, those entries that fit, whole is false otherwise when not all do.
func appendState(dst []byte, policies *policyStates, done *acklevel.Window, entries []entry, cut bool) (blob []byte, written []entry, whole bool) {
	const room = MaxCheckpoint - crc32.Size
	start := len(dst)
	b, _ := done.Append(policies.append(append(dst, stateVersion)))
	if over := messagesOf(entries) - maxMessages; over > 0 && !cut {
		return dst, nil, false
	} else if over > 0 {
		entries = without(entries, over)
	}
	if cut { // find which fit, then write them
		entries = fitting(entries, done.Frontier(), room-(len(b)-start)-binary.MaxVarintLen64)
	}
	b = binary.AppendUvarint(b, uint64(len(entries)))
	at := place{done.Frontier() + 1, 0}
	for i := range entries {
		if b, at = appendEntry(b, &entries[i], at); !cut && len(b)-start > room {
			return dst, nil, false
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), entries, true
}

// messagesOf is how many messages entries tell of.
func messagesOf(entries []entry) (n int) {
	for i := range entries {
		n += int(entries[i].count)
	}
	return n
}

// without leaves out n messages of the highest seqs, but those that leave.
func without(entries []entry, n int) []entry {
	out := slices.Clone(entries)
	for i := len(out) - 1; i >= 0 && n > 0; i-- {
		if e := &out[i]; !e.leaves {
			drop := min(int(e.count), n)
			e.count -= uint32(drop)
			n -= drop
		}
	}
	return slices.DeleteFunc(out, func(e entry) bool { return e.count == 0 })
}

// fitting leaves out those of the highest seqs that do not fit. Messages that leave for another queue may be there
// already, and must not be handed out from here, too: they stay as long as there is anything else to leave out.
func fitting(entries []entry, frontier core.Seq, room int) []entry {
	lowest := func(n int) []entry { // and all that leaves
		out := slices.Clone(entries[:n])
		for _, e := range entries[n:] {
			if e.leaves {
				out = append(out, e)
			}
		}
		return out
	}
	n := sort.Search(len(entries), func(n int) bool {
		some := lowest(n + 1)
		return prefix(some, frontier, room) < len(some)
	})
	some := lowest(n)
	return some[:prefix(some, frontier, room)]
}

// prefix is how many of the first entries fit.
func prefix(entries []entry, frontier core.Seq, room int) int {
	var b []byte
	at := place{frontier + 1, 0}
	for i := range entries {
		if b, at = appendEntry(b[:0], &entries[i], at); len(b) > room {
			return i
		}
		room -= len(b)
	}
	return len(entries)
}

// place is what an entry is written relative to: the seq after the entry before, and the last due.
type place struct {
	next core.Seq
	due  int64
}

func appendEntry(b []byte, e *entry, at place) ([]byte, place) {
	b = binary.AppendUvarint(b, uint64(e.first-at.next))
	b = binary.AppendUvarint(b, uint64(e.count-1))
	flags := uint64(e.kind) | uint64(e.failure)<<failureShift | uint64(e.unsure)<<unsureShift
	if e.held {
		flags |= heldBit
	}
	if e.kind == kindTransferring {
		flags |= uint64(e.to)<<toShift | uint64(e.reason)<<reasonShift
	}
	if e.text != "" {
		flags |= textBit
	}
	if e.excused > 0 {
		flags |= excusedBit
	}
	if e.metadata != "" {
		flags |= metadataBit
	}
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, uint64(e.attempts))
	if e.excused > 0 {
		b = binary.AppendUvarint(b, uint64(e.excused))
	}
	at.next = e.first + core.Seq(e.count)
	if e.hasDue() {
		b = binary.AppendVarint(b, e.due-at.due)
		at.due = e.due
	}
	if e.text != "" {
		b = binary.AppendUvarint(b, uint64(len(e.text)))
		b = append(b, e.text...)
	}
	if e.metadata != "" {
		b = binary.AppendUvarint(b, uint64(len(e.metadata)))
		b = append(b, e.metadata...)
	}
	return b, at
}

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
	if version == stateVersion {
		st.policies.decode(&d)
		st.told = true
	}
	if d.bad {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint of %d bytes has damaged policies", len(blob))
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

// entry reads an entry, and moves the place on behind it.
func (d *decoder) entry(version byte, at *place) (e entry) {
	gap, count, next := d.uvarint(math.MaxUint64), d.uvarint(maxMessages-1)+1, uint64(at.next)
	d.must(gap <= math.MaxUint64-next && count <= math.MaxUint64-next-gap)
	e.first, e.count = at.next+core.Seq(gap), uint32(count)
	at.next = e.first + core.Seq(count)
	var with uint64
	if version == stateVersion {
		with = d.flags(&e)
	} else {
		with = d.oldFlags(&e, version)
	}
	e.attempts = uint16(d.uvarint(math.MaxUint16))
	d.must(e.attempts > 0 || version == stateVersion && e.dies())
	if with&excusedBit != 0 {
		e.excused = uint16(d.uvarint(uint64(e.attempts)))
		d.must(e.excused > 0)
	}
	d.must(uint16(e.unsure) <= e.excused)
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
	if version != stateVersion {
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
	d.must(e.failure <= Lapsed && e.to < Destinations && e.reason < reasons)
	d.must(e.kind == kindTransferring || e.to == 0 && e.reason == 0)
	d.must(e.kind == kindLocked || !e.held)
	return with
}
