package extentlog

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

var (
	storms    = flag.Int("storms", 20, "random schedules of TestStorm")
	stormSeed = flag.Uint64("storm", 0, "seed of the first one; 0: by lot")
)

// TestStorm: writers, readers and drains go on at once in a ring that is as small as can be, until the power goes, at
// any change of any file, also while the store starts. Then all that was acknowledged is there, and nothing else.
func TestStorm(t *testing.T) {
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range uint64(*storms) {
		if err := storm(t, seed+i); err != nil {
			t.Fatalf("seed %d: %v", seed+i, err)
		}
	}
}

// openStorm opens a store that repacks each table of which a part was cut out, at once.
func openStorm(fs vfs.FS) (*Engine, error) {
	e, err := Open("store", Options{Store: "s1", FS: fs, Log: slog.New(slog.DiscardHandler), Ring: 1})
	if err == nil {
		e.journal.keeper.garbage.Store(0)
		e.journal.keeper.sparse.Store(10000) // of tables of a few bytes
	}
	return e, err
}

// storm is one disk and the stores that are opened on it, one after another.
func storm(t *testing.T, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 7))
	fs := vfs.NewCrashableMem()
	m := new(stormModel)
	if err := calm(t, fs, m, 0); err != nil { // makes the store
		return err
	}
	for run := 1; run <= 4; run++ {
		after, err := rage(t, fs, m, run, random)
		if err != nil {
			return fmt.Errorf("run %d: %w", run, err)
		}
		for again := random.IntN(3); again > 0; again-- { // the power goes while it starts
			if after, err = startCut(after, random); err != nil {
				return fmt.Errorf("run %d: a start that is cut off: %w", run, err)
			}
		}
		fs = after
		if err := calm(t, fs, m, run); err != nil {
			return fmt.Errorf("after run %d: %w", run, err)
		}
		if random.IntN(2) == 0 { // and a start after a close
			if err := calm(t, fs, m, run); err != nil {
				return fmt.Errorf("after run %d, closed and opened: %w", run, err)
			}
		}
	}
	return nil
}

// startCut opens the store until the power goes; the disk after that.
func startCut(fs *vfs.MemFS, random *rand.Rand) (*vfs.MemFS, error) {
	d := newStormDisk(fs, rand.New(rand.NewPCG(random.Uint64(), 1)), 1+random.IntN(40), func() func() { return func() {} })
	e, err := openStorm(d.fs())
	if err != nil {
		return nil, err
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	if d.after == nil {
		d.lose()
	}
	return d.after, nil
}

// calm opens the store, compares all with what was promised, and closes it.
func calm(t *testing.T, fs *vfs.MemFS, m *stormModel, run int) (err error) {
	e, err := openStorm(fs)
	if err != nil {
		return err
	}
	defer func() {
		if e := e.Close(); err == nil {
			err = e
		}
	}()
	if err := m.adopt(e); err != nil {
		return err
	}
	return m.check(t, e)
}

// adopt finds out what came of the calls that were under way when the power went.
func (m *stormModel) adopt(e *Engine) error {
	for _, p := range m.promised {
		got, err := e.State(p.x.ID)
		found := p.now.is(got, err)
		for i := 0; i < len(p.may) && !found; i++ {
			if found = p.may[i].is(got, err); found {
				p.now = p.may[i]
			}
		}
		if !found {
			return fmt.Errorf("extent %s is %+v, %v; promised was %v, with %d calls under way",
				p.x.ID, got, err, &p.now, len(p.may))
		}
		for _, s := range m.subjects {
			if s.x.ID == p.x.ID {
				s.now, s.may, s.rest = p.now, nil, nil
			}
		}
	}
	m.promised, m.over = nil, false
	return nil
}

// check compares all, in a store where nothing is under way.
func (m *stormModel) check(t testing.TB, e *Engine) error {
	for _, s := range m.subjects {
		if err := s.now.compare(t, e, s.x); err != nil {
			return err
		}
	}
	return m.remains(e)
}

// rage has many at work until the power goes; the disk after that.
func rage(t *testing.T, fs *vfs.MemFS, m *stormModel, run int, random *rand.Rand) (*vfs.MemFS, error) {
	left := 1 + random.IntN(2000)
	if random.IntN(4) == 0 {
		left = 1 + random.IntN(100)
	}
	d := newStormDisk(fs, rand.New(rand.NewPCG(random.Uint64(), 2)), left, m.cut)
	e, err := openStorm(d.fs())
	if err != nil {
		return nil, err
	}
	w := &stormWork{t: t, e: e, m: m, run: run, calls: make(chan struct{}, 2)}
	var working sync.WaitGroup
	shares := [][]*subject{w.share(0), w.share(1), w.share(2)}
	for i, mine := range shares {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		working.Go(func() { w.write(own, mine) })
	}
	var reading sync.WaitGroup
	own := rand.New(rand.NewPCG(random.Uint64(), 99))
	reading.Go(func() { w.read(own) })
	working.Wait()
	close(w.calls)
	reading.Wait()
	if d.after == nil && w.failed() == nil { // it was not cut off: all that was done is true
		drainAll(t, e)
		if err := m.check(t, e); err != nil {
			w.fail(fmt.Errorf("at the end: %w", err))
		}
	}
	if err := e.Close(); err != nil {
		w.fail(err)
	}
	if d.after == nil {
		d.lose()
	}
	return d.after, w.failed()
}

// stormWork is what is done to one store.
type stormWork struct {
	t   *testing.T
	e   *Engine
	m   *stormModel
	run int
	// calls has one for each call that begins: as many reads go beside them.
	calls chan struct{}

	mu  sync.Mutex
	err error
}

func (w *stormWork) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *stormWork) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// share are the extents of one writer.
func (w *stormWork) share(i int) (mine []*subject) {
	for n, s := range w.m.subjects {
		if n%3 == i && (s.now.here || n%5 == 0) {
			mine = append(mine, s)
		}
	}
	return mine
}

