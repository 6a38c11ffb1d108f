package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/lease"
	"github.com/columbamq/columba/metadata/memory"
)

// contender is a process that wants the lease, with a clock of its own.
type contender struct {
	*lease.Lease
	run   core.RunID
	began time.Time
	shows time.Duration // by what its clock is ahead
	rate  float64       // of its clock
	way   *way
	stop  context.CancelFunc
	ended chan error
}

func (c *contender) now() time.Time {
	return c.began.Add(c.shows + time.Duration(float64(time.Since(c.began))*c.rate))
}

func (c *contender) held() (term uint64, held bool) { return c.Held(c.now()) }

// way is a process's way to the metadata: a process that stands still neither asks nor hears.
type way struct {
	metadata.Store
	still atomic.Pointer[chan struct{}] // closed when the process goes on
}

func (w *way) wait() {
	if c := w.still.Load(); c != nil {
		<-*c
	}
}

// pause makes the process stand still until the returned function is called.
func (w *way) pause() (goOn func()) {
	c := make(chan struct{})
	w.still.Store(&c)
	return func() {
		w.still.Store(nil)
		close(c)
	}
}

func (w *way) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	w.wait()
	defer w.wait()
	return w.Store.Get(ctx, t, k, c)
}

func (w *way) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	w.wait()
	defer w.wait()
	return w.Store.Insert(ctx, t, k, value)
}

func (w *way) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	w.wait()
	defer w.wait()
	return w.Store.Update(ctx, t, k, old, value, ttl)
}

// contend starts a contender whose clock shows another time and runs at another rate.
func contend(t *testing.T, s metadata.Store, i int, shows time.Duration, rate float64) *contender {
	c := &contender{began: time.Now(), shows: shows, rate: rate, way: &way{Store: s}, ended: make(chan error, 1), run: core.RunID{ID: core.NewID(time.Now())}}
	c.Lease = lease.New(c.way, "duty", core.HostID(fmt.Sprint("host-", i)), c.run, c.now)
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	go func() { c.ended <- c.Run(ctx) }()
	return c
}

// end stops a contender, which releases the lease.
func (c *contender) end() error {
	c.stop()
	return <-c.ended
}

// holders are those who believe that they hold the lease.
func holders(all []*contender) (out []*contender) {
	for _, c := range all {
		if _, held := c.held(); held {
			out = append(out, c)
		}
	}
	return out
}

// within waits until ok, and returns how long that took; it fails after limit.
func within(t *testing.T, what string, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		switch took := time.Since(began); {
		case ok():
			return took
		case took > limit:
			t.Fatalf("%s: not after %s", what, took)
		}
	}
}

// watch checks every few milliseconds that at most one contender holds the lease, and that no two have the same term.
type watch struct {
	t     *testing.T
	all   []*contender
	terms map[uint64]core.RunID
	last  uint64
	moves int
	done  chan struct{}
	wg    sync.WaitGroup
}

func watching(t *testing.T, all []*contender) *watch {
	w := &watch{t: t, all: all, terms: map[uint64]core.RunID{}, done: make(chan struct{})}
	every := underrace.Of(70*time.Millisecond, 10*time.Millisecond)
	w.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-w.done:
				return
			case <-tick.C:
				w.look()
			}
		}
	})
	return w
}

func (w *watch) look() {
	now := holders(w.all)
	if len(now) > 1 {
		w.t.Errorf("%d contenders hold the lease", len(now))
	}
	for _, c := range now {
		term, _ := c.held()
		if run, known := w.terms[term]; known && run != c.run {
			w.t.Errorf("term %d is of two runs", term)
		} else if !known {
			w.moves++
		}
		if term < w.last {
			w.t.Errorf("term %d comes after term %d", term, w.last)
		}
		w.terms[term], w.last = c.run, term
	}
}

func (w *watch) end() {
	close(w.done)
	w.wg.Wait()
}

// Two and three contenders, whose clocks are apart, with lost answers, replicas that differ and processes that stand
// still, are never two holders. Afterwards one holds the lease, and when it stands still another one does 10 s later.
func TestLease_OneHolder(t *testing.T) {
	moves := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { moves += storm(t, seed) })
		})
	}
	if moves < 200 {
		t.Errorf("the lease changed hands only %d times: the test shows little", moves)
	}
}

