package metadata

import (
	"context"
	"iter"

	"github.com/columbamq/columba/core"
)

// ExtentRow is a row of Extents. When the row cannot be decoded, a hint or the seal row of the extent stands in for it.
type ExtentRow struct {
	Key    Key
	Value  ExtentRecord
	Damage error // CodeCorrupt: why the row cannot be decoded; nil: Value is what the row says
}

// Known reports whether Value describes the extent. Else the row is damaged, and no other row of the extent can be
// read: Value has the id alone, and the queue when Key names one.
func (r ExtentRow) Known() bool { return r.Damage == nil || !r.Value.Created.IsZero() }

// Err is Damage of an extent that is not known.
func (r ExtentRow) Err() error {
	if r.Known() {
		return nil
	}
	return r.Damage
}

// ExtentRows yields the create rows of a queue's extents, oldest first, page by page. A change made meanwhile may be
// seen or not. An error of the metadata is yielded once, as the last element; a damaged row is no error.
func ExtentRows(ctx context.Context, s Store, queue core.QueueID, c Consistency) iter.Seq2[ExtentRow, error] {
	return func(yield func(ExtentRow, error) bool) {
		for row, err := range pages(ctx, s, Extents, queue.String(), listPage, c) {
			var r ExtentRow
			if err == nil {
				r, err = DecodeExtentRow(ctx, s, row, c)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// ExtentRowsPage answers up to limit create rows of a queue's extents, those after the given row ("" = from the first);
// more says that there are others.
func ExtentRowsPage(ctx context.Context, s Store, queue core.QueueID, after string, limit int, c Consistency) (out []ExtentRow, more bool, err error) {
	rows, more, err := s.List(ctx, Extents, queue.String(), after, limit, c)
	if err != nil {
		return nil, false, err
	}
	out = make([]ExtentRow, len(rows))
	for i, row := range rows {
		if out[i], err = DecodeExtentRow(ctx, s, row, c); err != nil {
			return nil, false, err
		}
	}
	return out, more, nil
}

// ReadExtentRow reads the create row of an extent. Errors: those of Get; a damaged row is none.
func ReadExtentRow(ctx context.Context, s Store, queue core.QueueID, id core.ExtentID, c Consistency) (ExtentRow, error) {
	row, err := s.Get(ctx, Extents, ExtentKey(queue, id), c)
	if err != nil {
		return ExtentRow{}, err
	}
	return DecodeExtentRow(ctx, s, row, c)
}

// DecodeExtentRow reads a create row. For a damaged one it reads the other rows of the extent. Errors: those of Get.
func DecodeExtentRow(ctx context.Context, s Store, row Row, c Consistency) (ExtentRow, error) {
	r := ExtentRow{Key: row.Key}
	if r.Value, r.Damage = DecodeExtent(Extents, row); r.Damage == nil {
		return r, nil
	}
	var err error
	r.Value, err = standIn(ctx, s, row.Key, c)
	return r, err
}

// standIn is what the other rows of an extent say of it: a hint has the record of the create row, a seal row most of
// it.
func standIn(ctx context.Context, s Store, k Key, c Consistency) (r ExtentRecord, err error) {
	if r.Queue.ID, err = core.ParseID(k.Partition); err == nil {
		r.ID.ID, err = core.ParseID(k.Row)
	}
	if err != nil {
		return ExtentRecord{}, nil // the row is named after no extent
	}
	for _, hint := range [...]Hint{HintLive, HintOpen} {
		row, err := s.Get(ctx, Work, HintKey(hint, r.ID), c)
		if err == nil {
			if hinted, bad := DecodeExtent(Work, row); bad == nil && hinted.Queue == r.Queue {
				return hinted, nil
			}
		} else if core.CodeOf(err) != core.CodeNotFound {
			return r, err
		}
	}
	row, err := s.Get(ctx, Seals, SealKey(r.ID), c)
	if core.CodeOf(err) == core.CodeNotFound {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if seal, bad := DecodeSeal(row); bad == nil && seal.Extent.Queue == r.Queue {
		r = ExtentRecord{Extent: seal.Extent, Created: r.ID.Time(), Home: seal.Home, Before: seal.Before}
	}
	return r, nil
}
