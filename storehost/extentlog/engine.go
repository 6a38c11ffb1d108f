package extentlog

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/enginefs"
)

var _ Log = (*Engine)(nil)

// Options of an Engine.
type Options struct {
	Store core.HostID  // id of the store; a directory belongs to one store for ever
	Run   core.RunID   // of this process; zero: a new one
	FS    vfs.FS       // tests only; nil: the disk
	Log   *slog.Logger // nil: slog.Default
	// ScrubRate is how many bytes of sealed extents are verified in a second, in the background; 0: none.
	ScrubRate int
	// Tables is how many tables, and segments of the log, are open at once, but for tables that are being read; 0: 490.
	Tables int
	// Ring is how many bytes the log in front of the database may have; 0: 256 MiB. A small disk gets a smaller one.
	Ring int64
	// KeepDamage leaves a damaged database as it is: it is CodeCorrupt, and is neither corrected nor replaced.
	KeepDamage bool
}

const defaultTables = 490

// Engine is a Log on a ring of segments and, behind it, one Pebble database: a batch per value, one sync for everything
// that waits.
//
// Threads: commitLoop owns all writes and every extent's next; settleLoop waits for syncs, publishes and calls back;
// housekeep looks at the disk, and drops idle tails and cursors; keepSweeping cuts small removed extents out;
// keepMerging merges tables of rows; giveUp answers what waits when the log has failed; scrub reads sealed extents.
// Readers run on their callers' goroutines. Lock order: no lock is taken while another is held, but for an extent's
// under the index's.
type Engine struct {
	dir         string
	fs          vfs.FS
	log         *slog.Logger
	identity    core.StoreIdentity
	keepDamage  bool
	lock        *pebble.Lock
	tables      int            // open at once
	gate        *enginefs.Gate // of the database
	files       vfs.FS         // fs, through the gate
	options     *pebble.Options
	readTables  sstable.ReaderOptions
	db          *pebble.DB
	journal     *journal
	short       []*extent // of which a start found parts to be lost
	opensFrom   time.Time // no extents are opened before, since rows were lost
	queue       *queue
	rounds      chan *round
	spare       chan *round // capacity 2: rounds that are settled; commitLoop and settleLoop share two
	tails       *tails
	space       space
	hurry       hurry
	pulse       pulse
	reads       reads
	index       index
	graveyard   graveyard
	uncut       uncut
	debris      debris
	excisions   excisions
	merger      merger
	moves       moves
	repacker    repacker // of the keeper
	cursors     cursors
	broken      atomic.Pointer[core.Error]
	readOnly    atomic.Pointer[core.Error] // why nothing is written; the database changes only while it is set
	failed      chan struct{}              // closed when it is broken
	applying    atomic.Pointer[round]      // that commitLoop gives to the database; who takes it out answers it
	syncing     atomic.Pointer[round]      // the same of settleLoop
	failures    atomic.Int32               // background errors since the last good flush
	scrubbing   pass                       // as of the last run
	scrubbed    atomic.Uint64              // bytes
	quarantined atomic.Uint64              // extents
	entries     dueEntries                 // commitLoop's scratch
	stop        chan struct{}
	settled     chan struct{} // closed when all is answered
	tasks       sync.WaitGroup
	calls       sync.WaitGroup // guarded ones
	patience    time.Duration  // of Close with a log that has failed

	mu struct {
		sync.RWMutex
		extents   map[core.ExtentID]*extent
		closed    bool
		swept     core.ExtentID  // no extent up to here comes; zero: any may
		sweeping  chan struct{}  // closed when the sweep of swept is over
		suspended bool           // the database is being opened anew
		readers   sync.WaitGroup // Add only under mu and while neither closed nor suspended
	}
}

// Open opens or makes the store's directory, whose parent must exist. If the database is damaged, Open corrects flipped
// bits in it, or makes a new one of what can be read. CodeNotFound, CodeReadOnly, CodeLocked (another process has it),
// CodeNewerFormat, CodeConflict (it belongs to another store), CodeNoSpace (to make a new database), CodeCorrupt.
func Open(dir string, o Options) (*Engine, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Run.IsZero() {
		o.Run = core.RunID{ID: core.NewID(time.Now())}
	}
	e, err := open(dir, o, nil)
	for _, remedy := range []func(*Engine, error) error{(*Engine).mend, (*Engine).rescue} {
		if cause := err; isDatabaseDamage(cause) && !o.KeepDamage {
			e, err = open(dir, o, func(e *Engine) error { return remedy(e, cause) })
		}
	}
	return e, err
}

// open makes an Engine and starts it. A remedy, if there is one, comes before the database is opened.
func open(dir string, o Options, remedy func(*Engine) error) (*Engine, error) {
	e := makeEngine(dir, o)
	var first func() error
	if remedy != nil {
		first = func() error { return remedy(e) }
	}
	if err := e.acquire(first); err != nil {
		return nil, err
	}
	if err := e.load(); err != nil {
		return nil, errors.Join(err, e.abandon())
	}
	e.takePulse()
	e.tasks.Go(e.commitLoop)
	e.tasks.Go(e.settleLoop)
	e.tasks.Go(e.giveUp)
	e.tasks.Go(e.housekeep)
	e.tasks.Go(e.keepCutting)
	e.tasks.Go(e.keepSweeping)
	e.tasks.Go(e.keepMerging)
	e.tasks.Go(e.journal.keep)
	for _, x := range e.short {
		e.quarantine(x, "batches of it were in a part of the log that cannot be read", false)
	}
	if o.ScrubRate > 0 {
		e.tasks.Go(func() { e.scrub(o.ScrubRate) })
	}
	return e, nil
}

