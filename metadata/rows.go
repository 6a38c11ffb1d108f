package metadata

import (
	"context"

	"github.com/columbamq/columba/core"
)

// RowsGetter is a Store that reads many rows for little more than one.
type RowsGetter interface {
	// GetRows reads rows of one table, in the order of keys; those that are not there are left out.
	GetRows(ctx context.Context, t Table, keys []Key, c Consistency) ([]Row, error)
}

// GetRows reads rows of one table from any store, in the order of keys; those that are not there are left out. Errors are those of Get.
func GetRows(ctx context.Context, s Store, t Table, keys []Key, c Consistency) ([]Row, error) {
	if many, ok := s.(RowsGetter); ok {
		return many.GetRows(ctx, t, keys, c)
	}
	rows := make([]Row, 0, len(keys))
	for _, k := range keys {
		row, err := s.Get(ctx, t, k, c)
		switch {
		case err == nil:
			rows = append(rows, row)
		case core.CodeOf(err) != core.CodeNotFound:
			return nil, err
		}
	}
	return rows, nil
}

// Decode decodes the value of a row; CodeCorrupt when it is not a T.
func Decode[T any](t Table, row Row) (T, error) { return decode[T](t, row) }
