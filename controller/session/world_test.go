package session_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/session"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/lease"
)

// world is some controllers over the same metadata, in virtual time.
type world struct {
	t    *testing.T
	meta atomic.Pointer[metadata.Store]
	keys []core.ID
	mu   struct {
		sync.Mutex
		all    map[core.HostID]*controller // the newest run of each
		cut    map[[2]core.HostID]bool     // questions that get no answer
		hide   map[[2]core.HostID]bool     // the membership of the first one lacks the second
		sees   map[core.HostID]uint32      // how many hosts a controller sees; 0: only itself
		old    map[core.HostID]bool        // an earlier version, which says nothing of its lease
		refuse core.HostID                 // answers, and acknowledges nothing
		lost   float64                     // chance of an answer to a question
		die    *rand.Rand
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
	all     atomic.Int64                  // yields while it was responsible for no key
	busy    atomic.Pointer[chan struct{}] // yields wait until it is closed
	log     record
}

// record is a log that a test can read while it is written.
type record struct {
	mu struct {
		sync.Mutex
		all strings.Builder
	}
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.all.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.all.String()
}

func (r *record) Len() int { return len(r.String()) }

func newWorld(t *testing.T, meta metadata.Store) *world {
	w := &world{t: t}
	w.meta.Store(&meta)
	w.mu.all, w.mu.cut = make(map[core.HostID]*controller), make(map[[2]core.HostID]bool)
	w.mu.hide, w.mu.sees = make(map[[2]core.HostID]bool), make(map[core.HostID]uint32)
	w.mu.old = make(map[core.HostID]bool)
	w.mu.die = rand.New(rand.NewPCG(1, 1))
	for i := range 24 {
		w.keys = append(w.keys, core.ID{byte(i), 7})
	}
	return w
}

// start a run of a controller whose clock has a rate.
func (w *world) start(id core.HostID, rate float64) *controller { return w.startWhen(id, rate, nil) }

// startWhen is start for a controller that is ready when a channel is closed.
func (w *world) startWhen(id core.HostID, rate float64, ready <-chan struct{}) *controller {
	return w.startOn(nil, id, rate, ready)
}

// startOn is startWhen for a controller with metadata of its own; nil: with those of the others.
func (w *world) startOn(own metadata.Store, id core.HostID, rate float64, ready <-chan struct{}) *controller {
	c := &controller{
		w: w, id: id, run: core.RunID{ID: core.NewID(time.Now())}, began: time.Now(), rate: rate, way: &way{w: w, own: own}, ended: make(chan struct{}),
	}
	c.counter.Store(uint64(time.Now().UnixMicro()))
	log := slog.New(slog.NewTextHandler(&c.log, nil))
	c.Session = session.New(session.Config{Meta: c.way, Self: id, Run: c.run, Now: c.now, Log: log, Ready: ready}, c)
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

// pair starts two controllers, and waits until each has its part of the keys.
func (w *world) pair() (a, b *controller) {
	w.t.Helper()
	a, b = w.start("a", 1), w.start("b", 1)
	within(w.t, "each has its part", 10*time.Second, func() bool { return w.settled() && w.of(a) > 0 && w.of(b) > 0 })
	return a, b
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

func (c *controller) Ask(ctx context.Context, other lease.Record, term uint64) (uint64, error) {
	c.way.wait()
	c.w.mu.Lock()
	to, cut := c.w.mu.all[other.Owner], c.w.mu.cut[[2]core.HostID{c.id, other.Owner}]
	lacks, hidden := c.w.mu.hide[[2]core.HostID{c.id, other.Owner}], c.w.mu.hide[[2]core.HostID{other.Owner, c.id}]
	refuses := c.w.mu.refuse == other.Owner && term > 0
	lost := c.w.mu.die.Float64() < c.w.mu.lost
	c.w.mu.Unlock()
	if lacks {
		return 0, core.Errorf(core.CodeUnavailable, "controller %s is not in the membership", other.Owner)
	}
	if to == nil || cut || to.way.dead.Load() || to.way.still.Load() != nil {
		<-ctx.Done()
		return 0, core.Errorf(core.CodeDeadline, "no answer")
	}
	if refuses || hidden || to.run != other.Run {
		return 0, core.Errorf(core.CodeMoved, "refused")
	}
	counter, err := to.Acknowledge(ctx, c.run, term)
	if lost {
		<-ctx.Done()
		return 0, core.Errorf(core.CodeDeadline, "the answer is lost")
	}
	c.way.wait()
	return counter, err
}

func (c *controller) Sees() uint32 {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return max(c.w.mu.sees[c.id], 1)
}

func (c *controller) Shows(other core.HostID) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return !c.w.mu.hide[[2]core.HostID{c.id, other}]
}

func (c *controller) Superseded() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	newest := c.w.mu.all[c.id]
	return newest != c && newest != nil && !newest.way.dead.Load()
}

func (c *controller) Peers() (out []session.Peer) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for id, x := range c.w.mu.all {
		if id != c.id && !x.way.dead.Load() && !c.w.mu.hide[[2]core.HostID{c.id, id}] {
			out = append(out, session.Peer{Host: id, Run: x.run})
		}
	}
	return out
}

