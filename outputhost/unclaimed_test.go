package outputhost

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// noClaims is metadata that refuses to change claims while it is on, as without a majority, and stores checkpoints.
type noClaims struct {
	metadata.Store
	on bool
}

func (m *noClaims) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if m.on && t.Name == metadata.Claims.Name {
		return core.Errorf(core.CodeUnavailable, "too few nodes")
	}
	return m.Store.Update(ctx, t, k, old, value, ttl)
}

// TestWhyStuck_AClaimThatIsNotSaved: a group delivers at most once, and no majority of the metadata answers. A pull
// waits for a message that has to be claimed. why-stuck says that it cannot be saved, until it is.
func TestWhyStuck_AClaimThatIsNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		r, a := b.group()
		_, err := metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(r.Queue, r.Spec.Name), func(r *metadata.GroupRecord) error {
			r.Spec.Delivery = core.AtMostOnce
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		meta := &noClaims{Store: b.meta}
		b.deps.Meta = meta
		if err := b.give(1, a); err != nil {
			t.Fatal(err)
		}
		g := b.groupList()[0]
		g.mu.Lock()
		s := g.mu.shares[core.ExtentID{ID: core.ID(a.Extent.Id)}]
		s.end, s.l, s.last = true, 1, 1
		g.mu.Unlock()
		meta.on = true
		why := func() (reason, detail string) {
			t.Helper()
			w, err := b.inspector.WhyStuck(t.Context(), inspectedGroup{g})
			if err != nil {
				t.Fatal(err)
			}
			return w.Reason, w.Detail
		}
		b.offer(g, s, recordOf(t, "1"))
		got := make(chan int, 1)
		go func() {
			messages, err := g.pull(t.Context(), 1, 10*time.Second)
			if err != nil {
				t.Error(err)
			}
			got <- len(messages)
		}()
		synctest.Wait()
		b.saveAll()
		if reason, detail := why(); reason != "checkpoint_not_saved" || !strings.Contains(detail, "too few nodes") {
			t.Errorf("without claims it says %s, %q; want checkpoint_not_saved, and why", reason, detail)
		}
		meta.on = false
		b.saveAll()
		if n := <-got; n != 1 {
			t.Errorf("the pull got %d messages, want 1", n)
		}
		b.saveAll()
		if reason, _ := why(); reason != "nothing_waits" {
			t.Errorf("after that it says %s", reason)
		}
	})
}
