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

// kind is what an entry's deadline means. Numbers are stable.
type kind uint8

const (
	locked  kind = 0 // by a consumer until due
	waiting kind = 1 // not before due
	ended   kind = 2 // had its last attempt: blocked, or to be dead-lettered and perhaps in the dead letter queue already; no due
	// departing: to be parked, not before due; it may be in the retry queue already
	departing kind = 3
)

// entry is a run of messages that a checkpoint tells the same of.
type entry struct {
	first    core.Seq
	count    uint32
	kind     kind
	failure  Failure
	attempts uint16
	excused  uint16 // of these, that do not count; ≤ attempts
	due      int64  // unix ms
	text     string
	metadata string // that replace the message's own
	firstTry bool   // not written: the lock of a first attempt
	leaves   bool   // not written: whoever resumes it must not hand it out
}

// State is what a checkpoint holds: what is done, and where un-acked messages that were handed out stand. The zero
// State is that of an extent nobody has read yet.
type State struct {
	done     acklevel.Window
	messages map[core.Seq]entry // first and count unused
}

// The blob, little-endian, of parkVersion with an entry of kind departing or with metadata, else of stateVersion with a window of bits or an excused
// attempt, else of plainVersion, so that earlier builds read what they can:
//
//	version u8 | window (see acklevel) | n uvarint | n × entry | crc32c u32 of all before
//	entry: gap uvarint | count−1 uvarint | kind + 4 × failure + 16 × has text + 32 × has excused + 64 × has metadata, u8 |
//	       attempts uvarint, one more of one that ended without a failure: it expired, perhaps before it was handed out |
//	       with excused: excused uvarint | unless ended: due varint, ms since the entry's before | with text: length uvarint, text |
//	       with metadata: length uvarint, metadata
//
// A gap is the number of seqs since the end of the entry before (the first: since the frontier).
const (
	plainVersion = 1
	stateVersion = 2
	parkVersion  = 3
)

