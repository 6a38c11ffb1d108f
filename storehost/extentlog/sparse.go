package extentlog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// sparseTable is a file of the database from which most records were cut out.
type sparseTable struct {
	file  uint64 // its number
	name  string
	size  int64
	live  int64 // bytes, about
	parts []tablePart
}

// tablePart is a range of a table that is left; to is exclusive.
type tablePart struct{ from, to []byte }

// sparseTables are the tables of batches with at most so many percent of live bytes, by what it costs to move the rest.
// small are whole tables of one extent that are smaller than what is moved with others.
func (e *Engine) sparseTables(percent int64) (sparse []sparseTable, small []piece, err error) {
	levels, err := e.db.SSTables()
	if err != nil {
		return nil, nil, err
	}
	tables := make(map[uint64]*sparseTable)
	for _, level := range levels {
		for i := range level {
			info := &level[i]
			if !info.Virtual {
				if p := partOf(info); info.Size <= joinGap && p.isOfBatches() && p.isOfOne() {
					small = append(small, piece{from: p.from, to: p.to, bytes: int64(info.Size), whole: true})
				}
				continue
			}
			file := uint64(info.BackingSSTNum)
			t := tables[file]
			if t == nil {
				t = &sparseTable{file: file, name: e.files.PathJoin(e.dir, databaseDir, fmt.Sprintf("%06d.sst", file))}
				tables[file] = t
			}
			t.live += int64(info.Size)
			t.parts = append(t.parts, partOf(info))
		}
	}
	for _, t := range tables {
		if !t.isOfBatches() || e.unpacked[t.file] {
			continue
		}
		info, err := e.files.Stat(t.name)
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if t.size = info.Size(); t.live <= t.size*percent/100 {
			sparse = append(sparse, *t)
		}
	}
	slices.SortFunc(sparse, func(a, b sparseTable) int { return cmp.Compare(a.live*b.size, b.live*a.size) })
	return sparse, small, nil
}

func partOf(info *pebble.SSTableInfo) tablePart {
	to := slices.Clone(info.Largest.UserKey)
	if !info.Largest.IsExclusiveSentinel() {
		to = append(to, 0)
	}
	return tablePart{from: slices.Clone(info.Smallest.UserKey), to: to}
}

// isOfBatches reports whether the table has batches alone: indexes of timers change while they are moved.
func (t *sparseTable) isOfBatches() bool {
	return !slices.ContainsFunc(t.parts, func(p tablePart) bool { return !p.isOfBatches() })
}

func (p *tablePart) isOfBatches() bool {
	return string(p.from) >= string([]byte{prefixBatch}) && string(p.to) <= string([]byte{prefixBatch + 1})
}

// isOfOne reports whether all keys are of one extent.
func (p *tablePart) isOfOne() bool {
	first, _ := placeOf(p.from)
	last, _ := placeOf(p.to)
	return first == last
}

// piece is a range of keys of one extent that a table has; to is exclusive.
type piece struct {
	from, to []byte
	bytes    int64
	whole    bool // it is all that a table has, and moves only with others
}

// piecesOf are the ranges of a table's batches, and of deletions in it, as far as they were not cut out. Their order is
// none.
func (e *Engine) piecesOf(t *sparseTable) (all []piece, err error) {
	r, err := openTable(e.files, t.name, e.options.MakeReaderOptions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, p := range t.parts {
		batches, err := batchPieces(r, p)
		if err != nil {
			return nil, err
		}
		deletions, err := deletionPieces(r, p)
		if err != nil {
			return nil, err
		}
		all = append(append(all, batches...), deletions...)
	}
	return all, nil
}

func batchPieces(r *sstable.Reader, p tablePart) (all []piece, err error) {
	iter, err := r.NewIter(sstable.NoTransforms, p.from, p.to, sstable.AssertNoBlobHandles)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for kv := iter.SeekGE(p.from, 0); kv != nil; kv = iter.Next() {
		key := kv.K.UserKey
		if len(key) != batchKeyLen {
			return nil, core.Errorf(core.CodeCorrupt, "a key of %d bytes among batches", len(key))
		}
		value, _, err := kv.Value(nil)
		if err != nil {
			return nil, err
		}
		to := behindBatch(key, value)
		if n := len(all); n > 0 && string(all[n-1].to) == string(key) {
			all[n-1].to, all[n-1].bytes = to, all[n-1].bytes+int64(len(value))
			continue
		}
		all = append(all, piece{from: slices.Clone(key), to: to, bytes: int64(len(value))})
	}
	return all, iter.Error()
}

// behindBatch is the key of the batch that follows one, or may.
func behindBatch(key, batch []byte) []byte {
	id, base := placeOf(key)
	last := base
	if b, err := wire.DecodeBatch(batch); err == nil && b.Base == base {
		last = b.Last()
	}
	return batchKey(id, last+1)
}

func deletionPieces(r *sstable.Reader, p tablePart) (all []piece, err error) {
	iter, err := r.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || iter == nil {
		return nil, err
	}
	defer iter.Close()
	span, err := iter.First()
	for ; err == nil && span != nil; span, err = iter.Next() {
		from, to := slices.Clone(span.Start), slices.Clone(span.End)
		if string(from) < string(p.from) {
			from = p.from
		}
		if string(to) > string(p.to) {
			to = p.to
		}
		if string(from) < string(to) {
			all = append(all, piece{from: from, to: to})
		}
	}
	return all, err
}

// placeOf is the extent and the seq that a key of batches, or a shorter one, begins with.
func placeOf(key []byte) (id core.ExtentID, seq core.Seq) {
	var padded [batchKeyLen]byte
	copy(padded[:], key)
	return core.ExtentID{ID: core.ID(padded[1:extentKeyLen])}, core.Seq(binary.BigEndian.Uint64(padded[extentKeyLen:]))
}