func (w *stormWork) make(random *rand.Rand) *subject {
	s := &subject{x: newExtent(), run: w.run}
	if random.IntN(3) == 0 {
		s.x.Kind = core.KindTimer
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if !w.m.over {
		w.m.subjects = append(w.m.subjects, s)
	}
	return s
}

// read reads anything at any time: it must never be told of damage.
func (w *stormWork) read(random *rand.Rand) {
	for range w.calls {
		w.m.mu.Lock()
		var x core.Extent
		if n := len(w.m.subjects); n > 0 {
			x = w.m.subjects[random.IntN(n)].x
		}
		w.m.mu.Unlock()
		from := core.Seq(random.IntN(20))
		var err error
		switch random.IntN(4) {
		case 0:
			_, err = w.e.Verify(w.t.Context(), x.ID)
		case 1:
			_, err = w.e.Seek(x.ID, int64(from))
		case 2:
			if x.Kind == core.KindTimer {
				_, err = w.e.Due(x.ID, DueQuery{Until: 1000, UpTo: 1000, MaxBytes: 4 << 10}, func(DueRecord) {})
			}
		default:
			_, err = w.e.Read(x.ID, from, from+core.Seq(random.IntN(30)), random.IntN(20<<10))
		}
		switch core.CodeOf(err) {
		case "", core.CodeNotFound, core.CodeUnavailable:
		default:
			w.fail(fmt.Errorf("a reader of extent %s: %w", x.ID, err))
		}
		if s, err := w.e.State(x.ID); err == nil && s.Damaged {
			w.fail(fmt.Errorf("extent %s is quarantined: %s", x.ID, s.Why))
		}
	}
}

// append gives some batches at once, and waits unless it is told not to.
func (w *stormWork) append(random *rand.Rand, s *subject) (wait func()) {
	var answers sync.WaitGroup
	at := s.now
	var all []wire.Batch
	var may []truth
	for range 1 + random.IntN(4) {
		b := stormBatch(w.t, random, &at, s.x.Kind == core.KindTimer, random.IntN(6<<10))
		at = at.with(b)
		all, may = append(all, b), append(may, at)
	}
	if !w.m.begin(s, may...) {
		return func() {}
	}
	for _, b := range all {
		answers.Add(1)
		w.e.Append(s.x.ID, b.Bytes, 0, func(durable core.Seq, err error) {
			defer answers.Done()
			if err == nil {
				w.m.acknowledged(s, durable)
			}
		})
	}
	return answers.Wait
}
