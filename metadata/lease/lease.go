// Package lease owns leases: rows of the metadata by which one process at a time does a duty.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TTL is the time for which a contender must see a lease unchanged before it takes it. All contenders use the same.
const TTL = 6 * time.Second

const (
	hold    = TTL - TTL/10 // a holder believes that it holds for so long after it began to ask
	renewal = TTL / 3      // between two renewals; also the limit of one
	look    = TTL / 6      // between two looks of a contender
	retry   = TTL / 12     // after a call without an answer
)

// Record is the row of a lease. The row is never deleted.
type Record struct {
	Owner   core.HostID `json:"owner"`
	Run     core.RunID  `json:"run,omitzero"`   // zero: the owner has released the lease
	Term    uint64      `json:"term"`           // 1 more each time that a run takes the lease, or again holds it after it lapsed
	Counter uint64      `json:"counter"`        // 1 more with each change of the row
	Sees    uint32      `json:"sees,omitempty"` // hosts of the cluster that the owner sees; 0: a version that does not say
}

// Lease is one contender for a lease, and its holder at times.
//
//	          saw the row unchanged for TTL, or released
//	waiting ──────────────────────────────────────────────▶ holding ◀─┐ renewed, every third of TTL
//	   ▲                                                       │ └────┘
//	   └── not renewed for hold, taken by another, or ended ───┘
//
// A contender whose May answers false looks at the row, but does not take the lease. A holder ends the lease then.
//
// The lease promises, of contenders whose monotonic clocks differ from true time by at most 5 % in rate, by any amount
// in the time that they show:
//  1. At no time do two contenders of one lease hold it. A holder counts from before it asked: the row was written
//     later. A contender counts from after it saw the row, and takes the lease only from the very row that it saw. The
//     holder's nine tenths of TTL have passed by then, also when the clock of one is slow and that of the other fast.
//  2. Each term is that of one run, and terms only grow. A run that did not renew in time holds the lease in another term
//     afterwards.
//  3. While Serial calls to the metadata are answered within a second, another contender holds the lease at most 10 s
//     after its holder stopped working, and 2 s after it was released.
//
// It does not promise that a holder which stands still between asking Held and acting acts within its lease. Each
// action needs the version of a row, or the term, beside it. The monotonic clock of a machine that is suspended stands
// still too.
//
// Run is for one goroutine, Held for any.
type Lease struct {
	// May reports whether this contender is to take and to keep the lease just now; nil: always. Set before Run.
	May func() bool
	// Sees is Record.Sees; nil: 0. Set before Run.
	Sees func() uint32
	// Asked gets how each question to the metadata ended; that another contender has the lease is no error. nil: nobody
	// listens. Set before Run, whose goroutine calls it.
	Asked func(err error)

	meta  metadata.Store
	name  string
	owner core.HostID
	run   core.RunID
	now   func() time.Time

	again chan struct{} // capacity 1: May may answer otherwise than before

	seen Sighting // of Run's goroutine
	last Record   // the row as it was seen; the same

	mu struct {
		sync.Mutex
		until   time.Time // held until then; zero: not held
		term    uint64
		counter uint64
	}
}

// New makes a contender for the lease of that name. now is a monotonic clock that nobody sets; nil: time.Now. A run has
// at most one Lease for a name.
func New(meta metadata.Store, name string, owner core.HostID, run core.RunID, now func() time.Time) *Lease {
	if now == nil {
		now = time.Now
	}
	return &Lease{meta: meta, name: name, owner: owner, run: run, now: now, again: make(chan struct{}, 1)}
}

// Again has May asked soon. It does not block.
func (l *Lease) Again() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// Held reports whether the lease is held at now, which is a reading of the clock of New, and the term in which it is
// held.
func (l *Lease) Held(now time.Time) (term uint64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.term, now.Before(l.mu.until)
}

// Counter is Record.Counter of the newest row of which this contender knows that it wrote it, as holder.
func (l *Lease) Counter() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.counter
}

func (l *Lease) holding() bool {
	_, held := l.Held(l.now())
	return held
}

// Run asks for the lease, and renews it while it holds it, until ctx ends. It then releases the lease. The error is why
// the release failed: others then wait for TTL.
func (l *Lease) Run(ctx context.Context) error {
	// No timer is due from its start: the race detector of Go 1.26 ends a process in which two goroutines of a bubble of
	// testing/synctest receive from such timers at once.
	timer := time.NewTimer(l.step(ctx))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(l.step(ctx))
		case <-l.again:
			timer.Reset(l.step(ctx))
		case <-ctx.Done():
			return l.release(context.WithoutCancel(ctx))
		}
	}
}

