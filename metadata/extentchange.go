package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// ChangesRecord is a note of a controller for the others: it has changed rows of these extents. Controllers read the notes
// of the last minutes, and the rows that they name, in place of all rows.
type ChangesRecord struct {
	By   core.HostID `json:"by"`
	Run  core.RunID  `json:"run"`
	Made []MadeRow   `json:"made,omitempty"` // whose create rows were written
	// Sealed are the extents whose seal rows were written.
	Sealed []core.ExtentID `json:"sealed,omitempty"`
}

// MadeRow names a create row.
type MadeRow struct {
	Queue  core.QueueID  `json:"queue"`
	Extent core.ExtentID `json:"extent"`
}

const (
	// ChangesLife is how long a note stays. Whoever was away for longer reads all rows.
	ChangesLife = time.Hour
	// changesSpan is the time of which a partition has the notes. Notes that have ended lie in partitions that nobody reads.
	changesSpan = 5 * time.Minute
)

// ChangesKey is where Work keeps a note; the id has the time of its writer.
func ChangesKey(id core.ID) Key { return Key{changesPartition(id.Time()), id.String()} }

func changesPartition(at time.Time) string {
	return "changes/" + at.UTC().Truncate(changesSpan).Format(time.RFC3339)
}

// ChangesSince reads the notes of an interval, by the clocks of their writers.
func ChangesSince(ctx context.Context, s Store, from, to time.Time, c Consistency) (notes []Record[ChangesRecord], err error) {
	const digits = len("00000000-0000") // of an id are its time
	after := core.NewID(from).String()[:digits]
	for at := from.Truncate(changesSpan); !at.After(to); at = at.Add(changesSpan) {
		for more, last := true, after; more; {
			var rows []Row
			if rows, more, err = s.List(ctx, Work, changesPartition(at), last, listPage, c); err != nil {
				return nil, err
			}
			for _, row := range rows {
				last = row.Key.Row
				v, err := decode[ChangesRecord](Work, row)
				if err != nil {
					return nil, err
				}
				notes = append(notes, Record[ChangesRecord]{Key: row.Key, Value: v, Written: row.Written})
			}
			more = more && len(rows) > 0
		}
	}
	return notes, nil
}
