package extentlog

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
	"github.com/columbamq/columba/wire"
)

// readRing reads batches with a base in from … upTo, of which the ring has the first. held is false when the database
// has that one; it has all up to drained then.
func (e *Engine) readRing(x *extent, from, upTo core.Seq, maxBytes int) (b []byte, held bool, drained core.Seq, err error) {
	for {
		run, base, drained := x.held.from(from)
		if len(run) == 0 {
			return nil, false, drained, nil
		}
		n, bytes := 0, 0
		for n < len(run) && run[n].last <= upTo && (n == 0 || bytes+int(run[n].length) <= maxBytes) {
			bytes += int(run[n].length)
			n++
		}
		if n == 0 {
			return nil, true, 0, nil
		}
		b, err := e.journal.read(x, run[:n], base)
		if core.CodeOf(err) == core.CodeNotFound {
			continue // its segment was drained meanwhile
		}
		return b, true, 0, err
	}
}

// read reads batches of an extent, which follow one another, and checks them; base is that of the first. CodeNotFound:
// one of their segments is free by now.
func (j *journal) read(x *extent, run []heldBatch, base core.Seq) ([]byte, error) {
	size := 0
	for _, b := range run {
		size += int(b.length) + entryLen
	}
	out := make([]byte, 0, size)
	for len(run) > 0 {
		n, length := adjacent(run)
		at := len(out)
		piece := out[at : at+length]
		if err := j.ring.Read(ring.Place{Serial: run[0].serial, Offset: run[0].offset, Length: uint32(length)}, piece); err != nil {
			if core.CodeOf(err) == core.CodeNotFound {
				return nil, err
			}
			return nil, diskError(x, err)
		}
		for _, b := range run[:n] {
			out = append(out, piece[:b.length]...) // to the left, over what stands between batches
			piece = piece[min(int(b.length)+entryLen, len(piece)):]
		}
		run = run[n:]
	}
	return out, check(x, out, base)
}

// adjacent is how many batches, from the first on, stand in one group with nothing but their lengths between them, and
// how many bytes all that is.
func adjacent(run []heldBatch) (n, length int) {
	n, length = 1, int(run[0].length)
	for n < len(run) {
		b, was := run[n], run[n-1]
		if b.serial != was.serial || b.offset != was.offset+was.length+uint32(entryLen) {
			break
		}
		length += entryLen + int(b.length)
		n++
	}
	return n, length
}

// check reads over a run of batches, of which the first holds next. CodeCorrupt.
func check(x *extent, run []byte, next core.Seq) error {
	c := chain{extent: x.id, next: next}
	for len(run) > 0 {
		b, rest, err := wire.NextBatch(run)
		if err != nil {
			return core.Errorf(core.CodeCorrupt, "extent %s: a batch in the log is damaged: %w", x.id, err)
		}
		if err := c.take(b); err != nil {
			return err
		}
		run = rest
	}
	return nil
}