func makeEngine(dir string, o Options) *Engine {
	e := &Engine{
		dir: dir, fs: o.FS, log: o.Log, tables: cmp.Or(o.Tables, defaultTables), queue: newQueue(), rounds: make(chan *round), spare: make(chan *round, 2), tails: &tails{limit: maxTailsBytes, each: maxTailBytes}, stop: make(chan struct{}),
		gate: new(enginefs.Gate), failed: make(chan struct{}), settled: make(chan struct{}), patience: closePatience,
		identity: core.StoreIdentity{Store: o.Store, Run: o.Run}, keepDamage: o.KeepDamage,
	}
	e.files = enginefs.New(o.FS, enginefs.Options{
		Taken: e.space.taken.Load, Failing: func() bool { return e.failures.Load() > 0 }, Hurry: func() bool { return e.hurry.now() || e.journal.keeper.hurries() }, Stop: e.stop, Gate: e.gate,
		Unread: e.tableUnread,
	})
	few := e.tables < fewTables
	e.journal = newJournal(e, cmp.Or(o.Ring, defaultRing), few)
	if !few {
		e.tables -= segmentFiles
	}
	e.space.owed = e.journal.keeper.bytes.Load
	e.mu.extents = make(map[core.ExtentID]*extent)
	e.cursors.open = make(map[place]*cursor)
	e.excisions.line, e.excisions.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	e.spare <- new(round)
	e.moves.mu.leaving, e.moves.mu.shortened = make(map[core.ExtentID]struct{}), make(map[core.ExtentID]struct{})
	e.repacker.later, e.debris.many = make(map[uint64]later), make(chan struct{}, 1)
	e.merger.wake = make(chan struct{}, 1)
	return e
}

// Close implements Log.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.mu.closed {
		e.mu.Unlock()
		return nil
	}
	e.mu.closed = true
	e.mu.Unlock()
	e.queue.close()
	close(e.stop)
	joined := e.join()
	if e.broken.Load() != nil {
		return e.leave(joined)
	}
	return e.closeWorking()
}

// housekeep looks at the disk, has the keeper look at the tables, and drops idle tails and cursors, once a second.
func (e *Engine) housekeep() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	passed := e.watchSpace(0)
	for {
		select {
		case <-e.stop:
			return
		case now := <-tick.C:
			passed = e.watchSpace(passed)
			e.returnToWriting()
			e.journal.keeper.look()
			e.takePulse()
			e.tails.sweep(now)
			e.cursors.sweep(func(c *cursor) bool { return now.Sub(c.opened) > cursorAge })
		}
	}
}

// Identity implements Log.
func (e *Engine) Identity() core.StoreIdentity { return e.identity }

// extent is nil for an unknown one.
func (e *Engine) extent(id core.ExtentID) *extent {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.mu.extents[id]
}

// making answers the extent, made if unknown; only commitLoop calls it. One that is being removed is CodeUnavailable.
func (e *Engine) making(id core.ExtentID) (*extent, error) {
	x := e.extent(id)
	if x == nil {
		x = &extent{id: id}
		e.mu.Lock()
		defer e.mu.Unlock()
		if compareIDs(id, e.mu.swept) <= 0 {
			return nil, core.Errorf(core.CodeUnavailable, "extent %s may not come now; try again: %w", id, errSwept)
		}
		e.mu.extents[id] = x
		return x, nil
	}
	switch {
	case e.uncut.has(id):
		return nil, core.Errorf(core.CodeUnavailable, "extent %s was removed, and its records cannot be cut out of a damaged table here; use another store, and replace the disk of this one", id)
	case x.isRemoved():
		return nil, core.Errorf(core.CodeUnavailable, "extent %s is being removed; try again", id)
	}
	return x, nil
}

// forget lets a removed extent come back: none of its records is left. Its next removal must find nothing of this one.
func (e *Engine) forget(id core.ExtentID) {
	e.moves.removed(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.extents, id)
}

// State implements Log.
func (e *Engine) State(id core.ExtentID) (State, error) {
	if x := e.extent(id); x != nil {
		if s, ok := x.state(); ok {
			return s, nil
		}
	}
	return State{}, notFound(id)
}

// List implements Log.
func (e *Engine) List(yield func(State) bool) error {
	e.mu.RLock()
	ids := make([]core.ExtentID, 0, len(e.mu.extents))
	for id := range e.mu.extents {
		ids = append(ids, id)
	}
	e.mu.RUnlock()
	slices.SortFunc(ids, func(a, b core.ExtentID) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for _, id := range ids {
		if s, err := e.State(id); err == nil && !yield(s) {
			return nil
		}
	}
	return nil
}

// Follow implements Log. Nothing is followed of an extent the log does not know.
func (e *Engine) Follow(id core.ExtentID, wake func()) (stop func()) {
	x := e.extent(id)
	if x == nil {
		return func() {}
	}
	f := x.follow(wake)
	return func() {
		if x.unfollow(f) {
			x.tail.drop(e.tails)
		}
	}
}

func notFound(id core.ExtentID) error {
	return core.Errorf(core.CodeNotFound, "this store has no extent %s", id)
}

func errClosed() error { return core.Errorf(core.CodeUnavailable, "the store's log is closed") }

func errFull() error {
	return core.Errorf(core.CodeThrottled, "%d MiB wait for the store's disk; try again", maxPendingBytes>>20)
}
