package migration

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// maxSilence is how long the target may answer nothing before a copy ends.
	maxSilence = 2 * time.Minute
	// sayAfter is how long it answers nothing before that is told, and between two such tellings.
	sayAfter = 10 * time.Second

	// Bounds of the pause between two tries of one call.
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second

	// How many writes are under way together. A failed one halves that, but not twice within halvePause: one slow moment
	// of the target ends many writes. After growAfter answered writes there is one more, and after growSlowly where writes
	// failed the last time.
	firstAtOnce = 8
	mostAtOnce  = 64
	growAfter   = 200
	growSlowly  = 2000
	halvePause  = 2 * time.Second
)

// link does the calls of a copy, and tries those again that the target did not answer. Safe for concurrent use.
type link struct {
	say  func(Progress)
	told sync.Mutex // held while say is called

	mu struct {
		sync.Mutex
		progress Progress
		answered time.Time // when a call was answered last
		told     time.Time // when the silence was
		limit    int       // of writes at once
		failed   int       // the limit at which one failed last; 0: none, or there were answers at that limit since
		busy     int       // writes under way
		grown    int       // writes that were answered since the limit changed
		halved   time.Time
	}
	free sync.Cond // a write may begin
}

func newLink(say func(Progress)) *link {
	l := &link{say: say}
	l.free.L = &l.mu
	l.mu.limit, l.mu.answered = firstAtOnce, time.Now()
	return l
}

// again reports whether a call that ended with err may succeed if it is tried again.
func again(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeUnknown, core.CodeDeadline, core.CodeThrottled:
		return true
	}
	return false
}

// ask does a call until it is answered, with growing pauses, until ctx ends or the target has answered nothing for
// maxSilence: CodeUnavailable. A call may be done twice, and has the deadline of a call to a metadata.Store.
func (l *link) ask(ctx context.Context, call func(context.Context) error) error {
	return l.until(ctx, func() error { return limited(ctx, call) })
}

// write is ask for one of many writes: it waits until it may begin, each time.
func (l *link) write(ctx context.Context, call func(context.Context) error) error {
	return l.until(ctx, func() error {
		if err := l.enter(ctx); err != nil {
			return err
		}
		err := limited(ctx, call)
		l.leave(!again(err))
		return err
	})
}

func (l *link) until(ctx context.Context, try func() error) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := try()
		switch {
		case ctx.Err() != nil && err != nil:
			return err
		case !again(err):
			l.heard()
			return err
		}
		if err := l.missed(err); err != nil {
			return err
		}
		if !wait(ctx, pause) {
			return core.Errorf(core.CodeOf(err), "%v, and then it was not tried again: %w", err, context.Cause(ctx))
		}
	}
}

func limited(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	return call(ctx)
}

// enter waits for a place among the writes at once. leave must be called unless it fails.
func (l *link) enter(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.free.Broadcast()
	})()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.busy >= l.mu.limit {
		if ctx.Err() != nil {
			return core.Errorf(core.CodeUnavailable, "rows were not written: %w", context.Cause(ctx))
		}
		l.free.Wait()
	}
	l.mu.busy++
	return nil
}

// leave ends a write, and decides how many there may be from now on.
func (l *link) leave(answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.busy--
	now, enough := time.Now(), growAfter
	if l.mu.limit+1 == l.mu.failed {
		enough = growSlowly
	}
	switch l.mu.grown++; {
	case !answered && now.Sub(l.mu.halved) >= halvePause:
		l.mu.failed, l.mu.limit, l.mu.grown, l.mu.halved = l.mu.limit, max(1, l.mu.limit/2), 0, now
	case !answered:
		l.mu.grown = 0
	case l.mu.grown >= enough && l.mu.limit == l.mu.failed:
		l.mu.failed = 0
	case l.mu.grown >= enough && l.mu.limit < mostAtOnce:
		l.mu.limit, l.mu.grown = l.mu.limit+1, 0
		l.free.Signal()
	}
	if l.mu.busy < l.mu.limit {
		l.free.Signal()
	}
}

// heard notes that the target answers.
func (l *link) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.answered = time.Now()
	l.mu.progress.Silent, l.mu.progress.Err = 0, nil
}

// missed notes that a call was not answered. The error says that this went on for too long.
func (l *link) missed(err error) error {
	now := time.Now()
	l.mu.Lock()
	silent := now.Sub(l.mu.answered)
	l.mu.progress.Again++
	tell := silent >= sayAfter && now.Sub(l.mu.told) >= sayAfter
	if tell {
		l.mu.told = now
		l.mu.progress.Silent, l.mu.progress.Err = silent, err
	}
	l.mu.Unlock()
	if silent >= maxSilence {
		return core.Errorf(core.CodeUnavailable, "no call to the new metadata was answered for %s, so the copy ends: %w; "+
			"see what is wrong with the nodes (`columba schema show` with the same URL), and run the same command again: it goes on where it was",
			silent.Truncate(time.Second), err)
	}
	if tell {
		l.tell()
	}
	return nil
}

// begin starts to count rows, of so many.
func (l *link) begin(total int, check bool) {
	l.mu.Lock()
	l.mu.progress.Rows, l.mu.progress.Total, l.mu.progress.Check = 0, total, check
	l.mu.Unlock()
	l.tell()
}

// at tells how many rows are done.
func (l *link) at(rows int) {
	l.mu.Lock()
	l.mu.progress.Rows = rows
	l.mu.Unlock()
	l.tell()
}

func (l *link) tell() {
	l.told.Lock()
	defer l.told.Unlock()
	l.mu.Lock()
	p := l.mu.progress
	l.mu.Unlock()
	l.say(p)
}

// change changes the record. An error of f is returned as it is.
func (l *link) change(ctx context.Context, s metadata.Store, f func(*record) error) error {
	return l.ask(ctx, func(ctx context.Context) error { return change(ctx, s, f) })
}

// stored calls each for every live row of the target, until it fails.
func (l *link) stored(ctx context.Context, to Target, each func(metadata.Stored) error) error {
	for place := []byte(nil); ; {
		var rows []metadata.Stored
		var next []byte
		err := l.ask(ctx, func(ctx context.Context) (err error) {
			rows, next, err = to.Page(ctx, place)
			return err
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := each(r); err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		place = next
	}
}

// wait sleeps about that long; false: ctx has ended.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
