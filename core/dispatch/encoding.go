package dispatch

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// The blob, little-endian:
//
//	version u8 | policies | covers | window (see acklevel) | n uvarint | n × entry | crc32c u32 of all before
//	policies: n uvarint | n × (id u8, rising from 1 | length uvarint | bytes), at most MaxPolicies in all
//	covers: n uvarint | n × (run 16 bytes, rising | written uvarint, unix µs), at most MaxCovers
//	entry: gap uvarint | count−1 uvarint | flags uvarint | attempts uvarint | with notCounted: notCounted uvarint |
//	       but for blocked and dead ones: due varint, ms since the last due before | with text: length uvarint, text |
//	       with metadata: length uvarint, metadata
//
// A gap is the number of seqs since the end of the entry before (the first: since the frontier). Version 5 is always
// written. Those before are read as the rules of oldFlags and upgrade say.
const stateVersion = 5

// flags of an entry, from the lowest bit: the kind, 2 bits; the failure of the last attempt, 3 bits; and the bits
// below. Bits that have no meaning are zero: a meaning for one of them is a new version.
const (
	failureShift  = 2
	textBit       = 1 << 5
	notCountedBit = 1 << 6 // up to here they fit into one byte
	metadataBit   = 1 << 7
	toShift       = 8  // the destination, 2 bits; only of kindTransferring, like the reason
	reasonShift   = 10 // 3 bits
	unsureShift   = 13 // 2 bits: how many attempts do not count since they were unsure
	heldBit       = 1 << 15
	flagBits      = 16
)

const (
	maxMessages  = 4 * MaxOutstanding // of a checkpoint: those of two owners, each with as many as a share holds
	maxStateSize = 2 * MaxCheckpoint
	maxDue       = math.MaxInt64 / int64(time.Millisecond)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// detail is how much a checkpoint tells: less, when it would not fit.
type detail uint8

const (
	everything      detail = iota
	withoutTexts           // not what consumers said
	withoutCovers          // nor which rows it covers: these are merged as if there were no later one. A row with less detail never covers any
	withoutMetadata        // nor the metadata that they left
	withoutFirst           // nor the locks of first attempts: those may be forgotten once per crash of an owner
	attemptsOnly           // nor other deadlines and reasons
	cutShort               // nor the attempts of the highest seqs, but of messages that leave
)

// fitted is a checkpoint that has as much detail as there is room for.
type fitted struct {
	blob    []byte
	level   detail
	written []entry
	needed  int // bytes of entries at the level withoutFirst; more when what is left out lies between those that are alike
}

// fit appends what is done and the entries.
func fit(dst []byte, policies *policyStates, c covers, done *acklevel.Window, entries []entry) fitted {
	f := fitted{needed: needed(entries, done.Frontier())}
	for ; ; f.level++ {
		if f.level == withoutCovers {
			if len(c) == 0 {
				continue
			}
			c = nil
		}
		entries = reduce(entries, f.level)
		var whole bool
		if f.blob, f.written, whole = appendState(dst, policies, c, done, entries, f.level == cutShort); whole && len(f.blob)-len(dst) <= MaxCheckpoint || f.level == cutShort {
			return f
		}
	}
}

// needed is how many bytes entries take at the level withoutFirst.
func needed(entries []entry, frontier core.Seq) (n int) {
	var room [64]byte
	at := place{frontier + 1, 0}
	for i := range entries {
		if e := entries[i]; !e.firstTry {
			e.text, e.metadata = "", ""
			var b []byte
			b, at = appendEntry(room[:0], &e, at)
			n += len(b)
		}
	}
	return n
}

// reduce leaves out what the level leaves out.
func reduce(entries []entry, level detail) []entry {
	if level == everything || level == withoutCovers || level == cutShort {
		return entries
	}
	out := entries[:0]
	for _, e := range slices.Clone(entries) {
		switch {
		case level == withoutTexts:
			e.text = ""
		case level == withoutMetadata:
			e.metadata = ""
		case level == withoutFirst && e.firstTry:
			continue
		case level == attemptsOnly && e.kind < kindBlocked: // an attempt that is unsure stays so
			if e.held {
				e.kind, e.held = kindWaiting, false
			}
			e.due, e.failure = 0, NoFailure
		}
		out = join(out, e)
	}
	return out
}

// Append appends the state's blob to dst, at most MaxCheckpoint bytes like a share's Checkpoint: what a share that
// never began would save.
func (st *State) Append(dst []byte) []byte {
	blob, _ := st.Fit(dst)
	return blob
}

// Fit is Append that reports whether the blob is whole: whether nothing but texts was left out for want of room.
func (st *State) Fit(dst []byte) (blob []byte, whole bool) {
	entries := make([]entry, 0, min(len(st.messages), 1024))
	for _, seq := range slices.Sorted(maps.Keys(st.messages)) {
		if st.done.Done(seq) { // by another owner whose state was merged
			continue
		}
		e := st.messages[seq]
		e.first, e.count, e.firstTry, e.leaves = seq, 1, e.kind == kindLocked && e.attempts == 1, e.kind == kindTransferring
		entries = join(entries, e)
	}
	f := fit(dst, &st.policies, st.covers, &st.done, entries)
	return f.blob, f.level <= withoutTexts
}

// appendState appends the blob; if cut is set, those entries that fit, whole is false otherwise when not all do.
func appendState(dst []byte, policies *policyStates, c covers, done *acklevel.Window, entries []entry, cut bool) (blob []byte, written []entry, whole bool) {
	const room = MaxCheckpoint - crc32.Size
	start := len(dst)
	b, _ := done.Append(c.append(policies.append(append(dst, stateVersion))))
	over := -maxMessages // messages
	for i := range entries {
		over += int(entries[i].count)
	}
	if over > 0 && !cut {
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
	if e.notCounted > 0 {
		flags |= notCountedBit
	}
	if e.metadata != "" {
		flags |= metadataBit
	}
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendUvarint(b, uint64(e.attempts))
	if e.notCounted > 0 {
		b = binary.AppendUvarint(b, uint64(e.notCounted))
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
