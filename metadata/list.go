package metadata

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
)

const (
	listPage = 500 // records that All asks for at a time
	rowsPage = 100 // rows that Rows asks for at a time: those of checkpoints are large
)

// All yields the records of a partition in the order of their rows, page by page. A change made meanwhile may be seen
// or not. An error is yielded once, as the last element; but CodeCorrupt of a row that is no T has the key of the row,
// and the reader may go on behind it.
func All[T any](ctx context.Context, s Store, t Table, partition string, c Consistency) iter.Seq2[Record[T], error] {
	return func(yield func(Record[T], error) bool) {
		for row, err := range pages(ctx, s, t, partition, listPage, c) {
			var v T
			failed := err != nil
			if !failed {
				v, err = decode[T](t, row)
			}
			if !yield(Record[T]{row.Key, v, row.Version, row.Written}, err) || failed {
				return
			}
		}
	}
}

// Damaged reports whether an error of All is of one row, so that its reader may go on behind it.
func (r Record[T]) Damaged(err error) bool {
	return core.CodeOf(err) == core.CodeCorrupt && r.Key != Key{}
}

// Rows is All for rows that are no records.
func Rows(ctx context.Context, s Store, t Table, partition string, c Consistency) iter.Seq2[Row, error] {
	return pages(ctx, s, t, partition, rowsPage, c)
}

func pages(ctx context.Context, s Store, t Table, partition string, limit int, c Consistency) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row, err := range readPage(ctx, s, t, partition, "", limit, c).following(ctx, s, t, partition, limit, c) {
			if !yield(row, err) {
				return
			}
		}
	}
}

// page is what one List answers.
type page struct {
	rows []Row
	more bool
	err  error
}

func readPage(ctx context.Context, s Store, t Table, partition, after string, limit int, c Consistency) (p page) {
	p.rows, p.more, p.err = s.List(ctx, t, partition, after, limit, c)
	return p
}

// following yields the rows of a page, and of those that follow it in its partition.
func (p page) following(ctx context.Context, s Store, t Table, partition string, limit int, c Consistency) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for {
			if p.err != nil {
				yield(Row{}, p.err)
				return
			}
			for _, row := range p.rows {
				if !yield(row, nil) {
					return
				}
			}
			if !p.more || len(p.rows) == 0 {
				return
			}
			p = readPage(ctx, s, t, partition, p.rows[len(p.rows)-1].Key.Row, limit, c)
		}
	}
}

// WhereLister is a Store that lists some rows of a partition at the cost of those alone.
type WhereLister interface {
	// ListWhere is List without the rows that are not wanted.
	ListWhere(ctx context.Context, t Table, partition, after string, limit int, c Consistency, wanted func(row string) bool) ([]Row, bool, error)
}

// ListWhere lists rows of any store that are wanted. It answers fewer than limit, with more to come, of a store that
// reads the others, too: after the last row that is answered. Errors are those of List.
func ListWhere(ctx context.Context, s Store, t Table, partition, after string, limit int, c Consistency, wanted func(row string) bool) ([]Row, bool, error) {
	if some, ok := s.(WhereLister); ok {
		return some.ListWhere(ctx, t, partition, after, limit, c, wanted)
	}
	for page := limit; ; page = min(2*page, max(limit, listPage)) { // few may be asked for that are behind many others
		rows, more, err := s.List(ctx, t, partition, after, page, c)
		if err != nil {
			return nil, false, err
		}
		if len(rows) > 0 {
			after = rows[len(rows)-1].Key.Row
		}
		rows = slices.DeleteFunc(rows, func(r Row) bool { return !wanted(r.Key.Row) })
		if len(rows) > limit {
			return rows[:limit], true, nil
		}
		if len(rows) > 0 || !more {
			return rows, more, nil
		}
	}
}

// Prefix reads one page, up to limit records of a partition whose rows begin with prefix, those after the given row (""
// = from the first); more says that there are others. Row of the last record is the after of the next page.
func Prefix[T any](ctx context.Context, s Store, t Table, partition, prefix, after string, limit int, c Consistency) (records []Record[T], more bool, err error) {
	return PrefixWhere[T](ctx, s, t, partition, prefix, after, limit, c, nil)
}

// PrefixWhere is Prefix of the rows that are wanted; nil: of all.
func PrefixWhere[T any](ctx context.Context, s Store, t Table, partition, prefix, after string, limit int, c Consistency, wanted func(row string) bool) (records []Record[T], more bool, err error) {
	after = max(after, before(prefix))
	list := s.List
	if wanted != nil {
		list = func(ctx context.Context, t Table, partition, after string, limit int, c Consistency) ([]Row, bool, error) {
			return ListWhere(ctx, s, t, partition, after, limit, c, wanted)
		}
	}
	for {
		rows, others, err := list(ctx, t, partition, after, limit+1, c) // one more says whether there are more
		if err != nil {
			return nil, false, err
		}
		for _, row := range rows {
			after = row.Key.Row
			if !strings.HasPrefix(after, prefix) {
				if after > prefix {
					return records, false, nil
				}
				continue
			}
			if len(records) == limit {
				return records, true, nil
			}
			v, err := decode[T](t, row)
			if err != nil {
				return nil, false, err
			}
			records = append(records, Record[T]{row.Key, v, row.Version, row.Written})
		}
		if !others || len(rows) == 0 {
			return records, false, nil
		}
	}
}

// before is a string less than prefix and everything that begins with it, with hardly a row between.
func before(prefix string) string {
	if prefix == "" {
		return ""
	}
	last := len(prefix) - 1
	if prefix[last] <= 1 {
		return prefix[:last]
	}
	return prefix[:last] + string([]byte{prefix[last] - 1, 0xff})
}
