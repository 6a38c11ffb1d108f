package metadata

import (
	"context"

	"github.com/columbamq/columba/core"
)

// QuorumOrOne is a store that reads at One in place of Quorum while no majority answers. Such a read does not see a row
// that the copy lacks, however often it is repeated, because it repairs no copy. So use it only for answers that count
// something, or that say that there is none. All other calls are those of s, and so are all calls while s is in one
// place.
func QuorumOrOne(s Store) Store { return quorumOrOne{s} }

type quorumOrOne struct{ Store }

// Majority implements Copied.
func (s quorumOrOne) Majority() *Majority { return MajorityOf(s.Store) }

// Get implements Store.
func (s quorumOrOne) Get(ctx context.Context, t Table, k Key, c Consistency) (Row, error) {
	return atQuorumOrOne(ctx, s, c, func(ctx context.Context, c Consistency) (Row, error) { return s.Store.Get(ctx, t, k, c) })
}

// List implements Store.
func (s quorumOrOne) List(ctx context.Context, t Table, partition, after string, limit int, c Consistency) (_ []Row, more bool, _ error) {
	rows, err := atQuorumOrOne(ctx, s, c, func(ctx context.Context, c Consistency) (rows []Row, err error) {
		rows, more, err = s.Store.List(ctx, t, partition, after, limit, c)
		return rows, err
	})
	return rows, more, err
}

// GetRows implements RowsGetter.
func (s quorumOrOne) GetRows(ctx context.Context, t Table, keys []Key, c Consistency) ([]Row, error) {
	return atQuorumOrOne(ctx, s, c, func(ctx context.Context, c Consistency) ([]Row, error) { return GetRows(ctx, s.Store, t, keys, c) })
}

func atQuorumOrOne[T any](ctx context.Context, s quorumOrOne, c Consistency, read func(context.Context, Consistency) (T, error)) (T, error) {
	m := s.Majority()
	if c != Quorum || m == nil {
		return read(ctx, c)
	}
	out, one, err := orOne(ctx, m, c, read)
	if one && core.CodeOf(err) == core.CodeUnavailable {
		err = noCopy(err)
	}
	return out, err
}