func (c *controller) Inquire(ctx context.Context, other session.Peer) (session.Holding, error) {
	c.way.wait()
	c.w.mu.Lock()
	to, cut, old := c.w.mu.all[other.Host], c.w.mu.cut[[2]core.HostID{c.id, other.Host}], c.w.mu.old[other.Host]
	c.w.mu.Unlock()
	switch {
	case to == nil || cut || to.way.dead.Load() || to.way.still.Load() != nil:
		<-ctx.Done()
		return session.Holding{}, core.Errorf(core.CodeDeadline, "no answer")
	case to.run != other.Run:
		return session.Holding{}, core.Errorf(core.CodeMoved, "refused")
	case old:
		return session.Holding{}, nil
	}
	h := to.Holding()
	c.way.wait()
	return h, nil
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
	if busy := c.busy.Load(); busy != nil {
		<-*busy
	}
	if c.w.of(c) == 0 {
		c.all.Add(1)
	}
	return c.counter.Load()
}

func (c *controller) Changed() {}

func (c *controller) Looked(time.Time, error) {}

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

// watch checks every few milliseconds that at most one controller is responsible for a key, and that one knows when
// another one was.
func (w *world) watch() (end func() (moves int)) {
	done, ended := make(chan struct{}), make(chan struct{})
	type turn struct {
		of *controller
		at time.Time // when that was last so
	}
	type mark struct {
		key core.ID
		of  *controller
	}
	last, handovers, moves := make(map[core.ID]turn), make(map[mark]uint64), 0
	go func() {
		defer close(ended)
		tick := time.NewTicker(underrace.Of(49*time.Millisecond, 7*time.Millisecond))
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
				if len(now) == 0 {
					continue
				}
				c, n := now[0], now[0].Handovers()
				if before := last[key]; before.of != c {
					moves++
					if ago := time.Since(before.at); before.of != nil && c.Unchanged() > ago*107/100 {
						w.t.Errorf("nothing has changed at %s for %s, but %s was responsible %s ago", c.id, c.Unchanged(), before.of.id, ago)
					}
					if earlier, was := handovers[mark{key, c}]; was && earlier == n {
						w.t.Errorf("%s has not counted that %s was responsible in between", c.id, before.of.id)
					}
				}
				last[key], handovers[mark{key, c}] = turn{c, time.Now()}, n
			}
		}
	}()
	return func() int {
		close(done)
		<-ended
		return moves
	}
}

// way is a controller's way to the metadata: one that stands still neither asks nor hears, and a dead one stores
// nothing.
type way struct {
	metadata.Store // nil: nothing else is called
	w              *world
	own            metadata.Store                // other metadata than the world's; nil: the same
	still          atomic.Pointer[chan struct{}] // closed when it goes on
	blind          atomic.Pointer[chan struct{}] // reads of all leases wait until it is closed
	dead           atomic.Bool
}

func (w *way) store() metadata.Store {
	if w.own != nil {
		return w.own
	}
	return *w.w.meta.Load()
}

func (w *way) wait() {
	if c := w.still.Load(); c != nil {
		<-*c
	}
}

func (w *way) pauseReads() (goOn func()) {
	c := make(chan struct{})
	w.blind.Store(&c)
	return func() {
		w.blind.Store(nil)
		close(c)
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
	if c := w.blind.Load(); c != nil {
		select {
		case <-*c:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	all := make([]metadata.Row, len(keys))
	var g errgroup.Group
	for i, k := range keys {
		g.Go(func() (err error) {
			if all[i], err = w.store().Get(ctx, t, k, c); core.CodeOf(err) == core.CodeNotFound {
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
	return w.store().Get(ctx, t, k, c)
}

func (w *way) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	if w.wait(); w.dead.Load() {
		return core.Errorf(core.CodeUnavailable, "dead")
	}
	defer w.wait()
	return w.store().Insert(ctx, t, k, value)
}

func (w *way) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if w.wait(); w.dead.Load() {
		return core.Errorf(core.CodeUnavailable, "dead")
	}
	defer w.wait()
	return w.store().Update(ctx, t, k, old, value, ttl)
}