// step does what is due and returns the pause until the next.
func (l *Lease) step(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, renewal)
	defer cancel()
	asked := l.now()
	var err error
	switch {
	case l.May != nil && !l.May():
		err = l.abstain(ctx)
		if l.tell(err); err != nil {
			return retry
		}
		return look
	case l.last.Run == l.run:
		err = l.renew(ctx, asked)
	default:
		err = l.contend(ctx)
	}
	switch l.tell(err); {
	case err != nil:
		return retry
	case l.last.Run == l.run:
		return max(renewal-l.now().Sub(asked), retry)
	}
	return max(min(look, l.seen.Since().Add(TTL).Sub(l.now())), time.Millisecond)
}

func (l *Lease) tell(err error) {
	if errors.Is(err, errOther) {
		err = nil
	}
	if l.Asked != nil {
		l.Asked(err)
	}
}

var errOther = errors.New("another contender has changed the lease")

// renew asks for more time; asked is before the question. A lease that lapses while it waits for the answer is held in
// another term: whoever looked meanwhile has stopped acting by it, and begins anew.
func (l *Lease) renew(ctx context.Context, asked time.Time) error {
	_, held := l.Held(asked)
	r, err := metadata.Change(ctx, l.meta, metadata.Leases, l.key(), func(r *Record) error {
		if r.Run != l.run {
			return errOther
		}
		r.Counter++
		r.Sees = l.sees()
		if !held {
			r.Term++
		}
		return nil
	})
	switch {
	case err == nil && held && !l.holding(): // the answer came too late
		return l.renew(ctx, l.now())
	case err == nil:
		l.holds(r, asked)
	case errors.Is(err, errOther), core.CodeOf(err) == core.CodeNotFound:
		l.last = Record{}
		l.set(time.Time{}, 0)
	}
	return err
}

// contend reads the row, and takes the lease when it may.
func (l *Lease) contend(ctx context.Context) error {
	r, version, err := metadata.Read[Record](ctx, l.meta, metadata.Leases, l.key(), metadata.Quorum)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return l.create(ctx)
	case err != nil:
		return err
	}
	l.seen.See(version, l.now())
	if l.last = r; r.Run == l.run {
		return l.renew(ctx, l.now()) // the answer to a question of before was lost
	}
	if !r.Run.IsZero() && l.seen.Unchanged(l.now()) < TTL {
		return nil
	}
	asked := l.now()
	r, err = metadata.Change(ctx, l.meta, metadata.Leases, l.key(), func(now *Record) error {
		if *now != r {
			return errOther
		}
		*now = Record{Owner: l.owner, Run: l.run, Term: now.Term + 1, Counter: now.Counter + 1, Sees: l.sees()}
		return nil
	})
	if err == nil {
		l.holds(r, asked)
	}
	return err
}

// abstain ends the lease if the row is of this run, also one that was written after all, and else looks at the row
// only.
func (l *Lease) abstain(ctx context.Context) error {
	r, version, err := metadata.Read[Record](ctx, l.meta, metadata.Leases, l.key(), metadata.Quorum)
	switch {
	case core.CodeOf(err) == core.CodeNotFound && l.last.Run != l.run:
		l.last = Record{}
		return nil
	case err != nil:
		l.set(time.Time{}, 0)
		return err
	}
	l.seen.See(version, l.now())
	if r.Run == l.run || l.last.Run == l.run {
		if err := l.release(ctx); err != nil {
			return err
		}
		r.Run = core.RunID{}
	}
	l.last = r
	return nil
}

// create makes the row of a lease that nobody ever asked for.
func (l *Lease) create(ctx context.Context) error {
	asked := l.now()
	r := Record{Owner: l.owner, Run: l.run, Term: 1, Counter: 1, Sees: l.sees()}
	err := metadata.Create(ctx, l.meta, metadata.Leases, l.key(), r)
	if err == nil {
		l.holds(r, asked)
	}
	return err
}

// release gives the lease up, if it is of this run.
func (l *Lease) release(ctx context.Context) error {
	l.set(time.Time{}, 0)
	ctx, cancel := context.WithTimeout(ctx, renewal)
	defer cancel()
	_, err := metadata.Change(ctx, l.meta, metadata.Leases, l.key(), func(r *Record) error {
		if r.Run != l.run {
			return metadata.ErrNoChange
		}
		r.Run, r.Counter = core.RunID{}, r.Counter+1
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}

func (l *Lease) sees() uint32 {
	if l.Sees == nil {
		return 0
	}
	return l.Sees()
}

func (l *Lease) holds(r Record, asked time.Time) {
	l.last = r
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.until, l.mu.term, l.mu.counter = asked.Add(hold), r.Term, r.Counter
}

func (l *Lease) set(until time.Time, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.until, l.mu.term = until, term
}

func (l *Lease) key() metadata.Key { return metadata.LeaseKey(l.name) }
