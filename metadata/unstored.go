package metadata

import (
	"errors"
	"fmt"
	"slices"
)

// UnstoredError is an error of PutAll by which the fate of each row is known: the named rows may be stored or not, and
// all others are stored.
type UnstoredError struct {
	Rows []int // indexes into PutAll's rows, ascending
	Of   int   // how many rows there were
	Err  error
}

// Error implements error.
func (e *UnstoredError) Error() string {
	return fmt.Sprintf("%d of %d rows may not be stored: %v", len(e.Rows), e.Of, e.Err)
}

// Unwrap has the code of an UnstoredError be that of its cause.
func (e *UnstoredError) Unwrap() error { return e.Err }

// UnstoredFrom is the error of a PutAll of that many rows which stored those before first, and then failed with err.
func UnstoredFrom(first, rows int, err error) error {
	if first == 0 {
		return err
	}
	e := &UnstoredError{Of: rows, Err: err}
	for i := first; i < rows; i++ {
		e.Rows = append(e.Rows, i)
	}
	return e
}

// Unstored answers which of the rows of a PutAll that ended with err may not be stored: as indexes, ascending. Those
// are all rows if the error does not say it.
func Unstored(err error, rows int) []int {
	if err == nil {
		return nil
	}
	if e := (*UnstoredError)(nil); errors.As(err, &e) && e.Of == rows {
		return slices.Clone(e.Rows)
	}
	all := make([]int, rows)
	for i := range all {
		all[i] = i
	}
	return all
}
