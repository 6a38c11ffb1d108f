package operations

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
)

// look is how many messages one look compares.
const look = 3

// fits is the selection of the fakes: by attempts, which are the seq.
func fits(s core.Selection, seq core.Seq) bool {
	return s.Matches(core.Letter{ID: core.MessageID{ID: id(byte(seq))}, Attempts: int(seq % 5)})
}

// copyOf is a message that a staging extent holds a copy of.
type copyOf struct {
	extent core.ExtentID
	seq    core.Seq
}

// Stage implements Owner.
func (b *harness) Stage(_ context.Context, queue core.QueueID, op core.ID) (core.Extent, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stages++
	return core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, InputRun: core.RunID{ID: op}}, nil
}

// Register implements Owner.
func (b *harness) Register(ctx context.Context, e core.Extent, op core.ID) error {
	home := core.Home{Kind: core.HomeStaging, Operation: op}
	err := metadata.Create(ctx, b.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentOpen, Home: home})
	if core.CodeOf(err) == core.CodeExists {
		var row metadata.SealRecord
		row, _, err = metadata.Read[metadata.SealRecord](ctx, b.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
		if err == nil && row.Home != home {
			err = core.Errorf(core.CodeConflict, "its home is %s", row.Home)
		}
	}
	return err
}

// Usable implements Owner.
func (b *harness) Usable(e core.Extent) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.broken[e.ID] && !b.away
}

// SealStage implements Owner.
func (b *harness) SealStage(ctx context.Context, e core.Extent, _ core.Seq) (metadata.SealRecord, error) {
	b.mu.Lock()
	n := core.Seq(len(b.copies[e.ID]))
	lose := b.losing == 1
	b.losing = max(b.losing-1, 0)
	b.mu.Unlock()
	return metadata.Change(ctx, b.meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State.HasEnd() {
			return metadata.ErrNoChange
		}
		r.State, r.L = core.ExtentSealed, n
		if lose {
			return r.GiveUp(n, 0, time.Now())
		}
		return nil
	})
}

// Look implements Owner: like stores, a staging extent takes what follows what it has, and what it has already when it
// is the same.
func (b *harness) Look(_ context.Context, l Look) (Found, error) {
	time.Sleep(time.Millisecond) // of the bubble: whoever looks again and again at once would stop its clock
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unlucky > 0 && !l.Stage.ID.IsZero() {
		if b.unlucky--; b.unlucky == 0 {
			b.broken[l.Stage.ID] = true
		}
	}
	if b.broken[l.Stage.ID] || b.away {
		return Found{}, core.Errorf(core.CodeUnavailable, "a store is gone")
	}
	gone, err := l.Row.Gone()
	b.ok(err)
	out := Found{Next: l.From, At: l.At}
	var matched acklevel.Window
	for ; out.Next <= l.Row.L && out.Next < l.From+look; out.Next++ {
		if gone.Done(out.Next) {
			continue
		}
		out.Looked++
		if !fits(l.Selection, out.Next) {
			continue
		}
		matched.Ack(out.Next)
		if l.Stage.ID.IsZero() {
			continue
		}
		what := copyOf{l.Extent.ID, out.Next}
		switch has := b.copies[l.Stage.ID]; {
		case int(out.At.Last) == len(has):
			b.copies[l.Stage.ID] = append(has, what)
		case int(out.At.Last) > len(has) || has[out.At.Last] != what:
			return Found{}, core.Errorf(core.CodeConflict, "it has something else there")
		}
		out.At.Last++
	}
	out.Matched, _ = matched.Append(nil)
	return out, nil
}

