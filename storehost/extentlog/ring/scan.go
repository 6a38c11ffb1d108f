package ring

import (
	"cmp"
	"slices"

	"github.com/columbamq/columba/core"
)

// Group is what was appended at once.
type Group struct {
	Kind   Kind
	Number uint64 // in the log, from 1 on
	Place         // of its body
	Body   []byte // at a start only; valid during the call
}

// Place is where bytes of the log are.
type Place struct {
	Serial uint64 // of the use of a segment
	Offset uint32 // in the segment
	Length uint32
}

// Damage is a part of the log that was durable and cannot be read: the groups From … To.
type Damage struct{ From, To uint64 }

// findPiece is how much a start reads at once where it looks for a group.
const findPiece = 256 << 10

// use is one use of a segment as a start finds it.
type use struct {
	*segment
	at    int64 // of the first group that can be read
	first header
}

// recovery reads the log at a start.
//
// The end of the log is where the chain of groups ends: each group names the number and the checksum of the one before.
// A group that cannot be read is torn, and so was never durable, unless a later group proves the contrary: one of the
// same use, which says that the unreadable one was durable; or any of a later use, which begins only when the use
// before it is durable. The file of a segment is as long as its groups say, or was cut off. So only damage to the last
// groups looks like a torn end: to those of which no later one says that they were durable, for which a Mark is there.
type recovery struct {
	disk   core.DiskID
	key    []byte
	after  uint64 // groups up to here are not wanted
	brief  uint64 // of groups up to here, the summary is
	replay func(Group) error
	last   header // of the chain
	damage []Damage
	serial uint64 // highest one seen
}

