package metadata

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
)

// DoneRecord says that a group has consumed a sealed extent to its end.
type DoneRecord struct {
	L     core.Seq `json:"l"`               // the end seq of the extent
	Epoch uint64   `json:"epoch"`           // of the group, when it did; a rewind (a seek) makes it void …
	Stays bool     `json:"stays,omitempty"` // … unless it does not touch the extent: it holds merged messages, or is of a retry queue
}

// In reports whether it holds in an epoch of the group.
func (d DoneRecord) In(epoch uint64) bool { return d.Stays || d.Epoch == epoch }

// DonesOf yields the done rows of a group in an extent, of all epochs; they may be removed meanwhile. An error is
// yielded once, as the last element.
func DonesOf(ctx context.Context, s Store, group core.GroupID, extent core.ExtentID, c Consistency) iter.Seq2[Record[DoneRecord], error] {
	const page = 4 // there is one, most often
	prefix := extent.String()
	return func(yield func(Record[DoneRecord], error) bool) {
		for after, more := "", true; more; {
			var rows []Record[DoneRecord]
			var err error
			if rows, more, err = Prefix[DoneRecord](ctx, s, Dones, group.String(), prefix, after, page, c); err != nil {
				yield(Record[DoneRecord]{}, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
				after = row.Key.Row
			}
		}
	}
}

// IsConsumed reports whether a group has consumed an extent in one of its epochs.
func IsConsumed(ctx context.Context, s Store, group core.GroupID, extent core.ExtentID, epoch uint64, c Consistency) (bool, error) {
	for row, err := range DonesOf(ctx, s, group, extent, c) {
		if err != nil {
			return false, err
		}
		if row.Value.In(epoch) {
			return true, nil
		}
	}
	return false, nil
}

// Consumed returns, for each extent that a group has consumed in one of its epochs, the time when it had.
func Consumed(ctx context.Context, s Store, group core.GroupID, epoch uint64, c Consistency) (map[core.ExtentID]time.Time, error) {
	out := make(map[core.ExtentID]time.Time)
	for row, err := range All[DoneRecord](ctx, s, Dones, group.String(), c) {
		if err != nil {
			return nil, err
		}
		id, err := DoneExtent(row.Key)
		if err != nil {
			return nil, err
		}
		if at := row.Written; row.Value.In(epoch) && at.After(out[id]) {
			out[id] = at
		}
	}
	return out, nil
}

// DoneExtent returns the extent in the key of a done row. Keys of older versions have no epoch after it.
func DoneExtent(k Key) (core.ExtentID, error) {
	text, _, _ := strings.Cut(k.Row, "/")
	id, err := core.ParseID(text)
	return core.ExtentID{ID: id}, err
}
