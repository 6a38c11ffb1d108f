package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// shaky is a store that goes wrong while a test wants that.
type shaky struct {
	metadata.Store
	bad   metadata.Store
	wrong *atomic.Bool
}

func (s shaky) now() metadata.Store {
	if s.wrong.Load() {
		return s.bad
	}
	return s.Store
}

func (s shaky) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	return s.now().Get(ctx, t, k, c)
}

func (s shaky) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	return s.now().List(ctx, t, partition, after, limit, c)
}

func (s shaky) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return s.now().Insert(ctx, t, k, value)
}

func (s shaky) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return s.now().Update(ctx, t, k, old, value, ttl)
}

func (s shaky) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.now().Put(ctx, t, k, value, at, ttl, c)
}

func (s shaky) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	return s.now().PutAll(ctx, t, rows, c)
}

func (s shaky) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return s.now().Remove(ctx, t, k, at, c)
}

// TestRewind_ManyAtOnce: two controllers rewind a group, start it, and delete and make it anew, all at once, while
// answers of the metadata are lost. In the end the group begins in every extent where its last rewind, or its start,
// says.
func TestRewind_ManyAtOnce(t *testing.T) {
	for i := range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(i), func(t *testing.T) { rewindManyAtOnce(t, seed) })
	}
}

func rewindManyAtOnce(t *testing.T, seed uint64) {
	behind := memory.New()
	meta := shaky{behind, faulty.New(behind, faulty.Faults{Seed: seed, Before: 0.003, Lost: 0.01, Stale: 0.3, Delay: 20 * time.Millisecond}), new(atomic.Bool)}
	two(t, harnessOptions{stores: 3, meta: meta}, func(r *harness, both [2]*running) {
		queue := r.queue(3, 2)
		lengths := map[core.ExtentID]uint64{r.sealed(queue, 5).ID: 5, r.sealed(queue, 7).ID: 7, r.extent(queue, 3).ID: 3}
		r.halfMade(queue, "g")
		meta.wrong.Store(true)
		var wg sync.WaitGroup
		for i := range 4 {
			c := both[i%2]
			wg.Go(func() {
				for range 20 {
					g, _, err := metadata.Read[metadata.GroupRecord](r.t.Context(), behind, metadata.Groups, metadata.GroupKey(queue, "g"), metadata.Serial)
					if err != nil {
						r.t.Error(err)
					}
					time.Sleep(rand.N(200 * time.Millisecond)) // the group may be another one by then
					switch rand.IntN(16) {
					case 0:
						_, _ = metadata.Change(r.t.Context(), behind, metadata.Groups, metadata.GroupKey(queue, "g"), func(now *metadata.GroupRecord) error {
							*now = metadata.GroupRecord{
								ID: core.GroupID{ID: core.NewID(time.Now())}, Queue: queue, Created: time.Now(),
								Spec: core.GroupSpec{Name: "g", Start: core.Start{Mode: []core.StartMode{core.StartEarliest, core.StartLatest}[rand.IntN(2)]}}.WithDefaults(),
							}
							return nil
						})
					case 1, 2, 3, 4, 5:
						_ = c.startGroup(r.t.Context(), queue, "g", g.ID)
					case 6, 7, 8, 9, 10:
						_, _ = c.rewindGroup(r.t.Context(), queue, "g", g.ID, core.Start{Mode: core.StartEarliest}, 0)
					default:
						_, _ = c.rewindGroup(r.t.Context(), queue, "g", g.ID, core.Start{Mode: core.StartLatest}, 0)
					}
				}
			})
		}
		wg.Wait()
		meta.wrong.Store(false)
		synctest.Wait()
		r.sleep(2 * time.Minute) // a rewind that was left is resumed
		g := r.readGroup(queue, "g")
		if g.Rewind != nil {
			r.t.Fatalf("a rewind stays: %+v", g)
		}
		if !g.Started {
			return
		}
		want := g.Spec.Start.Mode
		if g.LastSeek != nil {
			want = g.LastSeek.To.Mode
		}
		for id, l := range lengths {
			n, err := progress.Settled(r.t.Context(), behind, g, id)
			r.ok(err)
			consumed, err := metadata.IsConsumed(r.t.Context(), behind, g.ID, id, g.Epoch, metadata.Serial)
			r.ok(err)
			if consumed {
				n = l
			}
			if want == core.StartEarliest && n != 0 || want == core.StartLatest && n != l {
				r.t.Errorf("seed %d: group %+v skips %d of %d messages of extent %s", seed, g, n, l, id)
			}
		}
	})
}
