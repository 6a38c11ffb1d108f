package ring

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// summaries fills segments, most of which end with a summary, and returns these by serial.
func (o *owner) summaries(n int) map[uint64][]byte {
	all := make(map[uint64][]byte)
	for len(all) < n {
		for !o.ring.Begun() || o.ring.Fits(SizeFor(12<<10)+roomForSummary) {
			o.step()
		}
		body, serial := o.fill(o.random.IntN(8<<10)), o.ring.head.serial
		if err := o.ring.Summarize(&o.buf); err != nil {
			o.t.Fatal(err)
		}
		if err := o.ring.End(); err != nil {
			o.t.Fatal(err)
		}
		all[serial] = body
	}
	return all
}

// brief opens the log again, with the summaries of all that has one.
func (o *owner) brief() (groups []Group, summaries map[uint64][]byte, damage []Damage) {
	o.t.Helper()
	summaries = make(map[uint64][]byte)
	options := Options{FS: o.fs, Disk: o.disk, Run: o.ring.o.Run, After: o.after, Serial: o.serial, Brief: o.ring.last.number}
	r, damage, err := Open("log", options, func(g Group) error {
		if g.Kind == Summary {
			summaries[g.Serial] = bytes.Clone(g.Body)
			return nil
		}
		groups = append(groups, g)
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.ring = r
	return groups, summaries, damage
}

// TestRing_Summaries: a start that knows the rows of segments reads their summaries alone. If a summary is damaged, it
// reads the groups.
func TestRing_Summaries(t *testing.T) {
	for seed := range uint64(50) {
		o := newOwner(t, seed)
		want := o.summaries(4)
		o.mark() // a summary counts when a later segment proves it
		maps.DeleteFunc(want, func(serial uint64, _ []byte) bool {
			return !slices.ContainsFunc(o.ring.Uses(), func(u Use) bool { return u.Serial == serial })
		})
		groups, got, damage := o.brief()
		if len(damage) > 0 || !maps.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("seed %d: damage %v, %d summaries, want %d", seed, damage, len(got), len(want))
		}
		for _, g := range groups {
			if want[g.Serial] != nil {
				t.Fatalf("seed %d: group %d is replayed beside the summary of its segment", seed, g.Number)
			}
		}
		u := o.ring.mu.used[o.random.IntN(len(o.ring.mu.used))]
		h, at, _, ok, err := u.readSummary(&header{serial: u.serial, secret: u.secret})
		if err != nil || !ok {
			continue // it has none
		}
		flipped := at + o.random.Int64N(span(int(h.length)))
		var b [1]byte
		if err := u.readAt(b[:], flipped); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := u.file.WriteAt(b[:], flipped); err != nil {
			t.Fatal(err)
		}
		serial, last := u.serial, u.last
		groups, got, damage = o.brief()
		if got[serial] != nil || len(got) != len(want)-1 {
			t.Fatalf("seed %d: a summary with a flipped bit is replayed, of %d", seed, len(got))
		}
		if !slices.ContainsFunc(groups, func(g Group) bool { return g.Serial == serial }) {
			t.Errorf("seed %d: no group is replayed of the segment whose summary is damaged", seed)
		}
		for _, d := range damage {
			if d != (Damage{last, last}) {
				t.Errorf("seed %d: damage %v, of a summary that is group %d", seed, d, last)
			}
		}
	}
}

// TestOpen_SegmentOfNothing: bytes at the end of a segment that look like the place of a summary are none.
func TestOpen_SegmentOfNothing(t *testing.T) {
	o := newOwner(t, 1)
	o.mark()
	s := o.ring.head
	for _, trailer := range [][]byte{{0, 0, 0, 0, 0, 0, 0, 1}, {255, 255, 255, 255, 0, 16, 0, 0}, {8, 0, 0, 0, 0, 240, 0, 0}, bytes.Repeat([]byte{255}, 8)} {
		if _, err := s.file.WriteAt(trailer, s.size-trailerLen); err != nil {
			t.Fatal(err)
		}
		if _, _, _, ok, err := s.readSummary(&o.ring.last); ok || err != nil {
			t.Errorf("trailer %x: %v, %v", trailer, ok, err)
		}
	}
}

// TestRing_SummaryOfATornSegment: a power cut tears a segment and leaves its summary. A start does not believe it, also
// when the numbers that it speaks of are given to other groups later.
func TestRing_SummaryOfATornSegment(t *testing.T) {
	o := newOwner(t, 1)
	o.mark()
	s := o.ring.head
	torn := s.end
	if _, err := o.ring.Write(Records, o.filled(100)); err != nil {
		t.Fatal(err)
	}
	lost := o.groups[o.ring.last.number]
	if err := o.ring.Summarize(o.filled(10)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.file.WriteAt(make([]byte, blockSize), torn); err != nil {
		t.Fatal(err)
	}
	if err := s.file.Sync(); err != nil {
		t.Fatal(err)
	}
	o.fs = o.fs.CrashClone(vfs.CrashCloneCfg{})
	if damage := o.open(lost); len(damage) > 0 {
		t.Fatalf("damage %v", damage)
	}
	for range 5 {
		o.mark()
	}
	if _, got, damage := o.brief(); len(got) > 0 || len(damage) > 0 {
		t.Errorf("%d summaries are replayed, damage %v", len(got), damage)
	}
}

// filled is the buffer with a body of n bytes.
func (o *owner) filled(n int) *Buffer {
	o.fill(n)
	return &o.buf
}

// TestRing_TornBeginning: a power cut takes the first group of a segment and leaves what was written behind it. Nothing
// proves that it was durable, so nothing is damaged.
func TestRing_TornBeginning(t *testing.T) {
	for _, summary := range []bool{false, true} {
		o := newOwner(t, 1)
		o.mark()
		o.end()
		for !o.ring.Begin(SizeFor(100)*2 + roomForSummary) {
			if err := o.ring.Make(testSegment, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		s := o.ring.head
		if _, err := o.ring.Write(Records, o.filled(100)); err != nil {
			t.Fatal(err)
		}
		var err error
		if summary {
			err = o.ring.Summarize(o.filled(10))
		} else {
			_, err = o.ring.Write(Records, o.filled(100))
		}
		if err == nil {
			_, err = s.file.WriteAt(make([]byte, blockSize), 0)
		}
		if err == nil {
			err = s.file.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		o.fs = o.fs.CrashClone(vfs.CrashCloneCfg{})
		if damage := o.open(); len(damage) > 0 {
			t.Errorf("with a summary %t: damage %v", summary, damage)
		}
	}
}

// TestOpen_SegmentCutOff: the file of a segment may end anywhere.
func TestOpen_SegmentCutOff(t *testing.T) {
	for _, size := range []int{0, 1, headerLen, blockSize - 1, blockSize + 1, findPiece + blockSize + 7} {
		o := newOwner(t, 1)
		f, err := o.fs.Create("log/"+nameOf(7), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if damage := o.open(); len(damage) > 0 {
			t.Errorf("a segment of %d bytes: damage %v", size, damage)
		}
	}
}
