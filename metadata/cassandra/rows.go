package cassandra

import (
	"context"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/metadata"
)

const (
	// rowsTogether is how many rows one request reads. Each is a partition of its own in Cassandra, and may have
	// metadata.MaxValue bytes: an answer has 4 MiB at most.
	rowsTogether = 16
	// rowsAtOnce is how many rows the requests of one call side by side read at most, as one page of a listing does. So
	// their answers have 16 MiB at most.
	rowsAtOnce = 64
	// smallAtOnce is the same for a listing whose rows were small until now: their answers have maxRead at most.
	smallAtOnce = 2 * rowsAtOnce
)

// sideBySideRows is how many rows of an index a listing reads side by side, the largest of which has that many bytes
// until now; 0: none was read.
func sideBySideRows(largest int) int {
	if largest == 0 || largest > maxRead/smallAtOnce {
		return rowsAtOnce
	}
	return smallAtOnce
}

// GetRows implements metadata.RowsGetter.
func (s *Store) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	for _, k := range keys {
		if err := metadata.CheckKey(t, k); err != nil {
			return nil, err
		}
	}
	ctx, end, err := s.begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer end()
	if t.Rule != metadata.RuleCAS {
		return s.getPuts(ctx, t, keys, c)
	}
	states, err := s.states(ctx, t, keys, c)
	if err != nil {
		return nil, err
	}
	rows := make([]metadata.Row, 0, len(keys))
	for i, st := range states {
		if st.live {
			rows = append(rows, st.row(keys[i]))
		}
	}
	return rows, nil
}

// getPuts reads put rows side by side.
func (s *Store) getPuts(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	all, found := make([]metadata.Row, len(keys)), make([]bool, len(keys))
	err := sideBySide(ctx, len(keys), atOnce, func(ctx context.Context, i int) (err error) {
		all[i], found[i], err = s.get(ctx, t, keys[i], c)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := all[:0]
	for i, row := range all {
		if found[i] {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// states reads what Cassandra has of CAS rows, in the order of keys; the zero state where there is nothing. Rows of one
// metadata partition are read together, up to rowsTogether. A Paxos read is of one row. CodeUnavailable.
func (s *Store) states(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]state, error) {
	return s.statesMost(ctx, t, keys, c, rowsAtOnce)
}

// statesMost is states that reads so many rows side by side at most.
func (s *Store) statesMost(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency, most int) ([]state, error) {
	all := make([]state, len(keys))
	if c == metadata.Serial {
		return all, sideBySide(ctx, len(keys), atOnce, func(ctx context.Context, i int) (err error) {
			all[i], err = s.state(ctx, t, keys[i], c)
			return err
		})
	}
	parts := together(keys)
	return all, sideBySide(ctx, len(parts), requestsAtOnce(parts, most), func(ctx context.Context, i int) error {
		p := parts[i]
		return s.statesOf(ctx, t, keys[p.from:p.to], c, all[p.from:p.to])
	})
}

// part is a range of keys.
type part struct{ from, to int }

// together divides keys into parts of one metadata partition each. Keys of a partition that are not side by side in
// keys are in several parts.
func together(keys []metadata.Key) (parts []part) {
	for i, k := range keys {
		last := len(parts) - 1
		if last < 0 || i-parts[last].from == rowsTogether || keys[parts[last].from].Partition != k.Partition {
			parts = append(parts, part{i, i + 1})
		} else {
			parts[last].to = i + 1
		}
	}
	return parts
}

// requestsAtOnce is how many requests of these parts may be under way together: atOnce, and fewer if their rows are
// more than most. Groups, of which each queue has few, are parts of one row.
func requestsAtOnce(parts []part, most int) int {
	longest := 1
	for _, p := range parts {
		longest = max(longest, p.to-p.from)
	}
	return min(atOnce, most/longest)
}

// statesOf reads rows of one metadata partition by one request.
func (s *Store) statesOf(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency, into []state) error {
	if len(keys) == 1 {
		st, err := s.state(ctx, t, keys[0], c)
		into[0] = st
		return err
	}
	names := make([][]byte, len(keys))
	for i, k := range keys {
		names[i] = []byte(k.Row)
	}
	found := make(map[string]state, len(keys))
	get := statement{s.text(getTogether, t), []any{s.name(t), []byte(keys[0].Partition), names}}
	err := s.session.read(ctx, readAt(t, c), 0, get, func(rows gocql.Scanner) (bool, error) {
		var name []byte
		var st state
		err := st.scan(rows, &name)
		found[string(name)] = st
		return true, err
	})
	if err != nil {
		return readError(ctx, err)
	}
	for i, k := range keys {
		into[i] = found[k.Row]
	}
	return nil
}

// sideBySide calls f for 0 … n-1, so many at once, until one fails. It returns the first error. Errors when ctx ends:
// CodeUnavailable.
func sideBySide(ctx context.Context, n, most int, f func(ctx context.Context, i int) error) error {
	calls, calling := errgroup.WithContext(ctx)
	calls.SetLimit(most)
	for i := range n {
		if calling.Err() != nil {
			break // one has failed
		}
		calls.Go(func() error { return f(calling, i) })
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return readError(ctx, ctx.Err())
	}
	return nil
}
