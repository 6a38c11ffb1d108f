package session

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata/lease"
)

const (
	// stirs is for how long a row may stay unchanged while its run renews it.
	stirs = 4 * time.Second
	// patience is how long a holder waits for another controller that does not answer, before it gives its lease back. Of
	// two that wait for each other the first one by id waits twice as long.
	patience = 10 * time.Second
	// persists is how long a holder waits for one that sees far fewer hosts: that one has to notice, and to give back its
	// own.
	persists = 30 * time.Second
	// minRest and maxRest bound how long this controller takes no lease beside one for which it gave its own back.
	minRest, maxRest = 30 * time.Second, 10 * time.Minute
	// hiddenFor is from when the log is told of a lease whose holder the membership lacks. That of one that died ends
	// before.
	hiddenFor = 15 * time.Second
)

// reach is whether the run in a slot answers this one.
type reach struct {
	answered bool      // the last question
	silent   time.Time // since when questions are in vain; zero: they are not
	why      error     // they are
	hidden   time.Time // since when the membership lacks it; zero: it does not
	rests    time.Time // until when this controller takes no lease beside that one
	pause    time.Duration
}

// shown notes whether the membership has it.
func (r *reach) shown(is bool, now time.Time) {
	switch {
	case is:
		r.hidden = time.Time{}
	case r.hidden.IsZero():
		r.hidden = now
	}
}

// heard notes how a question ended.
func (r *reach) heard(err error, now time.Time) {
	switch r.answered, r.why = err == nil, err; {
	case err == nil:
		r.silent = time.Time{}
	case r.silent.IsZero():
		r.silent = now
	}
}

// rest begins a pause, which is longer each time.
func (r *reach) rest(now time.Time) {
	r.pause = min(max(2*r.pause, minRest), maxRest)
	r.rests = now.Add(r.pause)
}

// outweighs reports whether a controller that sees a hosts is to be followed rather than one that sees b, if the two do
// not reach each other: the other one is cut off from the cluster, or belongs to no cluster.
func outweighs(a, b uint32) bool { return b > 0 && a/2 >= b }

// obstacle is another controller because of which this one gives its session lease back, or takes none; nil: there is
// none. sees is how many hosts this one sees.
func (m *members) obstacle(now time.Time, holds bool, sees uint32) *slot {
	for i := range m.slots {
		s := &m.slots[i]
		if s.Run == m.self || !s.lives() {
			continue
		}
		if holds && m.endures(s, now, sees) || !holds && m.admits(s, now, sees) {
			continue
		}
		return s
	}
	return nil
}

// endures reports whether this holder keeps its lease beside another member.
func (m *members) endures(s *slot, now time.Time, sees uint32) bool {
	if outweighs(s.Sees, sees) && !s.silent.IsZero() && now.Sub(s.silent) >= patience {
		return false
	}
	if _, knows := m.know[s.Run]; knows {
		return true
	}
	limit := patience
	switch {
	case outweighs(sees, s.Sees):
		limit = persists
	case m.host < s.Owner:
		limit = 2 * patience
	}
	return now.Sub(m.began) < limit
}

// admits reports whether this controller may take a lease beside another member.
func (m *members) admits(s *slot, now time.Time, sees uint32) bool {
	switch {
	case s.asked.Sub(s.sighting.Since()) >= stirs: // its run has ended
		return true
	case now.Before(s.rests):
		return false
	}
	return s.answered || outweighs(sees, s.Sees)
}

// question is one to another controller: to acknowledge a session, or whether it would; then the term is 0.
type question struct {
	slot int
	lease.Record
	term uint64
}

// questions that are due, of a holder in that term; 0: it holds no lease.
func (m *members) questions(term uint64, sees uint32) (out []question) {
	for i := range m.slots {
		s := &m.slots[i]
		if s.Run == m.self || !s.lives() {
			continue
		}
		_, knows := m.know[s.Run]
		switch {
		case term > 0 && !knows:
			out = append(out, question{i, s.Record, term})
		case term > 0 && outweighs(s.Sees, sees), term == 0 && !s.answered:
			out = append(out, question{i, s.Record, 0})
		}
	}
	return out
}

// heldLocked is the term of the session whose lease is held; 0: none is.
func (s *Session) heldLocked() uint64 {
	if s.mu.lease == nil {
		return 0
	}
	if term, held := s.mu.lease.Held(s.cfg.Now()); held && term == s.mu.members.term {
		return term
	}
	return 0
}

// ask the members that have to acknowledge this session, or whether they would, side by side.
func (s *Session) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sees := s.owner.Sees()
	s.mu.Lock()
	due := s.mu.members.questions(s.heldLocked(), sees)
	s.mu.Unlock()
	var g errgroup.Group
	for _, q := range due {
		g.Go(func() error {
			s.askOne(ctx, q)
			return nil
		})
	}
	g.Wait()
}