// places says where each message is: how often it is a dead letter, merged, and gone from its extent.
func (b *harness) places() (own, merged, removed map[copyOf]int) {
	own, merged, removed = make(map[copyOf]int), make(map[copyOf]int), make(map[copyOf]int)
	for r, err := range metadata.All[metadata.SealRecord](b.t.Context(), b.meta, metadata.Seals, metadata.PartitionID, metadata.Serial) {
		b.ok(err)
		if copies, staged := b.copies[r.Value.Extent.ID]; staged {
			if r.Value.Home.Kind == core.HomeMerged {
				for _, c := range copies[:r.Value.ReadableTo()] {
					merged[c]++
				}
			}
			continue
		}
		gone, err := r.Value.Gone()
		b.ok(err)
		for seq := core.Seq(1); seq <= r.Value.L; seq++ {
			at := copyOf{r.Value.Extent.ID, seq}
			switch {
			case gone.Done(seq):
				removed[at]++
			case r.Value.Home.Kind == core.HomeOwn:
				own[at]++
			case r.Value.Home.Kind == core.HomeMerged:
				merged[at]++
			default:
				removed[at]++
			}
		}
	}
	return own, merged, removed
}

// staging counts the extents that nobody reads yet.
func (b *harness) staging() (n int) {
	for r, err := range metadata.All[metadata.SealRecord](b.t.Context(), b.meta, metadata.Seals, metadata.PartitionID, metadata.Serial) {
		b.ok(err)
		if r.Value.Home.Kind == core.HomeStaging {
			n++
		}
	}
	return n
}

// cancelAt cancels an operation once its search has come to a step, or is decided.
func (b *harness) cancelAt(r *Runner, op core.ID, step uint64) (join func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o := (metadata.OperationRecord{State: metadata.OperationRunning}); !o.Ended(); time.Sleep(20 * time.Millisecond) {
			var err error
			if o, err = metadata.FindOperation(b.t.Context(), b.meta, op); err == nil && (o.Decided || o.Search != nil && o.Search.Step >= step) {
				if _, err = r.Cancel(b.t.Context(), op); err == nil {
					return
				}
			}
			if err != nil {
				b.t.Error(err)
				return
			}
		}
	}()
	return func() { <-done }
}

// TestSelection_Controllers has several controllers, that come and go and lose answers of the metadata, whose staging
// extents break, run a merge or a purge of a selection, which somebody may cancel, and then one of all that is left: at
// the end of each every message is in exactly one place, and nothing is half done.
func TestSelection_Controllers(t *testing.T) {
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			ends := make([]core.Seq, 1+random.IntN(5))
			total := uint64(0)
			for i := range ends {
				ends[i] = core.Seq(random.IntN(15))
				total += uint64(ends[i])
			}
			b := newHarness(t, ends...)
			shaky := faulty.New(b.meta, faulty.Faults{Seed: seed, Before: 0.03, Lost: 0.03, Stale: 0.3, Delay: 50 * time.Millisecond})
			defer shaky.Close()
			b.unlucky, b.losing = random.IntN(6), random.IntN(3)
			kinds := []metadata.OperationKind{metadata.OperationMerge, metadata.OperationPurge}
			o := b.order(50, kinds[random.IntN(2)])
			o.Selection = core.Selection{MinAttempts: 1 + random.IntN(3), MaxAttempts: 3}
			quiet := b.runner(b.meta)
			_, err := quiet.Start(t.Context(), o)
			b.ok(err)
			cancels := random.IntN(2) == 0
			if cancels {
				defer b.cancelAt(quiet, o.ID, []uint64{uint64(random.IntN(12)), math.MaxUint64}[random.IntN(2)])()
			}
			for range 2 + random.IntN(8) {
				one, other := b.run(b.runner(shaky)), b.run(b.runner(shaky))
				time.Sleep(time.Duration(random.IntN(6000)) * time.Millisecond)
				one()
				other()
			}
			defer b.run(quiet)()
			got := b.wait(50)
			time.Sleep(5 * time.Second)
			own, merged, removed := b.places()
			found := 0
			for i, l := range ends {
				for seq := core.Seq(1); seq <= l; seq++ {
					at := copyOf{core.ExtentID{ID: id(byte(10 + i))}, seq}
					taken := got.State == metadata.OperationDone && fits(o.Selection, seq)
					wantOwn, wantMerged := 1, 0
					if taken {
						found++
						wantOwn = 0
						if o.Kind == metadata.OperationMerge {
							wantMerged = 1
						}
					}
					if own[at] != wantOwn || merged[at] != wantMerged {
						t.Fatalf("seed %d: after %+v seq %d of extent %d is %d × listed, %d × merged", seed, got, seq, i, own[at], merged[at])
					}
				}
			}
			switch {
			case got.State == metadata.OperationDone && (got.Done != uint64(found) || got.Search.Found != got.Done || got.Search.Looked != total || got.Total != total):
				t.Fatalf("seed %d: of %d messages it took %d: %+v, %+v", seed, total, found, got, got.Search)
			case got.State != metadata.OperationDone && (!cancels || got.State != metadata.OperationCancelled || len(removed) > 0):
				t.Fatalf("seed %d: it is %+v, %d are removed", seed, got, len(removed))
			case b.staging() > 0:
				t.Fatalf("seed %d: %d staging extents are left", seed, b.staging())
			}
			_, err = quiet.Start(t.Context(), b.order(51, metadata.OperationMerge))
			b.ok(err)
			if rest := b.wait(51); rest.State != metadata.OperationDone || rest.Done != uint64(len(own)) {
				t.Fatalf("seed %d: the merge of the %d that are left: %+v", seed, len(own), rest)
			}
			if _, again, _ := b.places(); len(again) != len(merged)+len(own) || slices.ContainsFunc(values(again), func(n int) bool { return n != 1 }) {
				t.Fatalf("seed %d: after all, the group has %v", seed, again)
			}
			later := b.runner(b.meta) // a controller that is stopped may leave what it found until then
			later.Now = func() time.Time { return time.Now().Add(keptFor + time.Minute) }
			b.ok(later.sweep(t.Context()))
			for _, err := range metadata.All[metadata.SelectedRecord](t.Context(), b.meta, metadata.Operations, metadata.SelectedPartition(o.ID), metadata.Serial) {
				b.ok(err)
				t.Fatalf("seed %d: what it found is kept", seed)
			}
		})
	}
}

