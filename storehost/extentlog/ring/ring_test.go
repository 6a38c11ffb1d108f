package ring

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

const (
	testSegment    = 64 << 10
	roomForSummary = 12 << 10
)

var testKey = []byte("a secret of the directory")

// owner uses a ring as the log of a store does, and remembers what it appended.
type owner struct {
	t       testing.TB
	fs      *vfs.MemFS
	disk    core.DiskID
	random  *rand.Rand
	ring    *Ring
	after   uint64
	serial  uint64
	groups  map[uint64][]byte // durable, by number
	waiting []written         // the youngest ones
	buf     Buffer
}

func newOwner(t testing.TB, seed uint64) *owner {
	fs := vfs.NewCrashableMem()
	if err := errors.Join(fs.MkdirAll("log", 0o755), syncDir(fs, "")); err != nil {
		t.Fatal(err)
	}
	o := &owner{t: t, fs: fs, disk: core.DiskID{ID: core.NewID(time.Now())}, random: rand.New(rand.NewPCG(seed, 1)), groups: make(map[uint64][]byte)}
	if damage := o.open(); len(damage) > 0 {
		t.Fatalf("a new log has damage %v", damage)
	}
	return o
}

// open opens the log, and checks that what it replays is what was appended. unsure, and what was not synced, may be
// replayed, too.
func (o *owner) open(unsure ...[]byte) []Damage {
	o.t.Helper()
	for _, w := range o.waiting {
		unsure = append(unsure, w.body)
	}
	o.waiting = nil
	options := Options{FS: o.fs, Disk: o.disk, Run: core.RunID{ID: core.NewID(time.Now())}, Key: testKey, After: o.after, Serial: o.serial}
	seen := make(map[uint64]bool)
	at := o.after
	r, damage, err := Open("log", options, func(g Group) error {
		if g.Number <= at {
			o.t.Errorf("group %d is replayed after %d", g.Number, at)
		}
		at = g.Number
		want, durable := o.groups[g.Number]
		if g.Kind == Mark && !durable { // a summary, of which nobody is told here
			return nil
		}
		switch {
		case durable && !bytes.Equal(want, g.Body):
			o.t.Errorf("group %d is replayed with other bytes", g.Number)
		case !durable && !slices.ContainsFunc(unsure, func(b []byte) bool { return bytes.Equal(b, g.Body) }):
			o.t.Errorf("group %d, which nobody appended, is replayed", g.Number)
		case !durable:
			o.groups[g.Number] = bytes.Clone(g.Body)
		}
		seen[g.Number] = true
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.ring = r
	for n := range o.groups {
		if n > o.after && !seen[n] && !slices.ContainsFunc(damage, func(d Damage) bool { return d.From <= n && n <= d.To }) {
			o.t.Errorf("group %d is not replayed, and no damage tells so, of %v", n, damage)
		}
	}
	return damage
}

// fill makes the next body.
func (o *owner) fill(n int) []byte {
	o.buf.Reset()
	b := o.buf.Grow(n)
	for i := range b {
		b[i] = byte(o.random.Uint32())
	}
	return bytes.Clone(b)
}

// step appends once, and frees or makes segments as that needs.
func (o *owner) step() {
	o.t.Helper()
	kind, size := Records, o.random.IntN(12<<10)
	if o.random.IntN(8) == 0 {
		kind, size = Mark, 0
	}
	if o.ring.Begun() && !o.ring.Fits(SizeFor(size)+roomForSummary) {
		o.end()
	}
	if !o.ring.Begun() {
		o.begin()
	}
	body := o.fill(size)
	g, err := o.ring.Write(kind, &o.buf)
	o.durable(g, err, body)
}

// durable syncs a group that was written, now or with a later one.
func (o *owner) durable(g Group, err error, body []byte) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
	o.serial = g.Serial
	o.waiting = append(o.waiting, written{g, body})
	if len(o.waiting) < 3 && o.random.IntN(3) == 0 {
		return
	}
	for _, w := range o.waiting {
		if err := o.ring.Sync(w.Group); err != nil {
			o.t.Fatal(err)
		}
		o.groups[w.Number] = w.body
	}
	o.waiting = nil
}

// mark says that all before it is durable.
func (o *owner) mark() {
	o.t.Helper()
	for len(o.waiting) > 0 || o.ring.head == nil || !o.ring.Fits(SizeFor(0)+roomForSummary) {
		o.step()
	}
	o.buf.Reset()
	g, err := o.ring.Write(Mark, &o.buf)
	o.durable(g, err, nil)
}

// written is a group that may not be durable yet.
type written struct {
	Group
	body []byte
}

// end ends the segment at hand, with a summary as a rule.
func (o *owner) end() {
	o.t.Helper()
	if n := o.random.IntN(8 << 10); n < 6<<10 {
		o.fill(n)
		if err := o.ring.Summarize(&o.buf); err != nil {
			o.t.Fatal(err)
		}
	}
	if err := o.ring.End(); err != nil {
		o.t.Fatal(err)
	}
}

// begin begins a segment. It settles the oldest one when there are five.
func (o *owner) begin() {
	o.t.Helper()
	if o.ring.Begin(SizeFor(12<<10) + roomForSummary) {
		return
	}
	if uses := o.ring.Uses(); len(uses) >= 5 {
		o.after = uses[0].Last
		o.ring.Free(uses[0].Serial)
	} else if err := o.ring.Make(testSegment, func() {}); err != nil {
		o.t.Fatal(err)
	}
	o.begin()
}

// TestRing_Crashes: the log is cut off again and again, in the middle of an append, with any part of its blocks on the
// disk. Groups that were durable come back, others may, and nothing is called damage.
func TestRing_Crashes(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := newOwner(t, seed)
			for range 12 {
				for range o.random.IntN(30) {
					o.step()
				}
				lost := o.tear()
				if damage := o.open(lost); len(damage) > 0 {
					t.Fatalf("a torn end is taken for damage %v", damage)
				}
			}
		})
	}
}

