package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// refusing is metadata that refuses all calls while on, or lists of hints alone, and counts calls.
type refusing struct {
	metadata.Store
	on    atomic.Bool
	hints atomic.Bool
	calls atomic.Int64
}

func (s *refusing) call() error {
	s.calls.Add(1)
	if s.on.Load() {
		return core.Errorf(core.CodeUnavailable, "injected: no majority")
	}
	return nil
}

func (s *refusing) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := s.call(); err != nil {
		return metadata.Row{}, err
	}
	return s.Store.Get(ctx, t, k, c)
}

func (s *refusing) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	err := s.call()
	if err == nil && t == metadata.Work && s.hints.Load() {
		err = core.Errorf(core.CodeUnavailable, "injected: no majority for hints")
	}
	if err != nil {
		return nil, false, err
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

func (s *refusing) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.Insert(ctx, t, k, value)
}

func (s *refusing) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.Update(ctx, t, k, old, value, ttl)
}

func (s *refusing) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.Put(ctx, t, k, value, at, ttl, c)
}

func (s *refusing) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.PutAll(ctx, t, rows, c)
}

func (s *refusing) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.Remove(ctx, t, k, at, c)
}

// opened makes n open extents of a queue, each with a record, behind the controller.
func (r *harness) opened(queue core.QueueID, n int) (all []core.Extent) {
	for range n {
		now := time.Now()
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: queue, Kind: core.KindLog, Input: r.input.ID, InputRun: r.input.Run, Replicas: []core.HostID{r.stores[0].id}}
		r.ok(r.ctl.writeExtent(r.t.Context(), metadata.ExtentRecord{Extent: e, Created: now, Wanted: 1}, now))
		r.stores[0].write(e, "1")
		all = append(all, e)
	}
	return all
}

// TestGate_OutageOfMetadata: a writer dies with 1,000 open extents while the metadata refuse. They are not asked a
// thousand of times. A seal that somebody asks for is tried at once, and after the outage all extents are sealed soon.
func TestGate_OutageOfMetadata(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, edit: calm}, func(r *harness) {
		queue := r.queue(1, 1)
		all := r.opened(queue, 1000)
		meta := &refusing{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		r.sleep(time.Second)
		meta.on.Store(true)
		r.kill("in")
		r.leave("in")
		meta.calls.Store(0)
		r.eventually("a seal is tried", 10*time.Second, func() bool { return meta.calls.Load() > 10 })
		r.sleep(2 * time.Second)
		t.Logf("%d calls in the first two seconds", meta.calls.Load())
		if n := meta.calls.Load(); n > 2*looksAtOnce+50 { // so many looks may have begun, of two calls each
			t.Errorf("%d calls in the first two seconds", n)
		}
		meta.calls.Store(0)
		r.sleep(time.Minute)
		t.Logf("%d calls in a minute", meta.calls.Load())
		if n := meta.calls.Load(); n > 200 {
			t.Errorf("%d calls in a minute", n)
		}
		before := meta.calls.Load()
		if _, err := r.seal(all[len(all)-1], 1); core.CodeOf(err) != core.CodeUnavailable || meta.calls.Load() == before {
			t.Errorf("a seal that is asked for was not tried: %v", err)
		}
		meta.on.Store(false)
		if got, err := r.seal(all[len(all)-2], 1); err != nil || got.L != 1 {
			t.Errorf("a seal that is asked for after the outage: %v, %v", got, err)
		}
		if _, err := r.ctl.ensureExtent(r.t.Context(), r.wish(r.queue(1, 1))); err != nil {
			t.Errorf("an extent that is asked for after the outage: %v", err)
		}
		sealed := 0
		took := r.eventually("all extents are sealed", 10*time.Second, func() bool {
			for ; sealed < len(all); sealed++ {
				if known, _ := r.ctl.extents.Get(all[sealed].ID); !known.State.HasEnd() {
					return false
				}
			}
			return true
		})
		t.Logf("all sealed after %s", took)
	})
}

// TestGate_OneTryAfterEachPause: pauses double up to a longest one, whatever else is refused meanwhile. The first
// answer at the consistency that was refused opens the gate.
func TestGate_OneTryAfterEachPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		refused := core.Errorf(core.CodeUnavailable, "injected")
		for range 2 {
			if !g.pass() {
				t.Fatal("a new gate is closed")
			}
		}
		for range 100 {
			g.heard(t.Context(), metadata.Serial, refused)
		}
		for _, want := range []time.Duration{200, 400, 800, 1600, 3200, 5000, 5000} {
			began := time.Now()
			if err := g.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != want*time.Millisecond {
				t.Errorf("a pause of %s, want %d ms", took, want)
			}
			if g.pass() {
				t.Error("two pass after a pause")
			}
			g.heard(t.Context(), metadata.One, nil)
			if !g.isClosed() {
				t.Fatal("an answer of one copy opens a gate that a majority has closed")
			}
			g.heard(t.Context(), metadata.Serial, refused)
			g.heard(t.Context(), metadata.One, refused)
		}
		waited := make(chan error, 1)
		go func() { waited <- g.wait(t.Context()) }()
		synctest.Wait()
		g.heard(t.Context(), metadata.Serial, core.Errorf(core.CodeNotFound, "there is none"))
		synctest.Wait()
		if len(waited) == 0 || !g.pass() {
			t.Error("an answer does not open the gate")
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		if g.heard(left, metadata.Serial, refused); g.isClosed() {
			t.Error("a caller that has left closes the gate")
		}
	})
}
