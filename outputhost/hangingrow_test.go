package outputhost

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// hangingRows is metadata where the checkpoints of one share hang until the call ends; the others are stored.
type hangingRows struct {
	metadata.Store
	partition string
}

func (m *hangingRows) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	hangs := func(r metadata.Row) bool {
		return t.Name == metadata.Checkpoints.Name && r.Key.Partition == m.partition
	}
	if err := m.Store.PutAll(ctx, t, slices.DeleteFunc(slices.Clone(rows), hangs), c); err != nil || !slices.ContainsFunc(rows, hangs) {
		return err
	}
	<-ctx.Done()
	e := &metadata.UnstoredError{Of: len(rows), Err: core.Errorf(core.CodeUnknown, "hangs: %w", context.Cause(ctx))}
	for i, r := range rows {
		if hangs(r) {
			e.Rows = append(e.Rows, i)
		}
	}
	return e
}

// TestSaver_AHangingRowHoldsUpOthersOnce: the checkpoint of one share hangs all the time. Another share of its group
// has retries now and then, which are saved without it. The acks of another group are saved every second all the same,
// after the first time.
func TestSaver_AHangingRowHoldsUpOthersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		_, first := b.group()
		_, second := b.group()
		beside := proto.CloneOf(first)
		id := core.NewID(time.Now())
		beside.Extent.Id = id[:]
		if err := b.give(1, first, second); err != nil {
			t.Fatal(err)
		}
		g, hung := b.taken(first, 200)
		other, s := b.taken(second, 200)
		if err := b.give(2, first, second, beside); err != nil {
			t.Fatal(err)
		}
		retries := g.mu.shares[core.ExtentID{ID: id}]
		b.cfg.CallTimeout = 2600 * time.Millisecond // not with the rounds
		b.deps.Meta = &hangingRows{Store: b.meta, partition: metadata.CheckpointPartition(g.id, hung.extent.ID)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.saver.run(ctx) }()
		defer func() { cancel(); <-done }()
		ack := func(g *group, s *share, seq core.Seq) {
			g.mu.Lock()
			s.rules.Ack(seq, 1, 1, time.Now(), nil)
			g.mu.Unlock()
			g.pump()
		}
		late := 0
		ack(g, hung, 1)
		for i := range core.Seq(60) {
			ack(other, s, i+1)
			for range 5 {
				g.mu.Lock()
				retries.rules.Outdated()
				retries.saveLocked(saveNow)
				g.mu.Unlock()
				b.saver.note(g, saveNow)
				time.Sleep(b.cfg.CheckpointEvery/5 + 10*time.Millisecond)
			}
			other.mu.Lock()
			if other.unsavedSharesLocked() > 0 {
				late++
			}
			other.mu.Unlock()
		}
		if late > 4 {
			t.Errorf("acks of another group were not saved within a second %d times in a minute", late)
		}
	})
}
