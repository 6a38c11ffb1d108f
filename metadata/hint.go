package metadata

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
)

// Hint is a kind of hints about extents in Work. Hints of one kind are spread over HintShards partitions.
type Hint string

// The kinds of hints.
const (
	HintOpen Hint = "open" // the seal of the extent has begun, and not all is told and copied
	HintLive Hint = "live" // the extent is not retired
)

// HintShards is how many partitions the hints of a kind are spread over, by core.InventoryBucket. It never changes.
const HintShards = 64

const (
	hintsAhead  = 16 // shards that Hints reads before it needs them
	movesAtOnce = 64
)

// Partition is the shard where the hint about an extent is.
func (h Hint) Partition(extent core.ExtentID) string {
	return h.shard(core.InventoryBucket(extent) % HintShards)
}

func (h Hint) shard(n int) string { return fmt.Sprintf("%s/%02d", h, n) }

// HintKey is where Work keeps a hint about an extent.
func HintKey(h Hint, extent core.ExtentID) Key { return Key{h.Partition(extent), extent.String()} }

// HintedExtent is the extent that a row of Work is a hint about. Other rows are about none.
func HintedExtent(k Key) (extent core.ExtentID, ok bool) {
	id, err := core.ParseID(k.Row)
	extent.ID = id
	return extent, err == nil && (k == HintKey(HintOpen, extent) || k == HintKey(HintLive, extent))
}

// Hints yields the extents with a hint of one kind, shard by shard, and page by page. First pages of some shards are
// read side by side, ahead of their turn. A change made meanwhile may be seen or not. An error is yielded once, as the
// last element; but the error of a row that is no such record has the key of the row, and the reader may go on behind
// it.
func Hints(ctx context.Context, s Store, h Hint, c Consistency) iter.Seq2[Record[ExtentRecord], error] {
	return func(yield func(Record[ExtentRecord], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var first [HintShards]chan page
		var readers sync.WaitGroup
		defer readers.Wait()
		defer cancel()
		read := func(n int) {
			if n < HintShards {
				first[n] = make(chan page, 1)
				readers.Go(func() { first[n] <- readPage(ctx, s, Work, h.shard(n), "", listPage, c) })
			}
		}
		for n := range hintsAhead {
			read(n)
		}
		for n := range HintShards {
			p := <-first[n]
			read(n + hintsAhead)
			for row, err := range p.following(ctx, s, Work, h.shard(n), listPage, c) {
				var v ExtentRecord
				failed := err != nil
				if !failed {
					v, err = DecodeExtent(Work, row)
				}
				if !yield(Record[ExtentRecord]{row.Key, v, row.Version, row.Written}, err) || failed {
					return
				}
			}
		}
	}
}

// MoveHints moves the hints of a store that an earlier version wrote, all of a kind in one partition, to their shards.
// It answers how many it moved. One that ends early is run again: until then some hints are in one place, some in the
// other, or in both.
func MoveHints(ctx context.Context, s Store) (moved int, err error) {
	for _, h := range []Hint{HintLive, HintOpen} {
		part := make([]Row, 0, listPage)
		move := func() error {
			defer func() { part = part[:0] }()
			moved += len(part)
			return moveHints(ctx, s, h, part)
		}
		for row, err := range pages(ctx, s, Work, string(h), listPage, Quorum) {
			if err != nil {
				return moved, err
			}
			if part = append(part, row); len(part) == cap(part) {
				if err := move(); err != nil {
					return moved, err
				}
			}
		}
		if err := move(); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// moveHints writes the rows to their shards, and removes them where they were.
func moveHints(ctx context.Context, s Store, h Hint, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	shards := make([]Row, len(rows))
	for i, row := range rows {
		id, err := core.ParseID(row.Key.Row)
		if err != nil {
			return core.Errorf(core.CodeCorrupt, "work hint %s cannot be moved: %w", clip(row.Key.Row), err)
		}
		shards[i] = row
		shards[i].Key = HintKey(h, core.ExtentID{ID: id})
	}
	if err := s.PutAll(ctx, Work, shards, Quorum); err != nil {
		return err
	}
	var removals errgroup.Group
	removals.SetLimit(movesAtOnce)
	for _, row := range rows {
		removals.Go(func() error { return s.Remove(ctx, Work, row.Key, row.Written.Add(Tick), Quorum) })
	}
	return removals.Wait()
}

// DecodeExtent reads the record of a row that is named after an extent; CodeCorrupt for a row that is none, or of
// another extent.
func DecodeExtent(t Table, row Row) (ExtentRecord, error) {
	r, err := decode[ExtentRecord](t, row)
	if err == nil && r.ID.String() != row.Key.Row {
		err = core.Errorf(core.CodeCorrupt, "%s %s is a record of extent %s", t.Name, clip(row.Key.Row), r.ID)
	}
	return r, err
}

// DecodeSeal is DecodeExtent for Seals.
func DecodeSeal(row Row) (SealRecord, error) {
	r, err := decode[SealRecord](Seals, row)
	if err == nil && r.Extent.ID.String() != row.Key.Row {
		err = core.Errorf(core.CodeCorrupt, "%s %s is a record of extent %s", Seals.Name, clip(row.Key.Row), r.Extent.ID)
	}
	return r, err
}
