package session_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/session"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/lease"
	"github.com/columbamq/columba/metadata/memory"
)

// world is some controllers over the same metadata, in virtual time.
type world struct {
	t    *testing.T
	meta atomic.Pointer[metadata.Store]
	keys []core.ID
	mu   struct {
		sync.Mutex
		all  map[core.HostID]*controller // the newest run of each
		cut  map[[2]core.HostID]bool     // questions that get no answer
		lost float64                     // chance of an answer to a question
		die  *rand.Rand
	}
}

// controller is one run of one.
type controller struct {
	*session.Session
	w       *world
	id      core.HostID
	run     core.RunID
	began   time.Time
	rate    float64 // of its clock
	way     *way
	stop    context.CancelFunc
	ended   chan struct{}
	counter atomic.Uint64
	yields  atomic.Int64
	log     strings.Builder
}

func newWorld(t *testing.T, meta metadata.Store) *world {
	w := &world{t: t}
	w.meta.Store(&meta)
	w.mu.all, w.mu.cut = make(map[core.HostID]*controller), make(map[[2]core.HostID]bool)
	w.mu.die = rand.New(rand.NewPCG(1, 1))
	for i := range 24 {
		w.keys = append(w.keys, core.ID{byte(i), 7})
	}
	return w
}

// start a run of a controller whose clock has a rate.
func (w *world) start(id core.HostID, rate float64) *controller {
	c := &controller{
		w: w, id: id, run: core.RunID{ID: core.NewID(time.Now())}, began: time.Now(), rate: rate, way: &way{w: w}, ended: make(chan struct{}),
	}
	c.counter.Store(uint64(time.Now().UnixMicro()))
	log := slog.New(slog.NewTextHandler(&c.log, nil))
	c.Session = session.New(session.Config{Meta: c.way, Self: id, Run: c.run, Now: c.now, Log: log}, c)
	w.mu.Lock()
	w.mu.all[id] = c
	w.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		defer close(c.ended)
		c.Run(ctx)
	}()
	return c
}

func (c *controller) now() time.Time {
	return c.began.Add(time.Duration(float64(time.Since(c.began)) * c.rate))
}

// end stops a controller in an orderly way.
func (c *controller) end() {
	c.stop()
	<-c.ended
}

// kill it: it releases nothing.
func (c *controller) kill() {
	c.way.dead.Store(true)
	c.stop()
	<-c.ended
}

func (c *controller) Ask(ctx context.Context, other core.HostID, term uint64) (uint64, error) {
	c.way.wait()
	c.w.mu.Lock()
	to, cut := c.w.mu.all[other], c.w.mu.cut[[2]core.HostID{c.id, other}]
	lost := c.w.mu.die.Float64() < c.w.mu.lost
	c.w.mu.Unlock()
	if to == nil || cut || to.way.dead.Load() || to.way.still.Load() != nil {
		<-ctx.Done()
		return 0, core.Errorf(core.CodeDeadline, "no answer")
	}
	counter, err := to.Acknowledge(ctx, c.run, term)
	if lost {
		<-ctx.Done()
		return 0, core.Errorf(core.CodeDeadline, "the answer is lost")
	}
	c.way.wait()
	return counter, err
}

func (c *controller) Newer(counter uint64) {
	for {
		is := c.counter.Load()
		if is >= counter || c.counter.CompareAndSwap(is, counter) {
			return
		}
	}
}

func (c *controller) Yield() uint64 {
	c.yields.Add(1)
	return c.counter.Load()
}

func (c *controller) Changed() {}

// responsible are those for a key. Each makes a list then: newer than those of the one before.
func (w *world) responsible(key core.ID) (out []*controller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.all {
		if !c.way.dead.Load() && c.Responsible(key) {
			out = append(out, c)
		}
	}
	return out
}

// watch checks every few milliseconds that at most one controller is responsible for a key.
func (w *world) watch() (end func() (moves int)) {
	done, ended := make(chan struct{}), make(chan struct{})
	last, moves := make(map[core.ID]*controller), 0
	go func() {
		defer close(ended)
		tick := time.NewTicker(7 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for _, key := range w.keys {
				now := w.responsible(key)
				if len(now) > 1 {
					w.t.Errorf("%s and %s are responsible for a key", now[0].id, now[1].id)
				}
				if len(now) > 0 && now[0] != last[key] {
					last[key] = now[0]
					moves++
				}
			}
		}
	}()
	return func() int {
		close(done)
		<-ended
		return moves
	}
}

