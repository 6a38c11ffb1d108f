package metadatatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	loadPace  = 100 * time.Millisecond // between two calls of a client: a history of minutes can still be checked
	loadCheck = 3 * time.Minute        // see checkTime
	awaitTime = 2 * time.Minute        // for calls that are answered
	overtime  = 5 * time.Second        // a call may take beyond its deadline, on a machine that does much else
)

// kind is one of the clients that each store of a Load has.
type kind int

const (
	rowCalls     kind = iota // raw compare-and-set, on two rows
	counterCalls             // metadata.Change and reads at Serial, of one row
	quorumCalls              // writes at Quorum, which the next store then reads at Quorum
	oneCalls                 // writes at One
	kinds
)

func (k kind) String() string {
	return [...]string{"compare-and-set", "counter", "puts at Quorum", "puts at One"}[k]
}

// Load are clients that call stores which share their rows, until End. Each store has one client of each kind. While
// they run a test disturbs what is below the stores.
type Load struct {
	stores  []metadata.Store
	stopped atomic.Bool
	clients sync.WaitGroup
	part    atomic.Int64 // of the history; each has rows of its own
	rows    *history
	counter *history
	lines   [][kinds]*line
	written []time.Time // at One, and answered; read after the clients have ended
}

// line is how a store answers the calls of a client.
type line struct {
	mu       sync.Mutex
	answered int
	last     time.Time     // answer
	gap      time.Duration // longest time between two answers
	gapAt    time.Time
	longest  time.Duration // call
	unknown  int           // outcomes
	failed   int           // calls that did nothing
	errors   map[string]*ends
	news     chan struct{} // closed and replaced by each answer
}

// Start lets clients call the stores. End must be called.
func Start(t *testing.T, stores []metadata.Store) *Load {
	t.Helper()
	l := &Load{
		stores: stores, rows: newHistory(), counter: newHistory(),
		lines: make([][kinds]*line, len(stores)), written: make([]time.Time, len(stores)),
	}
	createCounter(t.Context(), stores[0], 0)
	for i := range stores {
		for k := range l.lines[i] {
			l.lines[i][k] = &line{last: time.Now(), news: make(chan struct{}), errors: map[string]*ends{}}
		}
		l.clients.Go(func() { l.run(i, rowCalls, l.callRows(i)) })
		l.clients.Go(func() { l.run(i, counterCalls, l.callCounter(i)) })
		l.clients.Go(func() { l.run(i, quorumCalls, l.putAtQuorum(t, i)) })
		l.clients.Go(func() { l.run(i, oneCalls, l.putAtOne(i)) })
	}
	return l
}

// run makes the calls of a client until the load ends.
func (l *Load) run(store int, k kind, call func(ctx context.Context, n int) error) {
	pace := time.NewTicker(loadPace)
	defer pace.Stop()
	for n := 1; !l.stopped.Load(); n++ {
		began := time.Now()
		err := call(context.Background(), n)
		l.lines[store][k].note(err, time.Since(began))
		<-pace.C
	}
}

// ends are calls that ended with the same error.
type ends struct {
	times         int
	took, longest time.Duration
}

func (l *line) endedLocked(err error, took time.Duration) {
	e := l.errors[err.Error()]
	if e == nil {
		e = &ends{}
		l.errors[err.Error()] = e
	}
	e.times++
	e.took += took
	e.longest = max(e.longest, took)
}

// note counts a call that ended.
func (l *line) note(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, took)
	switch core.CodeOf(err) {
	case core.CodeUnknown:
		l.unknown++
		l.endedLocked(err, took)
	case core.CodeUnavailable:
		l.failed++
		l.endedLocked(err, took)
	default:
		l.answered++
		if gap := time.Since(l.last); gap > l.gap {
			l.gap, l.gapAt = gap, l.last
		}
		l.last = time.Now()
		close(l.news)
		l.news = make(chan struct{})
	}
}

// Now is the time since the load began, as in what End logs.
func (l *Load) Now() time.Duration { return l.since(time.Now()) }

func (l *Load) since(at time.Time) time.Duration { return at.Sub(l.rows.begin).Round(time.Millisecond) }

// Next lets the clients go on with other rows: a history that is too long cannot be checked. The stores must work.
func (l *Load) Next(t *testing.T) {
	next := l.part.Load() + 1
	createCounter(t.Context(), l.stores[0], int(next))
	l.part.Store(next)
}

func (l *Load) callRows(store int) func(context.Context, int) error {
	die := rand.New(rand.NewPCG(1, uint64(store)))
	seen := map[int]metadata.Version{}
	return func(ctx context.Context, n int) (err error) {
		row := 2*int(l.part.Load()) + die.IntN(2)
		in := rowCall{row: row, value: fmt.Sprintf("%d.%d", store, n), old: seen[row]}
		in.call = []string{"get", "get", "get", "insert", "update", "update", "update", "delete"}[die.IntN(8)]
		l.rows.record(store, in, func() (any, error) {
			var got metadata.Row
			got, err = callRow(ctx, l.stores[store], in)
			if err == nil && in.call == "get" {
				seen[row] = got.Version
			}
			return rowAnswer{core.CodeOf(err), got.Version, string(got.Value)}, err
		})
		return err
	}
}