// run reads all segments, and notes in each what it holds. It returns those in use in the order of the log, and those
// that are free.
func (r *recovery) run(all []*segment) (used, free []*segment, err error) {
	var uses []use
	for _, s := range all {
		u, ok, err := r.find(s)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			free = append(free, s)
			continue
		}
		r.serial = max(r.serial, u.first.serial)
		uses = append(uses, u)
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.first.serial, b.first.serial) })
	r.last.number = r.after
	for i, u := range uses {
		var next *header    // first group of the use after it
		proven := uint64(0) // groups up to here are in this use or those before it
		if i+1 < len(uses) {
			next = &uses[i+1].first
			if proven = next.number - 1; uses[i+1].at > 0 { // some of them may be torn ones of the use after it
				proven = min(proven, next.durable)
			}
		}
		if next == nil || next.number > r.after+1 { // else nothing of it is wanted
			brief, err := r.summarized(u, next)
			if err == nil && !brief {
				err = r.read(u, next, proven)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		if u.last <= r.after {
			u.serial = 0
			free = append(free, u.segment)
			continue
		}
		used = append(used, u.segment)
	}
	return used, free, nil
}

// find looks for the first group of a segment that can be read; false when it has none. At the beginning of the segment
// there is a group or nothing. Behind that, a message may have been made to look like a group: only the secret tells.
func (r *recovery) find(s *segment) (use, bool, error) {
	var piece []byte
	for at := int64(0); at < s.size; {
		n := min(int64(blockSize), s.size-at)
		if at > 0 { // a segment that was never used has no group at all
			n = min(findPiece, s.size-at)
		}
		piece = append(piece[:0], make([]byte, n)...)
		if err := s.readAt(piece, at); err != nil {
			return use{}, false, err
		}
		for ; len(piece) >= headerLen; piece, at = piece[min(blockSize, len(piece)):], at+blockSize {
			h, ok := decodeHeader(piece)
			switch {
			case !ok || at > 0 && (h.disk != r.disk || h.secret != secretOf(r.key, h.serial)):
			case h.disk != r.disk:
				return use{}, false, core.Errorf(core.CodeConflict, "%s belongs to the directory of another store; move it away", s.name)
			default:
				return use{s, at, h}, true, h.known()
			}
		}
		at += int64(len(piece)) // of a segment that was cut off
	}
	return use{}, false, nil
}

// summarized replays the summary of a use that has one, if that is enough. Only the first group of the next use proves
// that the summary, and so each group before it, was durable: a power cut may leave the summary of a torn segment.
func (r *recovery) summarized(u use, next *header) (bool, error) {
	if u.at > 0 || u.first.number <= r.after || next == nil {
		return false, nil
	}
	h, at, body, ok, err := u.readSummary(&u.first)
	if !ok || err != nil || h.number-1 > r.brief || !next.follows(&h) {
		return false, err
	}
	u.serial, u.secret, u.segment.first = u.first.serial, u.first.secret, u.first.number
	u.ended, u.end, u.records = true, u.size, h.number-1
	if err := r.link(&u.first); err != nil {
		return false, err
	}
	u.last, r.last = h.number, h
	return true, r.replay(Group{Kind: Summary, Number: h.number, Place: Place{u.serial, uint32(at + headerLen), uint32(len(body))}, Body: body})
}

// read follows the chain through one use. next is the first group of the use after it; nil: there is none. It proves
// that groups up to proven were durable.
func (r *recovery) read(u use, next *header, proven uint64) error {
	u.serial, u.secret, u.segment.first = u.first.serial, u.first.secret, u.first.number
	u.ended = true
	at := int64(0) // groups before u.at were torn, unless a later one proves the contrary
	for {
		h, body, found, err := r.next(u, &at, next)
		if err != nil {
			return err
		}
		if !found {
			break
		}
		if err := r.take(u.segment, at, h, body); err != nil {
			return err
		}
		at += span(len(body))
	}
	u.end = at
	if cut := int64(u.first.blocks) - u.size/blockSize; cut > 0 && next == nil { // so many groups at most
		r.lost(max(r.last.number, u.first.number-1) + uint64(cut))
	}
	if m := r.mark(); r.last.number < proven && !next.follows(&m) {
		r.lost(proven)
	}
	return nil
}

// next is the group at an offset. If that cannot be read, but was durable, it is the first one behind it that can be
// read, and at is where that one is.
func (r *recovery) next(u use, at *int64, after *header) (h header, body []byte, found bool, err error) {
	behind := int64(-1) // the first group behind what cannot be read
	for o := *at; o < u.size; {
		h, ok, err := u.readHeader(o)
		if ok = ok && h.sameUse(&u.first) && (after == nil || h.number < after.number); ok {
			body, ok, err = u.readBody(o, &h) // not of a foreign one: a message may be full of them
		}
		if err == nil && ok {
			err = h.known()
		}
		if err != nil {
			return h, nil, false, err
		}
		switch {
		case ok && o == *at:
			return h, body, true, nil
		case ok && behind < 0:
			behind = o
		}
		if ok && (after != nil || h.durable > r.last.number) {
			*at = behind
			return r.next(u, at, after)
		}
		o += blockSize
		if ok {
			o += span(len(body)) - blockSize
		}
	}
	return h, nil, false, nil
}

// take replays a group, the next one of the log that can be read.
func (r *recovery) take(s *segment, at int64, h header, body []byte) error {
	if err := r.link(&h); err != nil {
		return err
	}
	s.note(&h)
	r.last = h
	if h.number <= r.after {
		return nil
	}
	if h.kind == Summary { // it tells nothing that the groups before it did not
		return r.replay(Group{Kind: Mark, Number: h.number})
	}
	return r.replay(Group{Kind: h.kind, Number: h.number, Place: Place{s.serial, uint32(at + headerLen), h.length}, Body: body})
}

// link checks that a group is the next one of the chain, and notes what is damaged if not.
func (r *recovery) link(h *header) error {
	if m := r.mark(); h.follows(&m) { // it cannot be read, but had nothing to tell
		if r.last = m; m.number > r.after {
			if err := r.replay(Group{Kind: Mark, Number: m.number}); err != nil {
				return err
			}
		}
	}
	switch {
	case h.number > r.last.number+1:
		r.lost(h.number - 1)
	case h.number == r.last.number+1 && r.last.sum != 0 && !h.follows(&r.last):
		r.damage = append(r.damage, Damage{r.last.number, r.last.number}) // a sound group, but not the one that was here
	}
	return nil
}

// mark is the header of the mark that may have followed the last group: all of it is known.
func (r *recovery) mark() header {
	m := r.last
	m.kind, m.length, m.number, m.durable, m.before = Mark, 0, r.last.number+1, r.last.number, r.last.sum
	m.put(make([]byte, headerLen))
	return m
}

// lost notes that what follows the chain, up to a number, cannot be read.
func (r *recovery) lost(to uint64) {
	if from := max(r.last.number, r.after) + 1; from <= to {
		r.damage = append(r.damage, Damage{from, to})
	}
}
