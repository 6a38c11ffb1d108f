package outputhost

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
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

func (m *hangingRows) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if err := ctx.Err(); err != nil { // as over a network
		return core.Errorf(core.CodeDeadline, "not asked: %w", err)
	}
	return m.Store.Update(ctx, t, k, old, value, ttl)
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

// TestSaver_AHangingRowAtTheEnd: a host ends in an orderly way while the checkpoint of a share hangs. Messages that
// it claimed of a group that delivers at most once, and did not hand out, are the next owner's all the same.
func TestSaver_AHangingRowAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		_, first := b.group()
		r, second := b.group()
		_, err := metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(r.Queue, r.Spec.Name), func(r *metadata.GroupRecord) error {
			r.Spec.Delivery = core.AtMostOnce
			return nil
		})
		meta := &hangingRows{Store: b.meta}
		b.deps.Meta = meta
		if err == nil {
			err = b.give(1, first, second)
		}
		if err != nil {
			t.Fatal(err)
		}
		g, hung := b.taken(first, 10)
		once := b.mu.groups[r.ID]
		id := core.ExtentID{ID: core.ID(second.Extent.Id)}
		b.offer(once, once.mu.shares[id], recordOf(t, "1"), recordOf(t, "2"))
		ctx, cancel := context.WithCancel(t.Context())
		pulled := make(chan struct{})
		go func() {
			defer close(pulled)
			_, _ = once.pull(ctx, 2, 10*time.Second)
		}()
		synctest.Wait()
		cancel()
		<-pulled
		b.saveAll()
		next := func() uint64 {
			t.Helper()
			row, _, err := metadata.Read[metadata.ClaimRecord](t.Context(), b.meta, metadata.Claims, metadata.ClaimKey(r.ID, id, 0), metadata.Quorum)
			if err != nil {
				t.Fatal(err)
			}
			state, err := dispatch.DecodeState(row.State)
			if err != nil {
				t.Fatal(err)
			}
			return state.Consumed()
		}
		if n := next(); n != 2 {
			t.Fatalf("%d messages are claimed, want 2", n)
		}
		meta.partition = metadata.CheckpointPartition(g.id, hung.extent.ID)
		g.mu.Lock()
		hung.rules.Ack(1, 1, 1, time.Now(), nil)
		g.mu.Unlock()
		last, cancel := context.WithTimeout(t.Context(), b.cfg.CallTimeout)
		defer cancel()
		b.saver.save(last, true)
		if n := next(); n != 0 {
			t.Errorf("the next owner takes %d messages for handed out that nobody got", n)
		}
		meta.partition = ""
	})
}