// settled reports whether exactly one controller is responsible for each key.
func (w *world) settled() bool {
	for _, key := range w.keys {
		if len(w.responsible(key)) != 1 {
			return false
		}
	}
	return true
}

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

// way is a controller's way to the metadata: one that stands still neither asks nor hears, and a dead one stores nothing.
type way struct {
	metadata.Store // nil: nothing else is called
	w              *world
	still          atomic.Pointer[chan struct{}] // closed when it goes on
	dead           atomic.Bool
}

func (w *way) wait() {
	if c := w.still.Load(); c != nil {
		<-*c
	}
}

func (w *way) pause() (goOn func()) {
	c := make(chan struct{})
	w.still.Store(&c)
	return func() {
		w.still.Store(nil)
		close(c)
	}
}

// GetRows reads all rows side by side.
func (w *way) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	w.wait()
	defer w.wait()
	all := make([]metadata.Row, len(keys))
	var g errgroup.Group
	for i, k := range keys {
		g.Go(func() (err error) {
			if all[i], err = (*w.w.meta.Load()).Get(ctx, t, k, c); core.CodeOf(err) == core.CodeNotFound {
				err = nil
			}
			return err
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(all, func(r metadata.Row) bool { return r.Version == 0 }), err
}

func (w *way) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	w.wait()
	defer w.wait()
	return (*w.w.meta.Load()).Get(ctx, t, k, c)
}

func (w *way) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if w.wait(); w.dead.Load() {
		return core.Errorf(core.CodeUnavailable, "dead")
	}
	defer w.wait()
	return (*w.w.meta.Load()).Insert(ctx, t, k, value)
}

func (w *way) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte) error {
	if w.wait(); w.dead.Load() {
		return core.Errorf(core.CodeUnavailable, "dead")
	}
	defer w.wait()
	return (*w.w.meta.Load()).Update(ctx, t, k, old, value)
}

// TestSession_OneIsResponsible: controllers whose clocks differ in rate stand still, are killed, restarted and cut off from each other, while the
// metadata lose answers and replicas differ. At no time are two responsible for a key. Then one is within the time that is promised.
func TestSession_OneIsResponsible(t *testing.T) {
	moves := 0
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { moves += storm(t, seed) })
		})
	}
	if moves < 150 {
		t.Errorf("keys changed hands only %d times: the test shows little", moves)
	}
}

func storm(t *testing.T, seed uint64) int {
	die := rand.New(rand.NewPCG(seed, 5))
	rows := faulty.NewReplicas(faulty.Divergence{Seed: seed, Late: 0.3, Delay: 10 * time.Second, Never: 0.2, Undecided: 0.02})
	bad := faulty.New(rows, faulty.Faults{Seed: seed, Before: 0.01, Lost: 0.1, Delay: time.Second})
	w := newWorld(t, bad)
	w.mu.lost = 0.2
	ids := []core.HostID{"a", "b", "c"}[:2+seed%2]
	rate := func() float64 { return []float64{0.95, 1, 1.05}[die.IntN(3)] }
	for _, id := range ids {
		w.start(id, rate())
	}
	end := w.watch()
	pick := func() (core.HostID, *controller) {
		w.mu.Lock()
		defer w.mu.Unlock()
		id := ids[die.IntN(len(ids))]
		return id, w.mu.all[id]
	}
	for range 40 {
		id, c := pick()
		switch die.IntN(4) {
		case 0:
			goOn := c.way.pause()
			time.Sleep(time.Duration(die.IntN(14_000)) * time.Millisecond)
			goOn()
		case 1:
			c.kill()
			time.Sleep(time.Duration(die.IntN(5_000)) * time.Millisecond)
			w.start(id, rate())
		case 2:
			c.end()
			time.Sleep(time.Duration(die.IntN(1_000)) * time.Millisecond)
			w.start(id, rate())
		case 3:
			other, _ := pick()
			w.mu.Lock()
			w.mu.cut[[2]core.HostID{id, other}] = !w.mu.cut[[2]core.HostID{id, other}]
			w.mu.Unlock()
		}
		time.Sleep(time.Duration(die.IntN(6_000)) * time.Millisecond)
	}
	w.mu.Lock()
	clear(w.mu.cut)
	w.mu.lost = 0
	w.mu.Unlock()
	calm := metadata.Store(rows)
	w.meta.Store(&calm)
	time.Sleep(20 * time.Second) // late writes have come
	within(t, "one is responsible for each key", 10*time.Second, w.settled)
	_, c := pick()
	c.kill()
	within(t, "others took over", 10*time.Second, w.settled)
	moves := end()
	for _, c := range w.mu.all {
		c.end()
	}
	bad.Close()
	return moves
}