func (l *Load) callCounter(store int) func(context.Context, int) error {
	return func(ctx context.Context, n int) (err error) {
		in := counterCall{counter: int(l.part.Load()), add: n%2 == 0}
		l.counter.record(store, in, func() (answer any, _ error) {
			answer, err = callCounter(ctx, l.stores[store], in)
			return answer, err
		})
		return err
	}
}

// putAtQuorum writes a row that nobody else writes: what was answered is seen by a read at Quorum, of any store.
func (l *Load) putAtQuorum(t *testing.T, store int) func(context.Context, int) error {
	k, answered := key(fmt.Sprint("quorum", store)), 0
	reader := l.stores[(store+1)%len(l.stores)]
	return func(ctx context.Context, n int) error {
		err := metadata.Write(ctx, l.stores[store], puts, k, tally{n}, at(n), 0, metadata.Quorum)
		if err == nil {
			answered = n
		}
		v, _, rerr := metadata.Read[tally](ctx, reader, puts, k, metadata.Quorum)
		if code := core.CodeOf(rerr); rerr == nil && v.N < answered || code == core.CodeNotFound && answered > 0 {
			t.Errorf("store %d: read %d at Quorum (%v), written was %d", store, v.N, rerr, answered)
		}
		return err
	}
}

func (l *Load) putAtOne(store int) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		err := metadata.Write(ctx, l.stores[store], puts, oneKey(store), tally{n}, at(n), 0, metadata.One)
		if err == nil {
			l.written[store] = at(n)
		}
		return err
	}
}

func oneKey(store int) metadata.Key { return key(fmt.Sprint("one", store)) }

// Await waits until each store has answered n more calls of each kind.
func (l *Load) Await(t *testing.T, n int) {
	t.Helper()
	late := time.After(awaitTime)
	type goal struct {
		store int
		kind  kind
		want  int
	}
	var goals []goal
	for i := range l.lines {
		for k := range kinds {
			answered, _ := l.lines[i][k].progress()
			goals = append(goals, goal{i, k, answered + n})
		}
	}
	for _, g := range goals {
		for {
			answered, news := l.lines[g.store][g.kind].progress()
			if answered >= g.want {
				break
			}
			select {
			case <-news:
			case <-late:
				t.Fatalf("store %d has not answered %d calls (%s) in %s", g.store, n, g.kind, awaitTime)
			}
		}
	}
}

func (l *line) progress() (answered int, news <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered, l.news
}

// End ends the clients and checks their histories. Every store is to work then.
func (l *Load) End(t *testing.T) {
	t.Helper()
	l.Stop()
	for i := range l.lines {
		for k, line := range l.lines[i] {
			t.Logf("store %d, %s: %d answered, %d unknown, %d failed; longest call %s, longest time without an answer %s, at %s", i, kind(k),
				line.answered, line.unknown, line.failed, line.longest.Round(time.Millisecond), line.gap.Round(time.Millisecond), l.since(line.gapAt))
			for text, e := range line.errors {
				t.Logf("%d times, after %s, at most %s: %s", e.times, (e.took / time.Duration(e.times)).Round(time.Millisecond), e.longest.Round(time.Millisecond), text)
			}
			// The calls of a kind are up to two: metadata.Change reads and writes, and so does putAtQuorum.
			if limit := 2*metadata.DefaultDeadline + overtime; line.longest > limit {
				t.Errorf("store %d: a call (%s) took %s, want at most %s", i, kind(k), line.longest, limit)
			}
		}
	}
	l.rows.check(t, rowModel())
	l.counter.check(t, counterModel())
	for i := range l.stores {
		l.wantOne(t, i)
	}
}

// Stop ends the clients. It may be called again.
func (l *Load) Stop() {
	l.stopped.Store(true)
	l.clients.Wait()
}

// wantOne waits until the store's last write at One that was answered is seen at Quorum by some store: a replica that
// was away learns of it later.
func (l *Load) wantOne(t *testing.T, store int) {
	t.Helper()
	late := time.After(awaitTime)
	for reader := 0; ; reader++ {
		row, err := l.stores[reader%len(l.stores)].Get(t.Context(), puts, oneKey(store), metadata.Quorum)
		if err == nil && !row.Written.Before(l.written[store]) {
			return
		}
		select {
		case <-late:
			t.Errorf("store %d: read at Quorum what was written at %s (%v), answered was %s", store, row.Written, err, l.written[store])
			return
		default:
		}
	}
}
