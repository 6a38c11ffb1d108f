package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

const extension = ".seg"

// How a segment is made: in steps, of which the disk has not many to write at a time, so that appends to another
// segment are not held up.
const (
	makeStep     = 64 << 10
	bytesPerSync = 512 << 10
)

// segment is one file of the ring, of a fixed size.
type segment struct {
	file    vfs.File
	name    string
	ordinal uint64 // of the file, which is its name
	size    int64
	serial  uint64 // of this use; 0: it is free
	secret  uint64 // of this use
	end     int64  // where the next group goes
	first   uint64 // number of its first group
	last    uint64 // … and of its last one
	records uint64 // … and of the last one with records
	ended   bool   // it takes no more groups
	pins    int    // readers
	freed   bool   // it is given back when nobody reads it any more
}

// note has the numbers of a segment include a group.
func (s *segment) note(h *header) {
	s.last = h.number
	if h.kind == Records {
		s.records = h.number
	}
}

func nameOf(ordinal uint64) string { return fmt.Sprintf("%08d%s", ordinal, extension) }

func ordinalOf(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, extension), 10, 64)
	return n, err == nil && path.Ext(name) == extension && nameOf(n) == name
}

// create makes a segment whose blocks are all written: the first write of a block costs several times a later one. The
// file has its name only when it is whole, so that a crash leaves no short one.
func create(fs vfs.FS, dir string, ordinal uint64, size int64, pause func()) (*segment, error) {
	name := fs.PathJoin(dir, nameOf(ordinal))
	made := name + ".new"
	f, err := fs.Create(made, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: bytesPerSync})
	zeroes := make([]byte, min(size, makeStep))
	for at := int64(0); at < size && err == nil; pause() {
		var n int
		clear(zeroes) // Write may have changed them: see vfs.File
		n, err = f.Write(zeroes[:min(int64(len(zeroes)), size-at)])
		at += int64(n)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = fs.Rename(made, name)
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err != nil {
		return nil, errors.Join(err, removeIfThere(fs, made))
	}
	return open(fs, dir, ordinal)
}

func open(fs vfs.FS, dir string, ordinal uint64) (*segment, error) {
	name := fs.PathJoin(dir, nameOf(ordinal))
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &segment{file: f, name: name, ordinal: ordinal, size: info.Size()}, nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func removeIfThere(fs vfs.FS, name string) error {
	if err := fs.Remove(name); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

// readHeader reads the header at an offset; false when there is none, or the segment ends.
func (s *segment) readHeader(at int64) (header, bool, error) {
	if at+blockSize > s.size {
		return header{}, false, nil
	}
	var b [headerLen]byte
	if err := s.readAt(b[:], at); err != nil {
		return header{}, false, err
	}
	h, ok := decodeHeader(b[:])
	return h, ok, nil
}

// readBody reads the body of the group at an offset; false when it is not whole.
func (s *segment) readBody(at int64, h *header) (body []byte, ok bool, err error) {
	if at+span(int(h.length)) > s.size {
		return nil, false, nil
	}
	body = make([]byte, h.length)
	if err := s.readAt(body, at+headerLen); err != nil {
		return nil, false, err
	}
	return body, h.holds(body), nil
}

// readSummary reads the summary of a use whole, but for what the owner did not give; false when there is none.
func (s *segment) readSummary(use *header) (h header, at int64, body []byte, ok bool, err error) {
	var trailer [trailerLen]byte
	if err := s.readAt(trailer[:], s.size-trailerLen); err != nil {
		return h, 0, nil, false, err
	}
	n := binary.LittleEndian.Uint32(trailer[:])
	if at = int64(binary.LittleEndian.Uint32(trailer[4:])); at%blockSize != 0 || at == 0 || at >= s.size {
		return h, 0, nil, false, nil
	}
	h, ok, err = s.readHeader(at)
	if !ok || err != nil || h.kind != Summary || !h.sameUse(use) || at+span(int(h.length)) != s.size || int64(n)+trailerLen > int64(h.length) {
		return h, 0, nil, false, err
	}
	if body, ok, err = s.readBody(at, &h); !ok || err != nil {
		return h, 0, nil, false, err
	}
	return h, at, body[:n], true, h.known()
}

func (s *segment) readAt(b []byte, at int64) error {
	if n, err := s.file.ReadAt(b, at); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return core.Errorf(core.CodeUnavailable, "read %d bytes at %d of %s: %w", len(b), at, s.name, err)
	}
	return nil
}
