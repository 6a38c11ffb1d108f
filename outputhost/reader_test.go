package outputhost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// TestReader_WithoutConsumers: what an earlier owner left under way is read, and nothing after it.
func TestReader_WithoutConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		record, a := b.group()
		e, err := convert.Extent(a.Extent)
		if err != nil {
			t.Fatal(err)
		}
		rules := dispatch.NewGroup(record.Spec)
		old := rules.AddShare(e.ID, dispatch.State{}, time.Now())
		r := dispatch.Records{Base: 1, Offsets: []uint32{0, 1, 2, 3, 4}, Bytes: make([]byte, 4)}
		if err := old.Offer(r, time.Now()); err != nil {
			t.Fatal(err)
		}
		rules.Want(1<<20, true)
		rules.Take(1, dispatch.Credit{Messages: 2, Bytes: 100}, time.Now(), nil)
		blob, _ := old.Checkpoint(nil, true, time.Now())
		key := metadata.CheckpointKey(record.ID, e.ID, 0, b.deps.Members.Self().Run)
		if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, blob, b.deps.Now(), 0, metadata.One); err != nil {
			t.Fatal(err)
		}
		if err := b.give(1, a); err != nil {
			t.Fatal(err)
		}
		g := b.groupList()[0]
		g.mu.Lock()
		s := g.mu.shares[e.ID]
		reading := func() (readers int, actions []func()) {
			g.takeChangedLocked()
			g.touchLocked(s)
			actions = g.readLocked()
			if s.reader != nil {
				readers++
			}
			return readers, actions
		}
		if n, _ := reading(); n != 1 {
			t.Errorf("%d readers of a share with two messages under way, want one", n)
		}
		if err := s.rules.Offer(r, b.deps.Now()); err != nil {
			t.Fatal(err)
		}
		s.reader = &reader{g: g, s: s} // one that was opened; there is no store to open it at
		_, actions := reading()
		g.mu.Unlock()
		for _, act := range actions {
			act()
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if n, _ := reading(); n != 0 {
			t.Error("a group without consumers reads on when what was under way was read")
		}
		if d := s.rules.Depth(); d.InFlight != 2 {
			t.Errorf("%d in flight, want the two that were", d.InFlight)
		}
	})
}
