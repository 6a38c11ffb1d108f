package ring

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/columbamq/columba/core"
)

// forge makes a body that has a sound header on each border of blocks, as it lies behind the header of its group.
func (o *owner) forge(blocks int, h header) []byte {
	o.buf.Reset()
	b := o.buf.Grow(blocks*blockSize - headerLen)
	for i := range b {
		b[i] = 1
	}
	for at := blockSize - headerLen; at+headerLen < len(b); at += blockSize {
		group := make([]byte, blockSize)
		h := h
		h.length = blockSize - headerLen
		h.put(group)
		copy(b[at:], group)
	}
	return bytes.Clone(b)
}

// append appends what is in the buffer.
func (o *owner) append(body []byte) Group {
	o.t.Helper()
	if o.ring.Begun() && !o.ring.Fits(SizeFor(len(body))+roomForSummary) {
		o.end()
	}
	for !o.ring.Begun() && !o.ring.Begin(SizeFor(len(body))+roomForSummary) {
		if err := o.ring.Make(SizeFor(len(body))+testSegment, func() {}); err != nil {
			o.t.Fatal(err)
		}
	}
	g, err := o.ring.Write(Records, &o.buf)
	if err == nil {
		err = o.ring.Sync(g)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	o.groups[g.Number] = body
	return g
}

// damage writes over a place of the segment in use.
func (o *owner) damage(at int64, with []byte) {
	o.t.Helper()
	if _, err := o.ring.head.file.WriteAt(with, at); err != nil {
		o.t.Fatal(err)
	}
}

// TestRing_MessagesLikeGroups: a message that is full of headers, with the disk of the store and the highest numbers,
// or of a later version, is never taken for the log: not in a group that is torn, and not behind the end of the log.
func TestRing_MessagesLikeGroups(t *testing.T) {
	for name, torn := range map[string]struct {
		first bool // the group is the first one of its segment
		at    int64
		with  []byte
	}{
		"header":       {at: 0, with: make([]byte, headerLen)},
		"first header": {first: true, at: 0, with: make([]byte, headerLen)},
		"first block":  {first: true, at: 0, with: make([]byte, blockSize)},
		"first body":   {first: true, at: headerLen, with: []byte{1, 2, 3, 4}},
	} {
		for _, later := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				o := newOwner(t, 1)
				o.append(o.fill(100))
				if torn.first {
					o.end()
				}
				h := header{kind: Records, serial: 1 << 62, number: 1 << 40, secret: 5, durable: 1 << 39, disk: o.disk}
				body := o.forge(8, h)
				if later {
					for at := blockSize - headerLen; at+headerLen < len(body); at += blockSize {
						body[at+53] = FormatVersion + 1
						binary.LittleEndian.PutUint32(body[at+4:], crc32.Checksum(body[at+8:at+headerLen], castagnoli))
					}
					o.buf.Reset()
					copy(o.buf.Grow(len(body)), body)
				}
				g := o.append(body)
				delete(o.groups, g.Number)
				o.damage(int64(g.Offset)-headerLen+torn.at, torn.with)
				if damage := o.open(); len(damage) > 0 {
					t.Errorf("a torn end is taken for damage %v", damage)
				}
				if o.ring.serial > 1<<40 || o.ring.Next() > 1<<30 {
					t.Errorf("the log goes on with use %d, group %d", o.ring.serial, o.ring.Next())
				}
				o.append(o.fill(100))
				o.open()
			})
		}
	}
}

// TestRing_LosesItsFirstBlock: what is behind the first group of a segment proves that it was durable, also when the
// first block is as a new segment's.
func TestRing_LosesItsFirstBlock(t *testing.T) {
	o := newOwner(t, 1)
	first := o.append(o.fill(10 << 10))
	for range 3 {
		o.append(o.fill(5000))
	}
	o.damage(0, make([]byte, blockSize))
	if damage := o.open(); len(damage) != 1 || damage[0] != (Damage{first.Number, first.Number}) {
		t.Errorf("damage %v, want group %d", damage, first.Number)
	}
}

// TestRing_ReadsForgedHeadersOnce: in a group that cannot be read, each block looks like the header of one that goes to
// the end of the segment. A start does not read to there from each of them.
func TestRing_ReadsForgedHeadersOnce(t *testing.T) {
	o := newOwner(t, 1)
	const blocks = 1 << 10
	body := o.forge(blocks, header{kind: Records, serial: 1, number: 2, disk: o.disk})
	for at := blockSize - headerLen; at+headerLen < len(body); at += blockSize {
		binary.LittleEndian.PutUint32(body[at+12:], uint32(len(body)-at-headerLen))
		binary.LittleEndian.PutUint32(body[at+4:], crc32.Checksum(body[at+8:at+headerLen], castagnoli))
	}
	o.append(o.fill(100))
	o.buf.Reset()
	copy(o.buf.Grow(len(body)), body)
	g := o.append(body)
	delete(o.groups, g.Number)
	o.damage(int64(g.Offset), []byte{^body[0]})
	o.append(o.fill(100))
	read := &readBytes{FS: o.fs}
	_, damage, err := Open("log", Options{FS: read, Disk: o.disk, Key: testKey}, func(Group) error { return nil })
	if err != nil || len(damage) != 1 {
		t.Fatalf("damage %v, %v; want that of one group", damage, err)
	}
	if most := int64(4 * blocks * blockSize); read.bytes > most {
		t.Errorf("a start reads %d bytes, want up to %d", read.bytes, most)
	}
	if _, _, err := Open("log", Options{FS: o.fs, Disk: core.DiskID{}, Key: testKey}, func(Group) error { return nil }); core.CodeOf(err) != core.CodeConflict {
		t.Errorf("as the log of another disk: %v, want %q", err, core.CodeConflict)
	}
}
