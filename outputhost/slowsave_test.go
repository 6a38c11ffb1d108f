package outputhost

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// hangs is metadata where the done rows of one group hang until their call ends.
type hangs struct {
	metadata.Store
	group core.GroupID
}

func (m *hangs) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if t.Name == metadata.Dones.Name && strings.HasPrefix(k.Partition, m.group.String()) {
		<-ctx.Done()
		return core.Errorf(core.CodeUnknown, "hangs: %w", context.Cause(ctx))
	}
	return m.Store.Put(ctx, t, k, value, at, ttl, c)
}

// taken is a share that was given, of which n messages are handed out.
func (b *harness) taken(a *pb.Assignment, n int) (*group, *share) {
	b.t.Helper()
	g := b.mu.groups[core.GroupID{ID: core.ID(a.Group)}]
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.mu.shares {
		r := dispatch.Records{Base: 1, Offsets: make([]uint32, n+1), Bytes: make([]byte, n)}
		for i := range r.Offsets {
			r.Offsets[i] = uint32(i)
		}
		if err := s.rules.Offer(r, b.deps.Now()); err != nil {
			b.t.Fatal(err)
		}
		g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
		g.mu.rules.Take(1, dispatch.Credit{Messages: n, Bytes: 1 << 20}, b.deps.Now(), nil)
		return g, s
	}
	b.t.Fatal("the group has no share")
	return nil, nil
}

// TestSaver_ASlowGroupHoldsUpNoOther: a group cannot record what it has consumed, and tries again and again.
// Settlements of other groups are saved every second.
func TestSaver_ASlowGroupHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		_, first := b.group()
		_, second := b.group()
		if err := b.give(1, first, second); err != nil {
			t.Fatal(err)
		}
		slow, ended := b.taken(first, 10)
		other, s := b.taken(second, 100)
		meta := &hangs{Store: b.meta, group: slow.id}
		b.deps.Meta = meta
		now := time.Now()
		slow.mu.Lock()
		ended.rules.Ack(1, 10, 1, now, nil)
		ended.end, ended.l = true, 10
		slow.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { b.saver.run(ctx) })
		defer wg.Wait()
		defer cancel()
		slow.pump()
		for i := range 20 {
			time.Sleep(700 * time.Millisecond)
			other.mu.Lock()
			s.rules.Ack(core.Seq(i+1), 1, 1, time.Now(), nil)
			other.mu.Unlock()
			other.pump()
			time.Sleep(b.cfg.CheckpointEvery + 100*time.Millisecond)
			other.mu.Lock()
			unsaved := other.unsavedSharesLocked()
			other.mu.Unlock()
			if unsaved > 0 {
				t.Fatalf("ack %d is not saved after %s", i+1, b.cfg.CheckpointEvery)
			}
		}
	})
}
