package metadata

import (
	"context"
	"iter"

	"github.com/columbamq/columba/core"
)

// QuorumOrOne reads at Quorum, and at One if that fails. A reader at One misses rows that its copy lacks, again and again: such a
// read repairs no copy. It is for answers that say how many of something there are, or that there is none.
func QuorumOrOne[T any](read func(c Consistency) (T, error)) (T, error) {
	out, err := read(Quorum)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return read(One)
	}
	return out, err
}

// AllQuorumOrOne is All at Quorum, and at One if the first page cannot be read at Quorum.
func AllQuorumOrOne[T any](ctx context.Context, s Store, t Table, partition string) iter.Seq2[Record[T], error] {
	return func(yield func(Record[T], error) bool) {
		c, begun := Quorum, false
		for r, err := range All[T](ctx, s, t, partition, Quorum) {
			if err != nil && !begun {
				c = One
				break
			}
			if begun = true; !yield(r, err) {
				return
			}
		}
		if c == Quorum {
			return
		}
		for r, err := range All[T](ctx, s, t, partition, One) {
			if !yield(r, err) {
				return
			}
		}
	}
}
