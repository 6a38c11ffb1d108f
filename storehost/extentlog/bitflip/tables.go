package bitflip

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	blockTrailer  = 5  // kind u8 | checksum u32, behind each block
	footerMost    = 64 // bytes at the end of a table, at least
	footerVersion = 4
	footerMagic   = "\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"
	checksumCRC   = 1
)

// Table corrects b, a table, one flipped bit in each block. whole is false when some block has more than that, or
// cannot be found.
func Table(b []byte, o sstable.ReaderOptions) (fixes []Fix, whole bool) {
	index, meta, fix, ok := footer(b)
	if !ok {
		return nil, false
	}
	fixes, whole = fix, true
	mend := func(h block.Handle) {
		fix, ok := tableBlock(b, h)
		fixes, whole = append(fixes, fix...), whole && ok
	}
	mend(meta)
	mend(index)
	if !whole {
		return fixes, false
	}
	if h, ok := properties(b, meta); ok {
		mend(h)
	}
	blocks, ok := layout(b, o)
	if !ok {
		return fixes, false
	}
	for _, h := range blocks {
		mend(h)
	}
	return fixes, whole
}

// tableBlock corrects one block.
func tableBlock(b []byte, h block.Handle) (fix []Fix, ok bool) {
	if h.Length == 0 {
		return nil, true
	}
	if h.Offset > uint64(len(b)) || h.Length > uint64(len(b)) || h.Offset+h.Length+blockTrailer > uint64(len(b)) {
		return nil, false
	}
	at, end := int64(h.Offset), int64(h.Offset+h.Length)+1
	return correct(b[at:end], at, b[end:end+blockTrailer-1], end)
}

// footer finds the blocks that all others are found by. If a bit of the footer is flipped, it flips it back.
func footer(b []byte) (index, meta block.Handle, fix []Fix, ok bool) {
	if index, meta, ok = handles(b); ok {
		return index, meta, nil, true
	}
	for at := max(0, len(b)-footerMost); at < len(b); at++ {
		for bit := range 8 {
			b[at] ^= 1 << bit
			if index, meta, ok = handles(b); ok {
				return index, meta, []Fix{{int64(at), b[at]}}, true
			}
			b[at] ^= 1 << bit
		}
	}
	return index, meta, nil, false
}

// formats are the footers of tables by the version in them. That of the others has no checksum.
var formats = map[uint32]struct{ size, checksum int }{6: {57, 41}, 7: {61, 45}}

// handles reads the footer of a table.
func handles(b []byte) (index, meta block.Handle, ok bool) {
	if len(b) < footerMost {
		return index, meta, false
	}
	f := b[len(b)-len(footerMagic)-footerVersion:]
	if string(f[footerVersion:]) != footerMagic {
		return index, meta, false
	}
	is, known := formats[binary.LittleEndian.Uint32(f)]
	if !known {
		return index, meta, false
	}
	f = b[len(b)-is.size:]
	if f[0] != checksumCRC {
		return index, meta, false
	}
	sum := bytes.Join([][]byte{f[:is.checksum], f[is.checksum+4:]}, nil)
	if mask(crc32.Checksum(sum, table)) != binary.LittleEndian.Uint32(f[is.checksum:]) {
		return index, meta, false
	}
	meta, n := block.DecodeHandle(f[1:])
	if n == 0 {
		return index, meta, false
	}
	index, n = block.DecodeHandle(f[1+n:])
	return index, meta, n > 0
}

// properties finds the block of properties, without which a table cannot be opened. It is before the block that names
// it.
func properties(b []byte, meta block.Handle) (block.Handle, bool) {
	for names := b[meta.Offset : meta.Offset+meta.Length]; len(names) > 0; names = names[1:] {
		h, n := block.DecodeHandle(names)
		if n > 0 && h.Length > 0 && h.Offset < meta.Offset && h.Offset+h.Length+blockTrailer == meta.Offset {
			return h, true
		}
	}
	return block.Handle{}, false
}

// layout lists all other blocks.
func layout(b []byte, o sstable.ReaderOptions) (all []block.Handle, ok bool) {
	r, err := Reader(b, o)
	if err != nil {
		return nil, false
	}
	defer r.Close()
	l, err := r.Layout()
	if err != nil {
		return nil, false
	}
	for _, h := range l.Data {
		all = append(all, h.Handle)
	}
	all = append(append(all, l.Index...), l.ValueBlock...)
	return append(all, l.RangeDel, l.RangeKey, l.ValueIndex), true
}

// Reader reads a table in memory.
func Reader(b []byte, o sstable.ReaderOptions) (*sstable.Reader, error) {
	file, err := sstable.NewSimpleReadable(vfs.NewMemFile(b))
	if err != nil {
		return nil, err
	}
	r, err := sstable.NewReader(context.Background(), file, o)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}
