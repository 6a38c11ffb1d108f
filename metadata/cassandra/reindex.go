package cassandra

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/metadata"
)

// Reindex reads all rows that listings find by the index, and writes their entries anew. It answers how many rows there
// are. Rows may change meanwhile. It can be run again, and after a failure it has to be. CodeUnavailable.
func (s *Store) Reindex(ctx context.Context) (rows int, err error) {
	ctx, release, err := s.hold(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	var live atomic.Int64
	writes, writing := errgroup.WithContext(ctx)
	writes.SetLimit(atOnce)
	scan := statement{s.text(allRows, metadata.Names), nil}
	err = s.session.read(writing, gocql.Quorum, 1000, scan, func(rows gocql.Scanner) (bool, error) {
		var name string
		var partition, row []byte
		if err := rows.Scan(&name, &partition, &row); err != nil {
			return false, err
		}
		name, ours := strings.CutPrefix(name, s.prefix)
		t := metadata.Table{Name: name, Rule: metadata.RuleCAS}
		if ours && layoutOf(t).listed == byIndex {
			writes.Go(func() error {
				found, err := s.reindex(writing, t, metadata.Key{Partition: string(partition), Row: string(row)})
				if found {
					live.Add(1)
				}
				return err
			})
		}
		return true, nil
	})
	if failed := writes.Wait(); failed != nil {
		return 0, failed
	}
	if err != nil {
		return 0, readError(ctx, err)
	}
	return int(live.Load()), nil
}

// reindex writes the entry of a row, if the row lives. The timestamp is now: the removal of an earlier entry of the
// same attempt does not hide it.
func (s *Store) reindex(ctx context.Context, t metadata.Table, k metadata.Key) (live bool, err error) {
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	found, err := s.state(ctx, t, k, metadata.Quorum)
	if err != nil || !found.live {
		return false, err
	}
	return true, s.addEntry(ctx, t, k.Partition, entry{k.Row, found.created, time.Now().UnixMicro()})
}
