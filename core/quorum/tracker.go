// Package quorum owns the rule by which an extent's writer learns its committed seq: durable on all replicas.
package quorum

import (
	"fmt"

	"github.com/columbamq/columba/core"
)

// Tracker follows how far each replica of one extent has stored what its writer sent.
//
//	committed == min(durable[0], …, durable[N-1]); neither it nor any durable seq ever goes back
//
// It is not safe for concurrent use: the writer owns it.
type Tracker struct {
	durable   []core.Seq
	committed core.Seq
}

// New makes a tracker for replicas (at least 1) that hold nothing yet.
func New(replicas int) *Tracker {
	if replicas < 1 {
		panic(fmt.Sprintf("quorum: %d replicas", replicas))
	}
	return &Tracker{durable: make([]core.Seq, replicas)}
}

// Ack notes that the replica (its index from 0) stored everything up to durable, and returns the committed seq and
// whether this call moved it. A durable seq below one the replica told earlier is ignored. It never allocates.
func (t *Tracker) Ack(replica int, durable core.Seq) (committed core.Seq, advanced bool) {
	was := t.durable[replica]
	if durable <= was {
		return t.committed, false
	}
	t.durable[replica] = durable
	if was > t.committed {
		return t.committed, false // another replica holds the minimum
	}
	least := durable
	for _, d := range t.durable {
		least = min(least, d)
	}
	advanced = least > t.committed
	t.committed = least
	return t.committed, advanced
}

// Committed is the last seq that every replica has stored.
func (t *Tracker) Committed() core.Seq { return t.committed }

// Slowest is the first replica that holds the committed seq back, and its durable seq.
func (t *Tracker) Slowest() (replica int, durable core.Seq) {
	for i, d := range t.durable {
		if d == t.committed {
			return i, d
		}
	}
	panic("quorum: no replica is at the committed seq")
}

// Durable is the last seq the replica said it stored.
func (t *Tracker) Durable(replica int) core.Seq { return t.durable[replica] }

// Replicas is N.
func (t *Tracker) Replicas() int { return len(t.durable) }
