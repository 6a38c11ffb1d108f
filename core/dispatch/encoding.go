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
// written. Those before are read as the rules of upgradeFlags and upgrade say.
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
	version, rest := body[0], body[1:]
	ok := true
	if version == stateVersion {
		rest, ok = st.policies.decode(rest)
		st.told = true
	}
	if !ok {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint of %d bytes has damaged policies", len(blob))
	}
	done, rest, err := decodeWindow(version, rest)
	if err != nil {
		return State{}, err
	}
	st.done = *done
	if !st.decodeEntries(rest, version) {
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
func (st *State) decodeEntries(b []byte, version byte) (ok bool) {
	n, b, ok := uvarint(b, uint64(len(b)))
	if !ok {
		return false
	}
	var entries []entry
	at, messages := place{st.done.Frontier() + 1, 0}, 0
	for range n {
		var e entry
		if b, ok = e.decode(b, version, &at); !ok || messages+int(e.count) > maxMessages {
			return false
		}
		messages += int(e.count)
		entries = append(entries, e)
	}
	if messages > 0 {
		st.messages = make(map[core.Seq]entry, messages)
	}
	for _, e := range entries {
		first, count := e.first, e.count
		e.first, e.count = 0, 0
		for i := range core.Seq(count) {
			st.messages[first+i] = e
		}
	}
	return len(b) == 0
}

// decode reads an entry, and moves the place on behind it.
func (e *entry) decode(b []byte, version byte, at *place) (rest []byte, ok bool) {
	var gap, count, attempts, size uint64
	if gap, b, ok = uvarint(b, math.MaxUint64); !ok {
		return nil, false
	}
	if count, b, ok = uvarint(b, maxMessages-1); !ok {
		return nil, false
	}
	count++
	if next := uint64(at.next); gap > math.MaxUint64-next || count > math.MaxUint64-next-gap {
		return nil, false
	}
	e.first, e.count = at.next+core.Seq(gap), uint32(count)
	at.next = e.first + core.Seq(count)
	var with uint64
	if version == stateVersion {
		with, b, ok = e.decodeFlags(b)
	} else {
		with, b, ok = e.upgradeFlags(b, version)
	}
	if !ok {
		return nil, false
	}
	if attempts, b, ok = uvarint(b, math.MaxUint16); !ok || attempts == 0 && (version != stateVersion || !e.dies()) {
		return nil, false
	}
	e.attempts = uint16(attempts)
	if with&excusedBit != 0 {
		var excused uint64
		if excused, b, ok = uvarint(b, attempts); !ok || excused == 0 {
			return nil, false
		}
		e.excused = uint16(excused)
	}
	if uint16(e.unsure) > e.excused {
		return nil, false
	}
	if e.hasDue() {
		delta, size := binary.Varint(b)
		if size <= 0 {
			return nil, false
		}
		at.due += delta
		if e.due, b = at.due, b[size:]; e.due < 0 || e.due > maxDue {
			return nil, false
		}
	}
	if with&textBit != 0 {
		if size, b, ok = uvarint(b, MaxReason); !ok || size > uint64(len(b)) || size == 0 {
			return nil, false
		}
		e.text, b = string(b[:size]), b[size:]
	}
	if with&metadataBit != 0 {
		if size, b, ok = uvarint(b, core.MaxMetadata); !ok || size > uint64(len(b)) || size == 0 {
			return nil, false
		}
		e.metadata, b = string(b[:size]), b[size:]
	}
	if version != stateVersion {
		e.upgrade(at)
	}
	return b, true
}

// decodeFlags reads the flags; with has the bits of what follows.
func (e *entry) decodeFlags(b []byte) (with uint64, rest []byte, ok bool) {
	flags, b, ok := uvarint(b, 1<<flagBits-1)
	if !ok {
		return 0, nil, false
	}
	e.kind, e.failure = kind(flags&3), Failure(flags>>failureShift&7)
	to, reason := flags>>toShift&3, flags>>reasonShift&7
	if e.failure > Lapsed || to >= Destinations || reason >= reasons || e.kind != kindTransferring && to+reason > 0 {
		return 0, nil, false
	}
	e.to, e.reason = Destination(to), Reason(reason)
	e.unsure, e.held = uint8(flags>>unsureShift&3), flags&heldBit != 0
	if e.held && e.kind != kindLocked {
		return 0, nil, false
	}
	return flags, b, true
}