func storm(t *testing.T, seed uint64) (moves int) {
	die := rand.New(rand.NewPCG(seed, 9))
	rows := faulty.NewReplicas(faulty.Divergence{Seed: seed, Late: 0.3, Delay: 10 * time.Second, Never: 0.2, Undecided: 0.02})
	bad := faulty.New(rows, faulty.Faults{Seed: seed, Before: 0.1, Lost: 0.15, Delay: time.Second})
	s := &changing{calm: rows}
	s.storm.Store(&bad)
	var all []*contender
	for i := range 2 + int(seed%2) {
		rate := []float64{0.95, 1, 1.05}[die.IntN(3)]
		all = append(all, contend(t, s, i, time.Duration(die.IntN(7200)-3600)*time.Second, rate))
	}
	w := watching(t, all)
	for range 40 {
		c := all[die.IntN(len(all))]
		if h := holders(all); len(h) > 0 && die.IntN(3) > 0 {
			c = h[0]
		}
		goOn := c.way.pause()
		time.Sleep(time.Duration(die.IntN(12_000)) * time.Millisecond)
		goOn()
		time.Sleep(time.Duration(die.IntN(6_000)) * time.Millisecond)
	}
	s.storm.Store(nil)
	time.Sleep(20 * time.Second) // late writes have come
	for range 3 {
		within(t, "somebody holds the lease", 10*time.Second, func() bool { return len(holders(all)) == 1 })
		time.Sleep(time.Duration(die.IntN(3_000)) * time.Millisecond)
		held := holders(all)[0]
		goOn := held.way.pause()
		within(t, "another one holds the lease", 10*time.Second, func() bool { h := holders(all); return len(h) == 1 && h[0] != held })
		goOn()
	}
	for _, c := range all {
		if err := c.end(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	w.end()
	bad.Close()
	return w.moves
}

// changing is a store that is bad while there is a storm.
type changing struct {
	calm  metadata.Store
	storm atomic.Pointer[*faulty.Store]
	metadata.Store
}

func (c *changing) now() metadata.Store {
	if s := c.storm.Load(); s != nil {
		return *s
	}
	return c.calm
}

func (c *changing) Get(ctx context.Context, t metadata.Table, k metadata.Key, at metadata.Consistency) (metadata.Row, error) {
	return c.now().Get(ctx, t, k, at)
}

func (c *changing) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return c.now().Insert(ctx, t, k, value)
}

func (c *changing) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return c.now().Update(ctx, t, k, old, value, ttl)
}

// A holder renews, and others wait. When it stops it releases the lease, and another one takes it at its next look.
func TestLease_Released(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a := contend(t, s, 0, 0, 1)
		within(t, "the first holds it", time.Second, func() bool { _, held := a.held(); return held })
		b := contend(t, s, 1, time.Hour, 1)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if h := holders([]*contender{a, b}); len(h) != 1 || h[0] != a {
				t.Fatalf("%d hold the lease, want the first alone", len(h))
			}
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
		if _, held := a.held(); held {
			t.Error("the lease is held after its release")
		}
		within(t, "the second holds it", 2*time.Second, func() bool { _, held := b.held(); return held })
		if term, _ := b.held(); term != 2 {
			t.Errorf("term is %d, want 2", term)
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// A lost answer of a take-over is found again: the row is the contender's own.
func TestLease_LostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulty.NewReplicas(faulty.Divergence{Undecided: 1})
		a := contend(t, s, 0, 0, 1)
		within(t, "the first holds it", 3*time.Second, func() bool { _, held := a.held(); return held })
		b := contend(t, s, 1, 0, 1)
		defer b.end()
		goOn := a.way.pause()
		within(t, "the second holds it", 10*time.Second, func() bool { _, held := b.held(); return held })
		goOn()
		time.Sleep(time.Minute)
		if h := holders([]*contender{a, b}); len(h) != 1 || h[0] != b {
			t.Errorf("%d hold the lease, want the second alone", len(h))
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// An observer's time begins at the last version that it has seen; a replica that is behind does not begin it again.
func TestSighting(t *testing.T) {
	var s lease.Sighting
	at := time.Unix(100, 0)
	if s.Unchanged(at) != 0 {
		t.Error("what was never seen is unchanged for a time")
	}
	for i, see := range []struct {
		version metadata.Version
		want    time.Duration
	}{{5, 0}, {5, time.Second}, {6, 0}, {5, time.Second}, {6, 2 * time.Second}} {
		now := at.Add(time.Duration(i) * time.Second)
		s.See(see.version, now)
		if got := s.Unchanged(now); got != see.want {
			t.Errorf("after version %d: unchanged for %s, want %s", see.version, got, see.want)
		}
	}
}

// A contender that is not to have the lease does not take it, and a holder ends it within a renewal. Both have it in a
// new term when they may again.
func TestLease_OnlyWhileItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		var may atomic.Bool
		c := &contender{began: time.Now(), rate: 1, way: &way{Store: s}, ended: make(chan error, 1), run: core.RunID{ID: core.NewID(time.Now())}}
		c.Lease = lease.New(c.way, "duty", "host-0", c.run, c.now)
		c.May, c.Sees = may.Load, func() uint32 { return 7 }
		ctx, stop := context.WithCancel(t.Context())
		c.stop = stop
		go func() { c.ended <- c.Run(ctx) }()
		row := func() lease.Record {
			r, _, err := metadata.Read[lease.Record](t.Context(), s, metadata.Leases, metadata.LeaseKey("duty"), metadata.Serial)
			if err != nil && core.CodeOf(err) != core.CodeNotFound {
				t.Error(err)
			}
			return r
		}
		held := func() bool { _, held := c.held(); return held }
		for term := range uint64(3) {
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				if r := row(); held() || !r.Run.IsZero() {
					t.Fatalf("it has the lease, and may not: %+v", r)
				}
			}
			may.Store(true)
			within(t, "it holds the lease", 1100*time.Millisecond, held)
			time.Sleep(time.Minute)
			if got, is := c.held(); !is || got != term+1 || row().Sees != 7 {
				t.Errorf("term %d, held %v, want term %d; the row is %+v", got, is, term+1, row())
			}
			may.Store(false)
			within(t, "the lease is ended", 2500*time.Millisecond, func() bool { return row().Run.IsZero() })
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}
