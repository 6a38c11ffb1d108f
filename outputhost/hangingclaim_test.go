package outputhost

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// hangingClaims is metadata where the claims of all groups but one hang until the call ends.
type hangingClaims struct {
	metadata.Store
	but core.GroupID
}

func (m *hangingClaims) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if t.Name == metadata.Claims.Name && !strings.HasPrefix(k.Partition, m.but.String()) {
		<-ctx.Done()
		return core.Errorf(core.CodeUnknown, "hangs: %w", context.Cause(ctx))
	}
	return m.Store.Update(ctx, t, k, old, value, ttl)
}

// TestSaver_HangingClaimsHoldUpNoOther: many groups that deliver at most once cannot claim, since their rows hang. The
// claims of another such group are saved within a second or two all the same, once it is known which ones hang.
func TestSaver_HangingClaimsHoldUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		var list []*pb.Assignment
		for range 81 {
			r, a := b.group()
			_, err := metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(r.Queue, r.Spec.Name), func(r *metadata.GroupRecord) error {
				r.Spec.Delivery = core.AtMostOnce
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, a)
		}
		id := core.GroupID{ID: core.ID(list[0].Group)}
		b.deps.Meta = &hangingClaims{b.meta, id}
		if err := b.give(1, list...); err != nil {
			t.Fatal(err)
		}
		well := b.mu.groups[id]
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.saver.run(ctx) }()
		defer func() { cancel(); <-done }()
		change := func(g *group) {
			g.mu.Lock()
			for _, s := range g.mu.shares {
				s.rules.Outdated()
			}
			g.mu.Unlock()
			g.pump()
		}
		most, since, began := time.Duration(0), time.Time{}, time.Now()
		for range 100 * 10 {
			if since.IsZero() {
				since = time.Now()
				for _, g := range b.groupList() {
					change(g)
				}
			}
			time.Sleep(100 * time.Millisecond)
			well.mu.Lock()
			if time.Since(began) > 40*time.Second {
				most = max(most, time.Since(since))
			}
			if well.unsavedSharesLocked() == 0 {
				since = time.Time{}
			}
			well.mu.Unlock()
		}
		if most > 2*b.cfg.CheckpointEvery {
			t.Errorf("the claim of a group waited for %s for those that hang", most)
		}
	})
}
