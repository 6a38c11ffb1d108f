package faulty

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// last is the replica that Cut takes away from the others.
	last = replicas - 1
	// oneApart is One for processes beside it.
	oneApart = all + 1
)

// Cut cuts one replica off: the store is what processes beside the two others see, and Apart what those beside it see.
// Nothing gets from one side to the other until Rejoin.
func (r *Replicas) Cut() { r.setCut(true) }

// Rejoin ends a cut. Repair brings each side the writes of the other.
func (r *Replicas) Rejoin() { r.setCut(false) }

func (r *Replicas) setCut(cut bool) {
	r.cells.mu.Lock()
	defer r.cells.mu.Unlock()
	r.cells.mu.cut = cut
}

func (r *Replicas) isCut() bool {
	r.cells.mu.Lock()
	defer r.cells.mu.Unlock()
	return r.cells.mu.cut
}

// orderLocked is the order in which a call asks the replicas: during a cut those of its side first.
func (r *cells) orderLocked(c metadata.Consistency, die *rand.Rand) [replicas]int {
	asked := order(die)
	if !r.mu.cut || c == all {
		return asked
	}
	side := make([]int, 0, replicas)
	for _, i := range asked {
		if (i == last) == (c == oneApart) {
			side = append(side, i)
		}
	}
	for _, i := range asked {
		if (i == last) != (c == oneApart) {
			side = append(side, i)
		}
	}
	return [replicas]int(side)
}

// Apart is the store as processes beside the last replica see it: the same, but during a cut. Then calls at One go to
// that replica, and all others fail with CodeUnavailable.
func (r *Replicas) Apart() metadata.Store { return apart{r} }

type apart struct{ *Replicas }

// at is the consistency of a call beside the last replica.
func (a apart) at(c metadata.Consistency) (metadata.Consistency, error) {
	switch {
	case !a.isCut():
		return c, nil
	case c == metadata.One:
		return oneApart, nil
	}
	return c, core.Errorf(core.CodeUnavailable, "cannot achieve consistency: 2 replicas are required, and 1 is alive")
}

func (a apart) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	c, err := a.at(c)
	if err != nil {
		return metadata.Row{}, err
	}
	return a.Replicas.Get(ctx, t, k, c)
}

func (a apart) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	c, err := a.at(c)
	if err != nil {
		return nil, false, err
	}
	return a.Replicas.List(ctx, t, partition, after, limit, c)
}

func (a apart) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if _, err := a.at(metadata.Serial); err != nil {
		return err
	}
	return a.Replicas.Insert(ctx, t, k, value)
}

func (a apart) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if _, err := a.at(metadata.Serial); err != nil {
		return err
	}
	return a.Replicas.Update(ctx, t, k, old, value, ttl)
}

func (a apart) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	if _, err := a.at(metadata.Serial); err != nil {
		return err
	}
	return a.Replicas.Delete(ctx, t, k, old)
}

func (a apart) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	c, err := a.at(c)
	if err != nil {
		return err
	}
	return a.Replicas.Put(ctx, t, k, value, at, ttl, c)
}

func (a apart) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	c, err := a.at(c)
	if err != nil {
		return err
	}
	return a.Replicas.PutAll(ctx, t, rows, c)
}

func (a apart) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	c, err := a.at(c)
	if err != nil {
		return err
	}
	return a.Replicas.Remove(ctx, t, k, at, c)
}
