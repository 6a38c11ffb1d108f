package dispatch

import (
	"math/bits"
	"slices"

	"github.com/columbamq/columba/core"
)

// phase is where a message that was handed out, or restored from a checkpoint, stands. One that was only read is in its
// share's supply, and has none.
//
//	         Offer               Take                        Ack (any attempt so far), AckProven; see tooLate
//	unread ────────▶ supply ───────────▶ inFlight ─────────────────────────────────────▶ done
//	                                     │  ▲  │  ▲                                        ▲
//	    Nack, lock timeout, attempts left│  │  │  └──────────── Take ────────────┐         │ also from
//	            ┌────────────────────────┤  │  └─ Return ──────────────────▶ ready         │ every phase
//	            ▼ no delay               │  │                                  ▲           │ below
//	        unclaimed ── Want ──▶ unsaved ── Checkpoint, Saved ────────────────┘           │
//	            ▲                        │ delay                                           │
//	            └──── Tick at due ── delayed                                               │
//	                                     │                                                 │
//	       unclaimed ◀── Checkpoint while nobody takes messages ── unsaved, ready
//
//	       last attempt failed, Reject   │                                                 │
//	          (dlq), long wait, displaced├─▶ leaving … see transfer.go ─ Transferred ──────┤
//	          (drop)                     ├─────────────────────────────────────────────────┘
//	          (block)                    └─▶ blocked ── Update ─▶ unclaimed | leaving | done
//
// A message whose lock timed out the time before its last attempt takes another way, see isolation.go.
type phase uint8

const (
	none         phase = iota // no entry
	inFlight                  // locked by a consumer until due
	delayed                   // waits until due
	unclaimed                 // waits for credit; see claim.go
	unsaved                   // waits for a checkpoint that counts its next attempt
	ready                     // may be handed out again; its next attempt is counted durably
	blocked                   // exhausted in a group that blocks
	handed                    // in a group that delivers at most once: settled with the next call
	isolated                  // waits to be handed out alone; see isolation.go
	leaving                   // to be transferred, and no checkpoint says so yet; it and those below: see transfer.go
	announced                 // a checkpoint says so that is not known to be durable
	transferring              // a durable one says so: waits for TakeTransfers
	appending                 // being appended to a built-in queue
	held                      // could not be appended, or may be there; transferring again at due
	phases
)

// message is what is kept of one message while it has a phase.
type message struct {
	batch    *batch // nil: restored, and not read yet
	due      int64  // ns; see phase
	session  SessionID
	attempts uint16 // handed out so far, the current one included
	phase    phase
	failure  Failure
}

// messageRef is a message of a share.
type messageRef struct {
	share *Share
	seq   core.Seq
}

// stands reports whether a message is in one of the phases.
func (ref messageRef) stands(in ...phase) bool {
	m := ref.share.table.get(ref.seq)
	for _, p := range in {
		if m != nil && m.phase == p {
			return true
		}
	}
	return false
}

// note is what is kept of few messages beside that.
type note struct {
	text      string    // what a consumer said of it last
	extended  int64     // ns: when it was handed out, of one in flight whose due does not tell; else 0
	uncounted uncounted // of its attempts
	transfer  *transfer // of one that leaves, or whose metadata are replaced; else nil
}

// bytes is how long its text and metadata are.
func (x *note) bytes() int {
	n := len(x.text)
	if x.transfer != nil {
		n += len(x.transfer.metadata)
	}
	return n
}

const (
	chunkBits = 6
	chunkLen  = 1 << chunkBits
	chunkMask = chunkLen - 1
)

// chunk holds the messages of 64 seqs, so that one stuck message costs one chunk and not all that came after it.
type chunk struct {
	live     uint64 // bit i: messages[i] has a phase
	noted    uint64 // bit i: it has a note
	notes    []note // those, in the order of seqs
	messages [chunkLen]message
	places   *[chunkLen]uint32 // of a timer extent: where in their batches the records are
}

// table finds messages by seq. Messages that have no phase are zero.
type table struct {
	chunks  map[uint64]*chunk
	lastKey uint64
	last    *chunk // of lastKey; nil: none cached
	spare   []*chunk
	n       int // messages with a phase
	noted   int // messages with a note
}

func newTable() table { return table{chunks: map[uint64]*chunk{}} }

// chunk is the chunk of key, or nil.
func (t *table) chunk(key uint64) *chunk {
	if t.last != nil && t.lastKey == key {
		return t.last
	}
	c := t.chunks[key]
	if c != nil {
		t.last, t.lastKey = c, key
	}
	return c
}

// make is the chunk of key, made if need be.
func (t *table) make(key uint64) *chunk {
	if c := t.chunk(key); c != nil {
		return c
	}
	var c *chunk
	if n := len(t.spare); n > 0 {
		c, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		c = new(chunk)
	}
	t.chunks[key] = c
	t.last, t.lastKey = c, key
	return c
}