// tear is a power cut during an append: of its blocks, each is on the disk or not.
func (o *owner) tear() (lost []byte) {
	o.t.Helper()
	if o.ring.head == nil || !o.ring.Fits(SizeFor(20<<10)+roomForSummary) {
		o.fs = o.fs.CrashClone(vfs.CrashCloneCfg{})
		return nil
	}
	s := o.ring.head
	lost = o.fill(o.random.IntN(20 << 10))
	at := s.end
	before := make([]byte, span(len(lost)))
	if err := s.readAt(before, at); err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.ring.Write(Records, &o.buf); err != nil {
		o.t.Fatal(err)
	}
	for i := int64(0); i < int64(len(before)); i += blockSize {
		if o.random.IntN(2) == 0 {
			if _, err := s.file.WriteAt(before[i:i+blockSize], at+i); err != nil {
				o.t.Fatal(err)
			}
		}
	}
	if err := s.file.Sync(); err != nil {
		o.t.Fatal(err)
	}
	o.fs = o.fs.CrashClone(vfs.CrashCloneCfg{})
	return lost
}

// TestRing_PowerCuts: what was acknowledged is there after a power cut that keeps any part of what was not synced.
func TestRing_PowerCuts(t *testing.T) {
	for seed := range uint64(40) {
		o := newOwner(t, seed)
		for range 8 {
			for range o.random.IntN(40) {
				o.step()
			}
			o.fs = o.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: o.random.IntN(101), RNG: o.random})
			if damage := o.open(); len(damage) > 0 {
				t.Fatalf("seed %d: a power cut is taken for damage %v", seed, damage)
			}
		}
	}
}

// TestRing_Damage: a bit of the log flips. All groups but one come back, with the bytes they had, and the start says
// which one does not. Only the last group may be missed without a word: it looks like one that was torn.
func TestRing_Damage(t *testing.T) {
	told := 0
	for seed := range uint64(500) {
		o := newOwner(t, seed)
		for range 5 + o.random.IntN(40) {
			o.step()
		}
		for range 2 {
			o.mark()
		}
		last := o.ring.last.number
		body := o.groups[last]
		delete(o.groups, last)
		o.flip()
		damage := o.open(body)
		for _, d := range damage {
			told++
			if d.From != d.To {
				t.Errorf("seed %d: one bit damages the groups %d to %d", seed, d.From, d.To)
			}
		}
	}
	if told < 50 {
		t.Errorf("of 500 flipped bits %d were told of, which is too few to be a test", told)
	}
}

// flip flips a bit of a segment that holds groups.
func (o *owner) flip() {
	o.t.Helper()
	all := o.ring.mu.used
	s := all[o.random.IntN(len(all))]
	at := o.random.Int64N(s.end)
	var b [1]byte
	if err := s.readAt(b[:], at); err != nil {
		o.t.Fatal(err)
	}
	b[0] ^= 1 << o.random.IntN(8)
	if _, err := s.file.WriteAt(b[:], at); err != nil {
		o.t.Fatal(err)
	}
}
