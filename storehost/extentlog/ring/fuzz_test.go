package ring

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// FuzzScan: whatever happens to the bytes of a log that an outsider can reach, a start comes back with groups as they
// were appended, in order, and tells of each group that it lacks, but for the last ones. It reads a few times as much
// as there is. The input is a list of edits of 8 bytes: where, how, and with what.
func FuzzScan(f *testing.F) {
	o := newOwner(f, 7)
	for range 40 {
		o.step()
	}
	for len(o.waiting) > 0 {
		o.step()
	}
	segments := o.ring.mu.used
	pristine := make([][]byte, len(segments))
	for i, s := range segments {
		pristine[i] = make([]byte, s.size)
		if err := s.readAt(pristine[i], 0); err != nil {
			f.Fatal(err)
		}
	}
	f.Add([]byte{0, 0, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{1, 0, 0, 0, 1, 255, 0, 0, 1, 1, 0, 0, 2, 9, 9, 9})
	f.Add([]byte{2, 3, 0, 0, 3, 1, 1, 1, 0, 0, 0, 88, 0, 1, 1, 1})
	f.Fuzz(func(t *testing.T, edits []byte) {
		if len(edits) > 8*64 {
			return
		}
		fs := vfs.NewMem()
		if err := fs.MkdirAll("log", 0o755); err != nil {
			t.Fatal(err)
		}
		changed := make([][]byte, len(pristine))
		for i := range pristine {
			changed[i] = bytes.Clone(pristine[i])
		}
		for ; len(edits) >= 8; edits = edits[8:] {
			b := changed[int(edits[0])%len(changed)]
			at := int(binary.BigEndian.Uint32(edits)&0xffffff) % len(b)
			edit(b, at, edits[4], edits[5:8], o.disk)
		}
		size := int64(0)
		for i, b := range changed {
			file, err := fs.Create(fs.PathJoin("log", nameOf(uint64(i))), vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.Write(b); err != nil {
				t.Fatal(err)
			}
			size += int64(len(b))
			file.Close()
		}
		checkScan(t, o, fs, size)
	})
}

// edit changes bytes at a place.
func edit(b []byte, at int, how byte, with []byte, disk core.DiskID) {
	border := at / blockSize * blockSize
	switch how % 4 {
	case 0:
		b[at] ^= max(with[0], 1)
	case 1:
		clear(b[border:min(len(b), border+int(1+with[0]%4)*blockSize)])
	case 2:
		copy(b[at:], bytes.Repeat(with, 1+at%100))
	case 3: // a header that is not of this log, with a body
		length := min(int(with[0])*512, len(b)-border-headerLen)
		h := header{kind: Records, length: uint32(length), serial: uint64(with[1]), number: uint64(with[2]), secret: 5, durable: 1 << 40, disk: disk}
		if border > 0 {
			h.put(b[border:])
		}
	}
}

// checkScan opens a log that was changed.
func checkScan(t *testing.T, o *owner, fs vfs.FS, size int64) {
	t.Helper()
	read := &readBytes{FS: fs}
	var seen []uint64
	r, damage, err := Open("log", Options{FS: read, Disk: o.disk, Key: testKey}, func(g Group) error {
		want, known := o.groups[g.Number]
		if summary := g.Kind == Mark && !known; !summary && (!known || !bytes.Equal(want, g.Body)) {
			t.Errorf("group %d is not as it was appended", g.Number)
		}
		if n := len(seen); n > 0 && g.Number <= seen[n-1] {
			t.Errorf("group %d is replayed after %d", g.Number, seen[n-1])
		}
		seen = append(seen, g.Number)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	if len(seen) > 0 {
		last = seen[len(seen)-1]
	}
	for n := range o.groups {
		told := slices.ContainsFunc(damage, func(d Damage) bool { return d.From <= n && n <= d.To })
		if n < last && !told && !slices.Contains(seen, n) {
			t.Errorf("group %d is lost, group %d is not, and nothing tells so: %v", n, last, damage)
		}
	}
	if read.bytes > 4*size {
		t.Errorf("%d bytes are read of %d", read.bytes, size)
	}
	if err := r.Release(); err != nil {
		t.Error(err)
	}
}