const (
	textBit      = 16
	excusedBit   = 32
	metadataBit  = 64
	maxMessages  = 16 * MaxOutstanding // of a state: several owners' worth
	maxStateSize = 2 * MaxCheckpoint
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendState appends the blob; if cut is set, those entries that fit, whole is false otherwise when not all do.
func appendState(dst []byte, done *acklevel.Window, entries []entry, cut bool) (blob []byte, written []entry, whole bool) {
	const room = MaxCheckpoint - crc32.Size
	start := len(dst)
	b, bitmap := done.Append(append(dst, plainVersion))
	if bitmap {
		b[start] = stateVersion
	}
	if cut { // find which fit, then write them
		entries = fitting(entries, done.Frontier(), room-(len(b)-start)-binary.MaxVarintLen64)
	}
	b = binary.AppendUvarint(b, uint64(len(entries)))
	end, due := done.Frontier()+1, int64(0)
	for _, e := range entries {
		b[start] = max(b[start], e.version())
		b = appendEntry(b, e, end, due)
		end, due = e.first+core.Seq(e.count), e.due
		if !cut && len(b)-start > room {
			return dst, nil, false
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), entries, true
}

// expired reports whether the message is to be dead-lettered since it expired.
func (e *entry) expired() bool { return e.kind == ended && e.failure == NoFailure }

// version that the entry needs.
func (e *entry) version() byte {
	switch {
	case e.kind == departing || e.metadata != "":
		return parkVersion
	case e.excused > 0:
		return stateVersion
	}
	return plainVersion
}

// fitting leaves out those of the highest seqs that do not fit. Messages that leave for another queue may be there already, and must not be handed out
// from here, too: they stay as long as there is anything else to leave out.
func fitting(entries []entry, frontier core.Seq, room int) []entry {
	lowest := func(n int) []entry { // and all that leaves
		out := slices.Clone(entries[:n])
		for _, e := range entries[n:] {
			if e.kind == departing || e.leaves {
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
	end, due := frontier+1, int64(0)
	for i, e := range entries {
		if b = appendEntry(b[:0], e, end, due); len(b) > room {
			return i
		}
		room -= len(b)
		end, due = e.first+core.Seq(e.count), e.due
	}
	return len(entries)
}

func appendEntry(b []byte, e entry, end core.Seq, due int64) []byte {
	b = binary.AppendUvarint(b, uint64(e.first-end))
	b = binary.AppendUvarint(b, uint64(e.count-1))
	flags := byte(e.kind) | byte(e.failure)<<2
	if e.text != "" {
		flags |= textBit
	}
	if e.excused > 0 {
		flags |= excusedBit
	}
	if e.metadata != "" {
		flags |= metadataBit
	}
	b = append(b, flags)
	attempts := e.attempts
	if e.expired() {
		attempts = saturate(attempts)
	}
	b = binary.AppendUvarint(b, uint64(attempts))
	if e.excused > 0 {
		b = binary.AppendUvarint(b, uint64(e.excused))
	}
	if e.kind != ended {
		b = binary.AppendVarint(b, e.due-due)
	}
	if e.text != "" {
		b = binary.AppendUvarint(b, uint64(len(e.text)))
		b = append(b, e.text...)
	}
	if e.metadata != "" {
		b = binary.AppendUvarint(b, uint64(len(e.metadata)))
		b = append(b, e.metadata...)
	}
	return b
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
	done, rest, err := decodeWindow(body[0], body[1:])
	if err != nil {
		return State{}, err
	}
	st := State{done: *done}
	if !st.decodeEntries(rest, body[0]) {
		return State{}, core.Errorf(core.CodeCorrupt, "checkpoint of %d bytes has damaged entries", len(blob))
	}
	return st, nil
}

// decodeWindow reads what is done, in the form of a version.
func decodeWindow(version byte, b []byte) (done *acklevel.Window, rest []byte, err error) {
	switch version {
	case plainVersion:
		return acklevel.DecodeRanges(b, maxStateSize)
	case stateVersion, parkVersion:
		done, _, rest, err := acklevel.Decode(b, maxStateSize)
		return done, rest, err
	}
	return nil, nil, core.Errorf(core.CodeNewerFormat, "checkpoint has version %d, this build reads up to %d; use a newer build", version, parkVersion)
}

func (st *State) decodeEntries(b []byte, version byte) (ok bool) {
	known := byte(2*textBit - 1)
	if version >= stateVersion {
		known |= excusedBit
	}
	if version >= parkVersion {
		known |= metadataBit
	}
	n, b, ok := uvarint(b, maxMessages)
	if !ok {
		return false
	}
	end, due := uint64(st.done.Frontier())+1, int64(0)
	for range n {
		var gap, count, attempts, size uint64
		if gap, b, ok = uvarint(b, math.MaxUint64); !ok {
			return false
		}
		if count, b, ok = uvarint(b, maxMessages-1); !ok || len(b) == 0 {
			return false
		}
		count++
		flags := b[0]
		if attempts, b, ok = uvarint(b[1:], math.MaxUint16); !ok || attempts == 0 {
			return false
		}
		e := entry{kind: kind(flags & 3), failure: Failure(flags >> 2 & 3), attempts: uint16(attempts)}
		if flags&excusedBit != 0 {
			var excused uint64
			if excused, b, ok = uvarint(b, attempts); !ok || excused == 0 {
				return false
			}
			e.excused = uint16(excused)
		}
		if e.expired() {
			e.attempts--
			e.excused = min(e.excused, e.attempts)
		}
		if e.kind == departing && version < parkVersion || flags&^known != 0 || gap > math.MaxUint64-end || count > math.MaxUint64-end-gap || len(st.messages)+int(count) > maxMessages {
			return false
		}
		if e.kind != ended {
			delta, size := binary.Varint(b)
			if size <= 0 {
				return false
			}
			due += delta
			e.due, b = due, b[size:]
			if due < 0 || due > math.MaxInt64/int64(time.Millisecond) {
				return false
			}
		} else {
			due = 0
		}
		if flags&textBit != 0 {
			if size, b, ok = uvarint(b, MaxReason); !ok || size > uint64(len(b)) || size == 0 {
				return false
			}
			e.text, b = string(b[:size]), b[size:]
		}
		if flags&metadataBit != 0 {
			if size, b, ok = uvarint(b, core.MaxMetadata); !ok || size > uint64(len(b)) || size == 0 {
				return false
			}
			e.metadata, b = string(b[:size]), b[size:]
		}
		if st.messages == nil {
			st.messages = map[core.Seq]entry{}
		}
		for seq := end + gap; seq < end+gap+count; seq++ {
			st.messages[core.Seq(seq)] = e
		}
		end += gap + count
	}
	return len(b) == 0
}

func uvarint(b []byte, most uint64) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > most {
		return 0, nil, false
	}
	return v, b[n:], true
}

// StartAfter is the state of a share that begins after seq: everything up to it is done.
func StartAfter(seq core.Seq) State {
	var st State
	st.done.AckRange(1, uint64(seq))
	return st
}

// StateDone is the state of a share in which that is done, and nothing else is known.
func StateDone(done *acklevel.Window) State { return State{done: *done.Clone()} }

// Until is what is done up to seq, and nothing else: as if nothing above it had been read, and nothing handed out.
func (st State) Until(seq core.Seq) State {
	out := StartAfter(min(st.done.Frontier(), seq))
	for r := range st.done.Ranges() {
		if r.First > seq {
			break
		}
		out.done.AckRange(r.First, uint64(min(r.Last, seq)-r.First+1))
	}
	return out
}

// Merge joins what another owner of the same extent saved: the union of what is done, the highest attempts, the latest
// deadlines.
func (st *State) Merge(o State) {
	st.done = *st.done.Clone()
	st.done.Merge(&o.done)
	merged := make(map[core.Seq]entry, len(st.messages)+len(o.messages))
	maps.Copy(merged, st.messages)
	for seq, b := range o.messages {
		a, both := merged[seq]
		if !both {
			merged[seq] = b
			continue
		}
		if b.supersedes(a) {
			a, b = b, a
		}
		a.attempts, a.excused = max(a.attempts, b.attempts), max(a.excused, b.excused)
		if a.kind != departing {
			a.due = max(a.due, b.due)
		}
		merged[seq] = a
	}
	st.messages = merged
}

// supersedes reports whether an entry tells more of a message than another owner's.
func (e *entry) supersedes(o entry) bool {
	switch {
	case (e.kind == ended) != (o.kind == ended):
		return e.kind == ended
	case e.attempts != o.attempts:
		return e.attempts > o.attempts
	}
	return e.kind == departing && o.kind != departing
}

// Shift moves all deadlines by d: those of an owner whose clock went wrong by as much.
func (st *State) Shift(d time.Duration) {
	for seq, e := range st.messages {
		if e.kind != ended && e.due != 0 {
			e.due += d.Milliseconds()
			st.messages[seq] = e
		}
	}
}

// Frontier is the seq up to which everything is done.
func (st State) Frontier() core.Seq { return st.done.Frontier() }

// Consumed is how many messages are done.
func (st State) Consumed() uint64 { return uint64(st.done.Frontier()) + st.done.Above() }

// Pending is how many messages were handed out and not settled.
func (st State) Pending() int { return len(st.messages) }

// Ended reports whether any message had its last attempt: it may be in the dead letter queue.
func (st State) Ended() bool {
	for _, e := range st.messages {
		if e.kind == ended {
			return true
		}
	}
	return false
}

// order is the seqs of the messages, rising.
func (st State) order() []core.Seq { return slices.Sorted(maps.Keys(st.messages)) }

// Append appends the state's blob to dst, at most MaxCheckpoint bytes like a share's Checkpoint: what a share that never began would save.
func (st *State) Append(dst []byte) []byte {
	entries := make([]entry, 0, min(len(st.messages), 1024))
	for _, seq := range st.order() {
		e := st.messages[seq]
		e.first, e.count, e.firstTry, e.leaves = seq, 1, e.kind == locked && e.attempts == 1, e.kind == ended
		entries = join(entries, e)
	}
	blob, _, _ := fit(dst, &st.done, entries)
	return blob
}