func (s *Session) askOne(ctx context.Context, q question) {
	counter, err := s.owner.Ask(ctx, q.Record, q.term)
	if err == nil && q.term > 0 {
		s.owner.Newer(counter)
	}
	if err != nil {
		s.cfg.Log.Debug("another controller does not acknowledge this one yet", "controller", q.Owner, "err", err)
	}
	s.mu.Lock()
	m := &s.mu.members
	if x := &m.slots[q.slot]; x.Run == q.Run {
		var silence error
		if core.CodeOf(err) != core.CodeConflict { // it answers, and does not see the lease
			silence = err
		}
		x.heard(silence, s.cfg.Now())
		if err == nil && q.term > 0 {
			x.pause = 0
		}
	}
	known := err == nil && q.term > 0
	if known {
		m.knows(q.Run, q.term)
		s.showLocked()
	}
	s.mu.Unlock()
	if known {
		s.owner.Changed()
	}
}

// decide whether this controller is to have a session lease.
func (s *Session) decide() {
	sees := s.owner.Sees()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, m := s.cfg.Now(), &s.mu.members
	holds := s.heldLocked() > 0
	s.tellHiddenLocked(now, holds)
	d := s.standsLocked(now, holds)
	if holds && !s.may.Load() { // it is being given back
		return
	}
	o, superseded := m.obstacle(now, holds, sees), s.supersededLocked(now)
	may := o == nil && !d.idle() && !superseded
	if s.may.Swap(may) != may && s.mu.lease != nil {
		s.mu.lease.Again()
	}
	switch {
	case o == nil:
		s.mu.blocked = time.Time{}
		s.mu.waits.Succeeded()
	case holds:
		o.rest(now)
		s.mu.blocked = now
		s.cfg.Log.Warn("this controller gives its session lease back: another controller holds one and does not acknowledge it, so that their queues would have no controller; "+
			"this one goes on when the other one answers or ends; see that both are in the output of columba list hosts, or stop the one that does not belong to this cluster",
			"controller", o.Owner, "run", o.Run, "its_hosts", o.Sees, "hosts", sees, "err", o.why)
	case s.mu.blocked.IsZero():
		s.mu.blocked = now
	case now.Sub(s.mu.blocked) >= patience && s.mu.waits.Failed(now):
		s.cfg.Log.Warn("this controller is responsible for no queue: another controller holds a session lease and does not acknowledge this one; "+
			"this one goes on when the other one answers or ends; see that both are in the output of columba list hosts, or stop the one that does not belong to this cluster",
			"controller", o.Owner, "run", o.Run, "its_hosts", o.Sees, "hosts", sees, "err", o.why)
	}
}

// Blocked reports whether another controller is the reason that this one has no session lease, or gives it back: that
// one looks after the extents meanwhile, and this one may not know the hosts of the cluster.
func (s *Session) Blocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.blocked.IsZero() || s.isTwinLocked(s.cfg.Now())
}

// supersededLocked reports whether this controller leaves its lease to a newer run of its host: others tell that one
// what they tell the host. A process that crashed and was started again may look like one beside it for a moment.
func (s *Session) supersededLocked(now time.Time) bool {
	if !s.owner.Superseded() {
		s.mu.twin = time.Time{}
		s.mu.twins.Succeeded()
		return false
	}
	if s.mu.twin.IsZero() {
		s.mu.twin = now
	}
	if !s.isTwinLocked(now) {
		return false
	}
	if s.mu.twins.Failed(now) {
		s.cfg.Log.Error("two live processes have the id of this host, and this one is the older: it leaves its session lease to the other one; was a data directory copied? stop one of the two")
	}
	return true
}

func (s *Session) isTwinLocked(now time.Time) bool {
	return !s.mu.twin.IsZero() && now.Sub(s.mu.twin) >= patience
}

// tellHiddenLocked tells the log of a holder about controllers that hold session leases, too, and that the membership
// lacks.
func (s *Session) tellHiddenLocked(now time.Time, holds bool) {
	m, any := &s.mu.members, false
	for i := range m.slots {
		x := &m.slots[i]
		if x.Run == m.self || !x.lives() {
			continue
		}
		x.shown(s.owner.Shows(x.Owner), now)
		if !holds || x.hidden.IsZero() || now.Sub(x.hidden) < hiddenFor {
			continue
		}
		any = true
		if s.mu.hides.Failed(now) {
			s.cfg.Log.Warn("a controller holds a session lease in the metadata, and the membership lacks it: the queues that it is responsible for may get nothing; "+
				"if it belongs to this cluster, see that gossip reaches it both ways, else stop it", "controller", x.Owner, "run", x.Run, "its_hosts", x.Sees)
		}
	}
	if !any {
		s.mu.hides.Succeeded()
	}
}

// asks notes how a question for the lease ended. The log is told that this controller has no lease because it cannot be
// written, though it is read: full disks, or a user who may only read. Another warning tells of rows that cannot be
// read either.
func (s *Session) asks(err error) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || s.heldLocked() > 0:
		s.mu.unwritten = time.Time{}
		s.mu.refused.Succeeded()
	case s.mu.unwritten.IsZero():
		s.mu.unwritten = now
	case now.Sub(s.mu.unwritten) >= patience && now.Sub(s.mu.looked) < patience && s.mu.refused.Failed(now):
		s.cfg.Log.Warn("the session lease of this controller cannot be written, though the metadata can be read: until it is, the controller does nothing for any queue; "+
			"see that the disks of the Cassandra nodes have room, that the nodes are not overloaded, and that the user may change rows", "err", err)
	}
}
