package outputhost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/metadata"
)

// TestSaver_LateAcksOfAShareThatComesBack: a share is given to another host, messages of it are acked here, and it
// comes back before that is saved. The acks are saved as soon as others, and are in the last checkpoints of a host that
// ends.
func TestSaver_LateAcksOfAShareThatComesBack(t *testing.T) {
	for _, x := range []struct {
		name string
		save func(t *testing.T, b *harness)
	}{
		{"in its turn", func(t *testing.T, b *harness) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go b.saver.run(ctx)
			b.groupList()[0].pump()
			time.Sleep(3 * b.cfg.CheckpointEvery)
		}},
		{"at the end", func(t *testing.T, b *harness) { b.saver.save(t.Context(), true) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t)
				_, a := b.group()
				if err := b.give(1, a); err != nil {
					t.Fatal(err)
				}
				g, s := b.taken(a, 6)
				if err := b.give(2); err != nil { // the state of now is saved at once
					t.Fatal(err)
				}
				g.mu.Lock()
				if bad := s.ackLateLocked(1, 6, 1, time.Now(), nil); len(bad) > 0 {
					t.Fatalf("late acks are refused: %v", bad)
				}
				g.mu.Unlock()
				a.Counter++
				if err := b.give(3, a); err != nil {
					t.Fatal(err)
				}
				if f := g.mu.shares[s.extent.ID].rules.Frontier(); f != 6 {
					t.Errorf("the share came back with %d settled messages, want 6", f)
				}
				x.save(t, b)
				from, err := b.savedState(t.Context(), metadata.CheckpointKey(g.id, s.extent.ID, 0, b.deps.Members.Self().Run), g.counts(s.extent, 0), ownerReads, 0)
				if err != nil || from.state.Frontier() != 6 {
					t.Errorf("after a crash %d messages are settled, %v; want the 6 that were acked", from.state.Frontier(), err)
				}
			})
		})
	}
}