// TestSession_Joins: the second controller takes over its part within a second or two, and gives it back when it stops.
func TestSession_Joins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		if took := within(t, "the first is responsible for all", time.Second, w.settled); took > 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		end := w.watch()
		of := func(c *controller) (n int) {
			for _, key := range w.keys {
				if c.Responsible(key) {
					n++
				}
			}
			return n
		}
		counter, yields := a.counter.Load(), a.yields.Load()
		b := w.start("b", 1)
		within(t, "the second has its part", 3*time.Second, func() bool { return w.settled() && of(b) > 0 })
		if n := of(a); n < len(w.keys)/5 || n > len(w.keys)*4/5 {
			t.Errorf("the first kept %d of %d keys", n, len(w.keys))
		}
		if a.Handovers() != 1 || b.Handovers() != 0 || a.yields.Load() == yields || b.counter.Load() < counter {
			t.Errorf("hand-overs %d and %d, yields %d, counters %d and %d", a.Handovers(), b.Handovers(), a.yields.Load(), counter, b.counter.Load())
		}
		b.end()
		within(t, "the first has all again", 3*time.Second, func() bool { return of(a) == len(w.keys) })
		b = w.start("b", 1)
		within(t, "the second has its part", 3*time.Second, func() bool { return w.settled() && of(b) > 0 })
		goOn := b.way.pause()
		within(t, "the first took over from one that stands still", 10*time.Second, func() bool { return of(a) == len(w.keys) })
		time.Sleep(time.Minute)
		goOn()
		within(t, "the second has its part again", 3*time.Second, func() bool { return w.settled() && of(b) > 0 })
		if b.Handovers() == 0 {
			t.Error("the lease of the second lapsed, and no hand-over was counted")
		}
		end()
		a.end()
		b.end()
	})
}

// TestSession_OnlyAcknowledgedOnesAct: a controller that another one does not acknowledge is responsible for nothing until that one's lease has ended.
func TestSession_OnlyAcknowledgedOnesAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		a := w.start("a", 1)
		within(t, "the first is responsible for all", time.Second, w.settled)
		w.mu.cut[[2]core.HostID{"b", "a"}] = true
		b := w.start("b", 1)
		time.Sleep(time.Minute)
		for _, key := range w.keys {
			if b.Responsible(key) {
				t.Fatal("one that is not acknowledged is responsible")
			}
		}
		if !b.Holds() {
			t.Error("it does not hold its lease")
		}
		if _, err := a.Acknowledge(t.Context(), b.run, 99); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("a term that the metadata do not show: %v", err)
		}
		if _, err := a.Acknowledge(t.Context(), core.RunID{ID: core.NewID(time.Now())}, 1); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("a run that the metadata do not show: %v", err)
		}
		a.kill()
		took := within(t, "the other one took over", 11*time.Second, func() bool {
			for _, key := range w.keys {
				if !b.Responsible(key) {
					return false
				}
			}
			return true
		})
		if took < lease.TTL {
			t.Errorf("it took over after %s, while the other may have been acting", took)
		}
		b.end()
	})
}

// TestSession_AllSlotsAreTaken: one controller more than there are slots waits, says so, and takes the first one that is free.
func TestSession_AllSlotsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		var all []*controller
		for i := range session.Slots {
			all = append(all, w.start(core.HostID(fmt.Sprintf("c%02d", i)), 1))
		}
		within(t, "all hold leases", 30*time.Second, func() bool {
			for _, c := range all {
				if !c.Holds() {
					return false
				}
			}
			return w.settled()
		})
		late := w.start("late", 1)
		time.Sleep(30 * time.Second)
		if late.Holds() || strings.Count(late.log.String(), "as many controllers as can be") != 1 {
			t.Errorf("holds %v, log: %s", late.Holds(), late.log.String())
		}
		all[3].end()
		within(t, "it has a lease", 10*time.Second, late.Holds)
		within(t, "one is responsible for each key", 5*time.Second, w.settled)
		late.end()
		for i, c := range all {
			if i != 3 {
				c.end()
			}
		}
	})
}

// BenchmarkResponsible is asked for each queue in a round.
func BenchmarkResponsible(b *testing.B) {
	s := session.New(session.Config{Meta: memory.New(), Self: "a", Run: core.RunID{ID: core.ID{1}}, Log: slog.New(slog.DiscardHandler)}, nil)
	key := core.ID{1, 2, 3}
	for b.Loop() {
		s.Responsible(key)
	}
}
