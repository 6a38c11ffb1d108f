package cassandra

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/metadata"
)

const (
	maxPerBucket = 64 // rows or index entries of one bucket that a request reads

	// firstPerBucket bounds the first request of a listing, which does not know how large rows are: 32 MiB at most.
	firstPerBucket = 16
	maxRead        = 8 << 20 // bytes that a later request is expected to answer at most
)

// mergeBuckets joins what was read of buckets, perBucket of each at most. A bucket that has as many may have others:
// what comes after its last row is left for the next request, if more, after row until.
func mergeBuckets[T any](parts map[int][]T, perBucket int, row func(T) string, order func(a, b T) int) (list []T, until string, more bool) {
	for _, part := range parts {
		list = append(list, part...)
		if len(part) < perBucket {
			continue
		}
		if last := row(part[len(part)-1]); !more || last < until {
			until, more = last, true
		}
	}
	if more {
		list = slices.DeleteFunc(list, func(v T) bool { return row(v) > until })
	}
	slices.SortFunc(list, order)
	return list, until, more
}

// nextPerBucket is how many rows of each bucket the next request reads. It wants so many rows, and the largest that was
// read until now has that many bytes.
func nextPerBucket(want, largest int) int {
	fit := maxRead / rowBuckets / max(largest, 1)
	return min(max(min(want/rowBuckets*2+8, fit), 1), want, maxPerBucket)
}

// listBuckets lists put rows that are spread over buckets. It asks for some rows of all buckets at once, and merges
// them.
func (s *Store) listBuckets(ctx context.Context, t metadata.Table, partition, after string, c metadata.Consistency, p *page) error {
	perBucket, largest := min(p.limit, firstPerBucket-1)+1, 0 // one row more says whether there are more
	for {
		parts := map[int][]metadata.Row{}
		list := statement{s.text(listBuckets, t), []any{s.name(t), []byte(partition), []byte(after), allRowBuckets, perBucket}}
		err := s.session.read(ctx, readAt(t, c), 0, list, func(rows gocql.Scanner) (bool, error) {
			var bucket int
			var name []byte
			var row metadata.Row
			var written int64
			err := rows.Scan(&bucket, &name, &row.Value, &written)
			row.Key, row.Written = metadata.Key{Partition: partition, Row: string(name)}, time.UnixMicro(written)
			parts[bucket] = append(parts[bucket], row)
			largest = max(largest, len(row.Value))
			return true, err
		})
		if err != nil {
			return readError(ctx, err)
		}
		rows, until, more := mergeBuckets(parts, perBucket, func(r metadata.Row) string { return r.Key.Row },
			func(a, b metadata.Row) int { return strings.Compare(a.Key.Row, b.Key.Row) })
		for _, row := range rows {
			if !p.add(row) {
				return nil
			}
		}
		if !more {
			return nil
		}
		after, perBucket = until, nextPerBucket(min(p.limit-len(p.rows), rowBuckets*maxPerBucket)+1, largest)
	}
}
