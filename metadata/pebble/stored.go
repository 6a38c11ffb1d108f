package pebble

import (
	"bytes"
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Stored calls each for every live row after one, in the order of table, partition and row, until it fails. Empty names
// are before all. Rows that change meanwhile are seen or not. Errors: those of each, CodeCorrupt (also a table that
// this version does not know), CodeUnavailable.
func (s *Store) Stored(ctx context.Context, table, partition, row string, each func(metadata.Stored) error) error {
	from := []byte{prefixRow}
	if table != "" {
		from = append(rowKey(metadata.Table{Name: table}, metadata.Key{Partition: partition, Row: row}), 0) // the key next to it
	}
	for {
		part := new(storedPage)
		err := s.call(ctx, core.CodeUnavailable, nil, func() error { return s.storedPage(from, part) })
		if err != nil {
			return err
		}
		for _, r := range part.rows {
			if err := each(r); err != nil {
				return err
			}
		}
		if part.next == nil {
			return nil
		}
		from = part.next
	}
}

// storedPage is rows up to maxPage bytes; next is where the others begin.
type storedPage struct {
	rows []metadata.Stored
	next []byte
}

func (s *Store) storedPage(from []byte, p *storedPage) error {
	size := 0
	return s.scan(from, []byte{prefixRow + 1}, func(key []byte, cell metadata.Cell) (bool, error) {
		if size += len(key) + len(cell.Value); size > maxPage && len(p.rows) > 0 {
			p.next = bytes.Clone(key)
			return false, nil
		}
		r, err := storedOf(key, cell)
		p.rows = append(p.rows, r)
		return true, err
	})
}

// storedOf is the row at an engine key.
func storedOf(key []byte, cell metadata.Cell) (r metadata.Stored, err error) {
	parts := bytes.SplitN(key[1:], []byte{0}, 3)
	if len(parts) != 3 {
		return r, core.Errorf(core.CodeCorrupt, "metadata have a row without a key")
	}
	t, ok := metadata.TableOf(string(parts[0]))
	if !ok {
		return r, core.Errorf(core.CodeCorrupt, "metadata have a table %q, which this version does not know", parts[0])
	}
	cell.Value = bytes.Clone(cell.Value)
	r = metadata.Stored{Table: t, Row: cell.Row(metadata.Key{Partition: string(parts[1]), Row: string(parts[2])})}
	if cell.Expires != 0 {
		r.Expires = time.UnixMicro(cell.Expires)
	}
	return r, nil
}
