package memory

import (
	"bytes"
	"slices"
	"time"

	"github.com/columbamq/columba/metadata"
)

// Index keeps rows of some form by their keys, those of a partition in order. It is not safe for concurrent use.
type Index[R any] struct{ partitions map[place]*partition[R] }

type place struct{ table, partition string }

// partition keeps its rows' names in order so that List need not sort.
type partition[R any] struct {
	rows  map[string]R
	names []string
}

// Get answers the zero R when there is no such row.
func (x *Index[R]) Get(t metadata.Table, k metadata.Key) (row R, ok bool) {
	if p := x.partitions[place{t.Name, k.Partition}]; p != nil {
		row, ok = p.rows[k.Row]
	}
	return row, ok
}

// Set adds or replaces a row.
func (x *Index[R]) Set(t metadata.Table, k metadata.Key, row R) {
	at := place{t.Name, k.Partition}
	p := x.partitions[at]
	if p == nil {
		if x.partitions == nil {
			x.partitions = make(map[place]*partition[R])
		}
		p = &partition[R]{rows: make(map[string]R)}
		x.partitions[at] = p
	}
	if i, found := slices.BinarySearch(p.names, k.Row); !found {
		p.names = slices.Insert(p.names, i, k.Row)
	}
	p.rows[k.Row] = row
}

// Delete removes a row, if it is there.
func (x *Index[R]) Delete(t metadata.Table, k metadata.Key) {
	p := x.partitions[place{t.Name, k.Partition}]
	if p == nil {
		return
	}
	if i, found := slices.BinarySearch(p.names, k.Row); found {
		p.names = slices.Delete(p.names, i, i+1)
		delete(p.rows, k.Row)
	}
}

// List is Store.List; read says which cell a reader gets of a row.
func (x *Index[R]) List(t metadata.Table, partition, after string, limit int, now time.Time, read func(R) metadata.Cell) (rows []metadata.Row, more bool) {
	p := x.partitions[place{t.Name, partition}]
	if p == nil {
		return nil, false
	}
	i, found := slices.BinarySearch(p.names, after)
	if found {
		i++
	}
	for _, name := range p.names[i:] {
		cell := read(p.rows[name])
		if !cell.Live(now) {
			continue
		}
		if len(rows) == limit {
			return rows, true
		}
		rows = append(rows, ownRow(metadata.Key{Partition: partition, Row: name}, cell))
	}
	return rows, false
}

// Each calls f for all rows.
func (x *Index[R]) Each(f func(R)) {
	for _, p := range x.partitions {
		for _, row := range p.rows {
			f(row)
		}
	}
}

// Sweep removes the rows that forget says, and the partitions without rows.
func (x *Index[R]) Sweep(forget func(R) bool) {
	for at, p := range x.partitions {
		p.names = slices.DeleteFunc(p.names, func(name string) bool {
			gone := forget(p.rows[name])
			if gone {
				delete(p.rows, name)
			}
			return gone
		})
		if len(p.names) == 0 {
			delete(x.partitions, at)
		}
	}
}

// ownRow is a row whose value is the caller's.
func ownRow(k metadata.Key, c metadata.Cell) metadata.Row {
	row := c.Row(k)
	row.Value = bytes.Clone(row.Value)
	return row
}
