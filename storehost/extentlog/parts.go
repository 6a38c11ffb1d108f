package extentlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Bounds of a run.
const (
	// runMost is how many bytes one run moves, about. Appends may wait for it.
	runMost = 1 << 20
	// joinGap is how many live bytes between two parts are moved with them: less than another table costs.
	joinGap = 16 << 10
	// smallTable is the size up to which a whole table moves with sparse ones beside it.
	smallTable = 64 << 10
	// tableCost is about what a table takes beside its batches.
	tableCost = 4 << 10
	// estimateOff is by how much the database is wrong about the size of a part, at most. It counts whole blocks.
	estimateOff = 64 << 10
)

// part is a range of keys of batches which a table has; to is exclusive.
type part struct {
	from, to []byte
	bytes    int64  // about
	table    uint64 // number of the sparse file; 0: of a small table, which moves only with parts of sparse ones beside it
}

// run is a range of keys whose live batches move together.
type run struct {
	from, to []byte
	parts    []part
	bytes    int64 // of the parts
}

// sparseTable is a file of the database from which ranges were cut out.
type sparseTable struct {
	number uint64
	size   int64
	live   int64 // about; Pebble counts whole blocks
	parts  []part
	mixed  bool // has rows, or an index of timers, too
}

// stock are the tables of batches alone.
type stock struct {
	sparse  []*sparseTable // those with the smallest part of live bytes first
	small   []part         // tables that are whole
	bytes   int64          // of all files
	garbage int64          // of sparse ones: blocks without a live batch
}

// tablesOfBatches lists the tables of batches. It opens none.
func (e *Engine) tablesOfBatches() (s stock, err error) {
	levels, err := e.db.SSTables(pebble.WithKeyRangeFilter([]byte{prefixBatch}, []byte{prefixBatch + 1}))
	if err != nil {
		return stock{}, err
	}
	tables := make(map[uint64]*sparseTable)
	for _, info := range slices.Concat(levels...) {
		if !info.Virtual {
			if isOfBatches(&info) {
				s.bytes += int64(info.Size)
				if info.Size <= smallTable {
					s.small = append(s.small, partOf(&info))
				}
			}
			continue
		}
		p := partOf(&info)
		p.table = uint64(info.BackingSSTNum)
		t := tables[p.table]
		if t == nil {
			t = &sparseTable{number: p.table}
			tables[p.table] = t
		}
		t.live, t.parts, t.mixed = t.live+p.bytes, append(t.parts, p), t.mixed || !isOfBatches(&info)
	}
	sizes := make(map[uint64]int64, len(tables))
	for n, t := range tables {
		if t.mixed {
			continue
		}
		if t.size, err = e.tableSize(n); errors.Is(err, fs.ErrNotExist) {
			continue // all of it was removed meanwhile
		}
		if err != nil {
			return stock{}, err
		}
		slices.SortFunc(t.parts, func(a, b part) int { return bytes.Compare(a.from, b.from) })
		sizes[n], s.sparse = t.size, append(s.sparse, t)
		s.bytes, s.garbage = s.bytes+t.size, s.garbage+t.size-t.live
	}
	e.repacker.keep(sizes)
	slices.SortFunc(s.sparse, func(a, b *sparseTable) int {
		return cmp.Or(cmp.Compare(a.live*b.size, b.live*a.size), cmp.Compare(a.number, b.number))
	})
	return s, nil
}

// tableSize looks up a table that is new to the repacker.
func (e *Engine) tableSize(number uint64) (int64, error) {
	if size, ok := e.repacker.sizes[number]; ok {
		return size, nil
	}
	info, err := e.files.Stat(e.files.PathJoin(e.dir, databaseDir, fmt.Sprintf("%06d.sst", number)))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func partOf(info *pebble.SSTableInfo) part {
	to := slices.Clone(info.Largest.UserKey)
	if !info.Largest.IsExclusiveSentinel() {
		to = append(to, 0)
	}
	return part{from: slices.Clone(info.Smallest.UserKey), to: to, bytes: int64(info.Size)}
}

// isOfBatches reports whether a table has batches alone: indexes of timers change while they are moved.
func isOfBatches(t *pebble.SSTableInfo) bool {
	behind := bytes.Compare(t.Largest.UserKey, []byte{prefixBatch + 1})
	return bytes.Compare(t.Smallest.UserKey, []byte{prefixBatch}) >= 0 && (behind < 0 || behind == 0 && t.Largest.IsExclusiveSentinel())
}

// joinParts makes runs of parts that overlap, and of those between which near finds little that lives. A run has a part
// of a sparse table.
func joinParts(sparse, small []part, near func(from, to []byte) bool) (runs []run) {
	for _, p := range besideSparse(sparse, small) {
		if n := len(runs); n > 0 {
			r := &runs[n-1]
			if bytes.Compare(p.from, r.to) < 0 || r.bytes+p.bytes <= runMost && near(r.to, p.from) {
				if bytes.Compare(p.to, r.to) > 0 {
					r.to = p.to
				}
				r.parts, r.bytes = append(r.parts, p), r.bytes+p.bytes
				continue
			}
		}
		runs = append(runs, run{from: p.from, to: p.to, parts: []part{p}, bytes: p.bytes})
	}
	return slices.DeleteFunc(runs, func(r run) bool {
		return !slices.ContainsFunc(r.parts, func(p part) bool { return p.table != 0 })
	})
}

// besideSparse are all parts of sparse tables, and the small ones next to one of those, by their keys.
func besideSparse(sparse, small []part) (parts []part) {
	all := slices.Concat(sparse, small)
	slices.SortFunc(all, func(a, b part) int {
		return cmp.Or(bytes.Compare(a.from, b.from), bytes.Compare(a.to, b.to))
	})
	for i, p := range all {
		if p.table != 0 || i > 0 && all[i-1].table != 0 || i+1 < len(all) && all[i+1].table != 0 {
			parts = append(parts, p)
		}
	}
	return parts
}