// get is the message of seq, or nil when it has no phase.
func (t *table) get(seq core.Seq) *message {
	c := t.chunk(uint64(seq) >> chunkBits)
	if c == nil || c.live&(1<<(seq&chunkMask)) == 0 {
		return nil
	}
	return &c.messages[seq&chunkMask]
}

// skip counts the seqs from base on that have no phase, up to the first that has one, and up to most. It looks at a
// chunk at a time.
func (t *table) skip(base core.Seq, most uint32) uint32 {
	for n := uint32(0); n < most; {
		seq := base + core.Seq(n)
		in := uint32(seq & chunkMask)
		if c := t.chunk(uint64(seq) >> chunkBits); c != nil && c.live>>in != 0 {
			return min(n+uint32(bits.TrailingZeros64(c.live>>in)), most)
		}
		n += min(chunkLen-in, most-n)
	}
	return most
}

// put makes room for the message of seq, which had no phase.
func (t *table) put(seq core.Seq) *message {
	c := t.make(uint64(seq) >> chunkBits)
	c.live |= 1 << (seq & chunkMask)
	t.n++
	return &c.messages[seq&chunkMask]
}

// note is what is kept of the message of seq beside its entry.
func (t *table) note(seq core.Seq) note {
	if t.noted > 0 {
		if c := t.chunk(uint64(seq) >> chunkBits); c != nil {
			return c.note(seq & chunkMask)
		}
	}
	return note{}
}

func (c *chunk) note(i core.Seq) note {
	if c.noted&(1<<i) == 0 {
		return note{}
	}
	return c.notes[c.notedBefore(i)]
}

// notedBefore is how many of the chunk's messages before i have a note.
func (c *chunk) notedBefore(i core.Seq) int { return bits.OnesCount64(c.noted & (1<<i - 1)) }

// setNote keeps a note, if there is anything in it, of the message of seq, which has a phase.
func (t *table) setNote(seq core.Seq, x note) {
	c, i := t.chunk(uint64(seq)>>chunkBits), seq&chunkMask
	at, some := c.notedBefore(i), c.noted&(1<<i) != 0
	switch {
	case some && x == note{}:
		c.notes, c.noted = slices.Delete(c.notes, at, at+1), c.noted&^(1<<i)
		t.noted--
	case some:
		c.notes[at] = x
	case x != note{}:
		c.notes, c.noted = slices.Insert(c.notes, at, x), c.noted|1<<i
		t.noted++
	}
}

// setPlace notes where in its batch the record of a message is, place is the reverse.
func (t *table) setPlace(seq core.Seq, i int) {
	c := t.chunk(uint64(seq) >> chunkBits)
	if c.places == nil {
		c.places = new([chunkLen]uint32)
	}
	c.places[seq&chunkMask] = uint32(i)
}

func (t *table) place(seq core.Seq) int {
	return int(t.chunk(uint64(seq) >> chunkBits).places[seq&chunkMask])
}

// free forgets a chunk without messages.
func (t *table) free(key uint64, c *chunk) {
	const most = 16
	delete(t.chunks, key)
	t.last = nil
	if len(t.spare) < most {
		t.spare = append(t.spare, c)
	}
}

// eachChunk calls chunk for every chunk, in any order, and f for its messages after that, in the order of seqs: for
// count of them from seq on that are alike, all without a note unless it is one. Most are: consumers are handed runs.
func (t *table) eachChunk(chunk func(key uint64), f func(seq core.Seq, count int, m *message, x note)) {
	for k, c := range t.chunks {
		chunk(k)
		for live := c.live; live != 0; {
			i := bits.TrailingZeros64(live)
			n := c.alike(i)
			f(core.Seq(k<<chunkBits|uint64(i)), n, &c.messages[i], c.note(core.Seq(i)))
			live = live >> (i + n) << (i + n)
		}
	}
}

// alike is how many messages from i on, in a row, differ in batch and session at most, and have no note; at least 1.
func (c *chunk) alike(i int) int {
	n := bits.TrailingZeros64(^(c.live >> i)) // in a row
	if some := c.noted >> i; some != 0 {
		n = min(n, max(1, bits.TrailingZeros64(some)))
	}
	first := &c.messages[i]
	for k := 1; k < n; k++ {
		if m := &c.messages[i+k]; m.due != first.due || m.attempts != first.attempts || m.phase != first.phase || m.failure != first.failure {
			return k
		}
	}
	return n
}

// each calls f for every message in the order of seqs. f may drop messages, and put none.
func (t *table) each(f func(core.Seq, *message)) {
	keys := make([]uint64, 0, len(t.chunks))
	for k := range t.chunks {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		c := t.chunks[k]
		if c == nil { // f has dropped all of it
			continue
		}
		for live := c.live; live != 0; live = live & (live - 1) & c.live {
			i := bits.TrailingZeros64(live)
			f(core.Seq(k<<chunkBits|uint64(i)), &c.messages[i])
		}
	}
}

func saturate(attempts uint16) uint16 { return max(attempts, attempts+1) }
