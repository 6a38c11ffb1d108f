// Package session owns the session lease of a controller, and knows for which keys, such as queues, this controller is
// responsible: at most one controller is at any time (docs/adr/0062).
package session

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/lease"
)

// Owner is the controller, as far as its session needs it. All methods are safe for concurrent use, and must not call
// the Session but for Responsible.
type Owner interface {
	Inquirer
	// Ask has another controller acknowledge a session of this one: that run of it, and no other. The answer is the
	// counter of the other's newest list of shares. With term 0 it asks whether the other one would. CodeConflict says
	// that it answers, and that it does not see the lease of the session.
	Ask(ctx context.Context, other lease.Record, term uint64) (counter uint64, err error)
	// Sees is how many hosts the membership has, this one included.
	Sees() uint32
	// Shows reports whether the membership has another controller as a member. It does not block.
	Shows(other core.HostID) bool
	// Superseded reports whether the membership has a newer run of this controller's host. It does not block.
	Superseded() bool
	// Newer makes all further lists of this controller newer than the list with that counter.
	Newer(counter uint64)
	// Yield waits until all work has ended that the controller does for keys that it is not responsible for. It returns
	// the counter of its newest list.
	Yield() (counter uint64)
	// Changed is told that the controller may be responsible for other keys than before. It does not block.
	Changed()
	// Looked gets the result of each reading of the leases, and when that began, by Config.Now. A reading needs a
	// majority of the metadata. There is one a second. Looked does not block.
	Looked(began time.Time, err error)
}

// Config of a Session.
type Config struct {
	Meta metadata.Store
	Self core.HostID
	Run  core.RunID
	Now  func() time.Time // a monotonic clock that nobody sets; nil: time.Now
	Log  *slog.Logger
	// Ready is closed when the controller can be responsible for something. Until then the Session reads the leases,
	// and takes none. nil: it can at once.
	Ready <-chan struct{}
}

// Session is what this controller is responsible for. Run keeps it; the other methods are safe for concurrent use.
type Session struct {
	cfg   Config
	owner Owner
	view  atomic.Pointer[view]
	looks chan struct{} // capacity 1: one at a time reads the rows and takes them over
	asked chan struct{} // capacity 1: one question of others at a time looks
	may   atomic.Bool   // this controller is to have a session lease
	// stands is what this controller does beside those with other metadata; nil: it has not asked them yet.
	stands  atomic.Pointer[stands]
	decided chan struct{} // closed when stands is there
	mu      struct {
		sync.Mutex
		members   members
		lease     *lease.Lease // that is contended for, or held
		slot      int
		handovers uint64
		looked    time.Time      // when the last look began that succeeded
		full      bool           // it was said that all slots are taken
		blocked   time.Time      // since when another controller is the reason to have no lease; zero: none is
		waits     core.Recurring // the log is told so
		twin      time.Time      // since when the membership has a newer run of this host; zero: it has none
		twins     core.Recurring // the log is told so
		unwritten time.Time      // since when the lease cannot be written; zero: it can
		refused   core.Recurring // the log is told so
		hides     core.Recurring // the log is told of controllers that the membership lacks
		damages   core.Recurring // the log is told of rows that cannot be decoded
		foreign   foreign
	}
}

// view is what Responsible needs.
type view struct {
	lease *lease.Lease
	own   uint64 // the term of the session; 0: there is none
	term  uint64 // the same, once all members know it
	hosts []core.HostID
	runs  []core.RunID // of hosts
	since time.Time    // when the term or the hosts changed
}

const (
	lookEvery = time.Second
	// stepEvery is how often it is looked whether the lease is held, which costs nothing.
	stepEvery   = 100 * time.Millisecond
	callTimeout = 2 * time.Second // of a look, and of a question to another controller
)

// New makes a Session that is responsible for nothing yet; it does no I/O.
func New(cfg Config, owner Owner) *Session {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Session{cfg: cfg, owner: owner, looks: make(chan struct{}, 1), asked: make(chan struct{}, 1), decided: make(chan struct{})}
	s.mu.members.self, s.mu.members.host = cfg.Run, cfg.Self
	s.view.Store(&view{})
	return s
}

// Holds reports whether this controller holds the lease of its session. After a lapse of the lease it reports false
// until the next session has begun, because only then does Handovers count that another controller may have been
// responsible.
func (s *Session) Holds() bool {
	v := s.view.Load()
	if v.own == 0 {
		return false
	}
	term, held := v.lease.Held(s.cfg.Now())
	return held && term == v.own
}

