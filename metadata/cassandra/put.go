package cassandra

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/metadata"
)

// Bounds of the rows of one partition in Cassandra that PutAll writes together. Cassandra refuses a write of half a
// commit log segment.
const (
	batchRows  = 100
	batchBytes = 512 << 10
)

const maxTTL = 20 * 365 * 24 * time.Hour // Cassandra refuses more

// seconds is a TTL in Cassandra's unit, rounded up. 0 = for ever.
func seconds(ttl time.Duration) int {
	if ttl <= 0 {
		return 0
	}
	return int((min(ttl, maxTTL) + time.Second - 1) / time.Second)
}

// Put implements metadata.Store. Times to live are rounded up to seconds.
func (s *Store) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.write(ctx, t, k.Partition, metadata.CheckPut(t, k, value, at), c, s.put(t, k, value, at, ttl))
}

// Remove implements metadata.Store.
func (s *Store) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	remove := statement{s.text(removeRow, t), append([]any{at.UnixMicro()}, s.of(t, k)...)}
	return s.write(ctx, t, k.Partition, metadata.CheckPut(t, k, nil, at), c, remove)
}

func (s *Store) put(t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration) statement {
	return statement{s.text(putRow, t), append([]any{at.UnixMicro(), seconds(ttl), own(value)}, s.of(t, k)...)}
}

func (s *Store) write(ctx context.Context, t metadata.Table, partition string, bad error, c metadata.Consistency, put statement) error {
	ctx, end, err := s.begin(ctx, bad)
	if err != nil {
		return err
	}
	defer end()
	touched, err := s.session.write(ctx, writeAt(c), []statement{put})
	if err != nil {
		err = writeError(ctx, err, touched)
	}
	s.tell(t, partition, err)
	return err
}

// PutAll implements metadata.Store: the rows of a partition in Cassandra in writes of up to batchBytes, the writes side
// by side. One that fails ends no other.
func (s *Store) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	for _, r := range rows {
		if err := metadata.CheckPut(t, r.Key, r.Value, r.Written); err != nil {
			return err
		}
	}
	ctx, end, err := s.begin(ctx, nil)
	if err != nil {
		return err
	}
	defer end()
	var stored atomic.Bool // something may be
	var writes errgroup.Group
	writes.SetLimit(atOnce)
	indexes := make([]int, len(rows))
	for i := range rows {
		indexes[i] = i
	}
	writing := parts(indexes, func(i int) (metadata.Table, metadata.Row) { return t, rows[i] })
	failed := make([]bool, len(writing))
	for n, part := range writing {
		writes.Go(func() error {
			puts := make([]statement, len(part))
			for i, row := range part {
				puts[i] = s.put(t, rows[row].Key, rows[row].Value, rows[row].Written, 0)
			}
			touched, err := s.session.write(ctx, writeAt(c), puts)
			if err == nil || touched {
				stored.Store(true)
				s.tell(t, rows[part[0]].Key.Partition, nil)
			}
			failed[n] = err != nil
			return err
		})
	}
	if err := writes.Wait(); err != nil {
		return unstored(writing, failed, len(rows), writeError(ctx, err, stored.Load()))
	}
	return nil
}

// unstored is the error of PutAll, by which the rows of the writes that failed may not be stored.
func unstored(writes [][]int, failed []bool, rows int, err error) error {
	e := &metadata.UnstoredError{Of: rows, Err: err}
	for n, part := range writes {
		if failed[n] {
			e.Rows = append(e.Rows, part...)
		}
	}
	slices.Sort(e.Rows)
	if len(e.Rows) == rows {
		return err
	}
	return e
}

// parts divides rows of put tables into writes: each is of one partition in Cassandra and within the bounds. Rows of
// one key may be in different writes: their timestamps decide.
func parts[R any](rows []R, of func(R) (metadata.Table, metadata.Row)) (all [][]R) {
	type home struct {
		table, partition string
		bucket           int
	}
	type open struct{ index, size int }
	last := map[home]open{}
	for _, stored := range rows {
		t, r := of(stored)
		at, size := home{t.Name, r.Key.Partition, rowBucket(t, r.Key.Row)}, len(r.Key.Partition)+len(r.Key.Row)+len(r.Value)
		o, ok := last[at]
		if !ok || len(all[o.index]) == batchRows || o.size+size > batchBytes {
			o = open{index: len(all)}
			all = append(all, nil)
		}
		all[o.index] = append(all[o.index], stored)
		o.size += size
		last[at] = o
	}
	return all
}
