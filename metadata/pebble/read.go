package pebble

import (
	"bytes"
	"context"
	"errors"

	engine "github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// maxPage bounds the bytes of values in one page of a list.
const maxPage = 4 << 20

// Get implements metadata.Store. Reads other than at One answer only what is durable.
func (s *Store) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := metadata.CheckKey(t, k); err != nil {
		return metadata.Row{}, err
	}
	answer := new(metadata.Row) // the goroutine's when the deadline passes
	err := s.call(ctx, core.CodeUnavailable, nil, func() error {
		cell, err := s.cell(rowKey(t, k))
		if err != nil {
			return err
		}
		if c != metadata.One {
			if err := s.barrier(); err != nil {
				return err
			}
		}
		if !cell.Live(now()) {
			return metadata.NoRow(t, k)
		}
		*answer = cell.Row(k)
		return nil
	})
	if err != nil {
		return metadata.Row{}, err
	}
	return *answer, nil
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := metadata.CheckList(t, partition, after, limit); err != nil {
		return nil, false, err
	}
	answer := new(page)
	err := s.call(ctx, core.CodeUnavailable, nil, func() error {
		if err := s.list(t, partition, after, limit, answer); err != nil {
			return err
		}
		if c != metadata.One {
			return s.barrier()
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return answer.rows, answer.more, nil
}

type page struct {
	rows []metadata.Row
	more bool
}

func (s *Store) list(t metadata.Table, partition, after string, limit int, p *page) error {
	prefix := partitionPrefix(t, partition)
	from := prefix
	if after != "" {
		from = append(rowKey(t, metadata.Key{Partition: partition, Row: after}), 0) // the key next to it
	}
	size := 0
	return s.scan(from, partitionEnd(prefix), func(key []byte, cell metadata.Cell) (bool, error) {
		if len(p.rows) == limit || len(p.rows) > 0 && size+len(cell.Value) > maxPage {
			p.more = true
			return false, nil
		}
		size += len(cell.Value)
		cell.Value = bytes.Clone(cell.Value)
		k := metadata.Key{Partition: partition, Row: string(key[len(prefix):])}
		p.rows = append(p.rows, cell.Row(k))
		return true, nil
	})
}

// scan calls each for every live row of a range of engine keys, in order, until it returns false. Key and value are the
// engine's.
func (s *Store) scan(from, to []byte, each func(key []byte, cell metadata.Cell) (more bool, err error)) (err error) {
	iter, err := s.db.NewIter(&engine.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return s.diskError(err)
	}
	defer func() {
		if closing := s.diskError(iter.Close()); err == nil {
			err = closing
		}
	}()
	at := now()
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return s.diskError(err)
		}
		cell, err := metadata.DecodeCell(value)
		if err != nil {
			return err
		}
		if !cell.Live(at) {
			continue
		}
		if more, err := each(iter.Key(), cell); err != nil || !more {
			return err
		}
	}
	return s.diskError(iter.Error())
}

// cell reads what is at an engine key; the zero Cell when there is nothing. The value is the caller's.
func (s *Store) cell(key []byte) (metadata.Cell, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, engine.ErrNotFound) {
		return metadata.Cell{}, nil
	}
	if err != nil {
		return metadata.Cell{}, s.diskError(err)
	}
	defer closer.Close()
	return metadata.DecodeCell(bytes.Clone(value))
}