// Responsible reports whether this controller is responsible for a key, such as the id of a queue.
func (s *Session) Responsible(key core.ID) bool {
	v := s.view.Load()
	if v.term == 0 {
		return false
	}
	if term, held := v.lease.Held(s.cfg.Now()); !held || term != v.term {
		return false
	}
	return s.first(key, v.hosts)
}

// first reports whether this host ranks before the others.
func (s *Session) first(key core.ID, others []core.HostID) bool {
	return len(others) == 0 || core.RanksFirst(key.String(), s.cfg.Self, others)
}

// Others are the members besides this controller, as far as they were seen. The caller does not change them.
func (s *Session) Others() []core.HostID { return s.view.Load().hosts }

// OtherRuns are the runs of Others. The caller does not change them.
func (s *Session) OtherRuns() []core.RunID { return s.view.Load().runs }

// Handovers is how often this controller stopped being responsible for some keys.
func (s *Session) Handovers() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.handovers
}

// Unchanged is for how long the keys that this controller is responsible for have not changed, while it holds its
// lease.
func (s *Session) Unchanged() time.Duration { return s.cfg.Now().Sub(s.view.Load().since) }

// Acknowledge counts a session of another run as a member. It returns when nothing of before is under way, with the
// counter of the newest list of shares that this controller made. With term 0 it acknowledges nothing, and answers nil
// if it would.
func (s *Session) Acknowledge(ctx context.Context, run core.RunID, term uint64) (counter uint64, err error) {
	if err := s.lookFor(ctx); err != nil {
		return 0, core.Errorf(core.CodeOf(err), "read the session leases: %w", err)
	}
	if term == 0 {
		return 0, nil
	}
	s.mu.Lock()
	is, ok := s.mu.members.termOf(run)
	s.mu.Unlock()
	if !ok || is != term {
		return 0, core.Errorf(core.CodeConflict, "run %s does not hold a session lease in term %d", run, term)
	}
	return s.owner.Yield(), nil
}

// lookFor is look for a question of another controller. However many come at once, two looks answer them.
func (s *Session) lookFor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	came := s.cfg.Now()
	select {
	case s.asked <- struct{}{}:
		defer func() { <-s.asked }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	done := s.mu.looked.After(came)
	s.mu.Unlock()
	if done {
		return nil
	}
	return s.look(ctx, false)
}