func values(m map[copyOf]int) (out []int) {
	for _, n := range m {
		out = append(out, n)
	}
	return out
}

// TestSelection_TooFarApart: what cannot be kept track of is refused, and changes nothing.
func TestSelection_TooFarApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 9)
		defer b.meta.Close()
		_, err := metadata.Change(t.Context(), b.meta, metadata.Seals, metadata.SealKey(core.ExtentID{ID: id(10)}), func(r *metadata.SealRecord) error {
			var w acklevel.Window
			for seq := core.Seq(12); seq < 16*maxRemoved; seq += 2 {
				w.Ack(seq)
			}
			r.Removed, _ = w.Append(nil)
			return nil
		})
		b.ok(err)
		r := b.runner(b.meta)
		defer b.run(r)()
		o := b.order(50, metadata.OperationMerge)
		o.Selection.MinAttempts = 2
		_, err = r.Start(t.Context(), o)
		b.ok(err)
		if o := b.wait(50); o.State != metadata.OperationFailed || o.Error != errScattered.Error() {
			t.Errorf("it is %+v", o)
		}
		time.Sleep(5 * time.Second)
		if own, merged, _ := b.places(); len(own) != 9 || len(merged) != 0 || b.staging() != 0 {
			t.Errorf("%d are listed, %d merged, %d staging extents left", len(own), len(merged), b.staging())
		}
	})
}

// TestSelection_StoresAreAway: while no staging extent comes to anything they are made once a round, not one after
// another.
func TestSelection_StoresAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 9)
		defer b.meta.Close()
		away := func(is bool) int {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.away = is
			return b.stages
		}
		away(true)
		r := b.runner(b.meta)
		defer b.run(r)()
		o := b.order(50, metadata.OperationMerge)
		o.Selection.MinAttempts = 2
		_, err := r.Start(t.Context(), o)
		b.ok(err)
		time.Sleep(10 * time.Second)
		if n, most := away(false), 2+int(10*time.Second/r.Every); n < 2 || n > most {
			t.Errorf("%d staging extents were made in ten seconds, want at most %d", n, most)
		}
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done == 0 {
			t.Errorf("it is %+v", o)
		}
		time.Sleep(5 * time.Second)
		if own, merged, _ := b.places(); len(own)+len(merged) != 9 || b.staging() != 0 {
			t.Errorf("%d are listed, %d merged, %d staging extents left", len(own), len(merged), b.staging())
		}
	})
}