// Run takes a session lease, once the controller is ready, and keeps it until ctx ends. It then releases the lease.
func (s *Session) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(stepEvery)
	defer tick.Stop()
	var looked time.Time
	contending := func() {}
	notReady := s.cfg.Ready
	s.inquireAlways(ctx, &wg)
	asking := s.decided
	var failures core.Recurring
	for ctx.Err() == nil {
		now := s.cfg.Now()
		begins := s.begins(now)
		if begins || looked.IsZero() || now.Sub(looked) >= lookEvery {
			looked = now
			err := s.look(ctx, begins)
			if err != nil && ctx.Err() == nil && failures.Failed(now) {
				s.cfg.Log.Info("the session leases of controllers cannot be read; this controller tries again until they can", "err", err)
			}
			s.ask(ctx)
			asking = unlessClosed(asking)
			if err == nil {
				failures.Succeeded()
				s.decide()
			}
			if err == nil && notReady == nil && asking == nil {
				if l, ok := s.contend(); ok {
					contending()
					lctx, cancel := context.WithCancel(ctx)
					contending = cancel
					wg.Go(func() {
						if err := l.Run(lctx); err != nil {
							s.cfg.Log.Info("a session lease could not be released; it ends by itself", "err", err)
						}
					})
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-notReady:
			notReady, looked = nil, time.Time{}
		case <-asking:
			asking, looked = nil, time.Time{}
		case <-tick.C:
		}
	}
	contending()
}

// begins reports whether the lease is held in a term that is not the session's.
func (s *Session) begins(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.lease == nil {
		return false
	}
	term, held := s.mu.lease.Held(now)
	return held && term != s.mu.members.term
}

// look reads all slots, and takes over what it sees; begin: the lease has been taken, and a session begins with what is
// seen.
func (s *Session) look(ctx context.Context, begin bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case s.looks <- struct{}{}:
		defer func() { <-s.looks }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	l := s.mu.lease
	s.mu.Unlock()
	asked, term := s.cfg.Now(), uint64(0)
	if begin {
		if t, held := l.Held(asked); held {
			term = t
		}
	}
	rows, err := metadata.GetRows(ctx, s.cfg.Meta, metadata.Leases, slotKeys, metadata.Quorum)
	if !errors.Is(ctx.Err(), context.Canceled) { // else the caller has left
		s.owner.Looked(asked, err)
	}
	if err != nil {
		return err
	}
	answered := s.cfg.Now()
	if term > 0 {
		// Another controller may have acted since an earlier session. This one yields all of that, while it is responsible
		// for nothing: else decisions of before would count when it is responsible again.
		s.owner.Yield()
	}
	changed, shrunk := s.sees(rows, asked, answered, term)
	if shrunk {
		s.owner.Yield()
	}
	if changed {
		s.owner.Changed()
	}
	s.mu.Lock()
	s.mu.looked = asked
	s.mu.Unlock()
	return nil
}

// sees takes over the rows, begins a session of a term unless that is 0, and reports whether this controller may be
// responsible for other keys than before, and whether it may have stopped being responsible for some.
func (s *Session) sees(rows []metadata.Row, asked, answered time.Time, term uint64) (changed, shrunk bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := true
	s.mu.members.answers(asked)
	for _, row := range rows {
		r, err := metadata.Decode[lease.Record](metadata.Leases, row)
		if err == nil {
			s.mu.members.sees(slotOf[row.Key], r, row.Version, answered)
			continue
		}
		whole = false
		s.mu.members.seesDamage(slotOf[row.Key], row.Version, answered)
		if s.mu.damages.Failed(answered) {
			s.cfg.Log.Error("a session lease cannot be decoded: its row in the metadata is damaged; no controller uses it, and all others can be taken", "row", row.Key.Row, "err", err)
		}
	}
	if whole {
		s.mu.damages.Succeeded()
	}
	if term > 0 {
		changed = s.mu.members.term > 0 // it lapsed
		now := s.cfg.Now()
		s.mu.members.begin(term, now) // others are waited for from now on, and not while this one yielded
		if s.mu.foreign.since.IsZero() {
			s.mu.foreign.since = now
		}
	}
	c, shrunk := s.showLocked()
	return changed || c, changed || shrunk
}

// showLocked makes the view anew. It reports whether it is another one, and whether this controller may have stopped
// being responsible for something.
func (s *Session) showLocked() (changed, shrunk bool) {
	old := s.view.Load()
	all, ignorant := s.mu.members.others()
	v := &view{lease: s.mu.lease, own: s.mu.members.term}
	if len(ignorant) == 0 {
		v.term = s.mu.members.term
	}
	known := make(map[core.HostID]bool)
	for _, id := range old.hosts {
		known[id] = true
	}
	for _, r := range all {
		v.hosts, v.runs = append(v.hosts, r.Owner), append(v.runs, r.Run)
		shrunk = shrunk || !known[r.Owner]
	}
	changed = shrunk || v.term != old.term || len(v.hosts) != len(old.hosts)
	if v.since = old.since; changed {
		v.since = s.cfg.Now()
	}
	shrunk = old.term > 0 && (shrunk || v.term != old.term)
	if shrunk {
		s.mu.handovers++
	}
	s.view.Store(v)
	return changed, shrunk
}

// contend chooses a slot, unless this run contends for one that no other run has, and whose row can be decoded.
func (s *Session) contend() (l *lease.Lease, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu.members
	if s.mu.lease != nil {
		if x := &m.slots[s.mu.slot]; !x.damaged && (!x.lives() || x.Run == s.cfg.Run || x.Owner == s.cfg.Self) {
			return nil, false
		}
	}
	h := fnv.New32a()
	h.Write([]byte(s.cfg.Self))
	slot, full := m.choose(s.cfg.Self, int(h.Sum32()%Slots))
	if full && !s.mu.full {
		s.cfg.Log.Warn("as many controllers as can be are there; this one waits until another one stops", "most", Slots)
	}
	s.mu.full = full
	if s.mu.lease != nil && slot == s.mu.slot {
		return nil, false
	}
	s.mu.slot, s.mu.lease = slot, lease.New(s.cfg.Meta, slotName(slot), s.cfg.Self, s.cfg.Run, s.cfg.Now)
	s.mu.lease.May, s.mu.lease.Sees, s.mu.lease.Asked = s.may.Load, s.owner.Sees, s.asks
	s.mu.unwritten = time.Time{}
	m.end()
	s.showLocked()
	return s.mu.lease, true
}
