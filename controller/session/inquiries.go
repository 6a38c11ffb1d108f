package session

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
)

const (
	// inquireEvery is the time between two questions to a controller that is not known to use these metadata.
	inquireEvery = 2 * time.Second
	// firstWithin bounds the first questions: the session lease waits for them, and calls are refused meanwhile.
	firstWithin = 500 * time.Millisecond
	// maxAge bounds the age that another controller names.
	maxAge = 10 * 365 * 24 * time.Hour
)

// Inquirer is the part of an Owner that meets controllers which may use other metadata.
type Inquirer interface {
	// Peers are the other controllers of the membership. It does not block.
	Peers() []Peer
	// Inquire asks a run of another controller what session lease it holds.
	Inquire(ctx context.Context, other Peer) (Holding, error)
}

// Holding is what this controller tells others of its session lease.
func (s *Session) Holding() Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	term := s.heldLocked()
	if d := s.stands.Load(); term == 0 || !s.may.Load() || d == nil || d.idle() { // else it is given back
		return Holding{}
	}
	return Holding{Term: term, Counter: s.mu.lease.Counter(), Age: s.cfg.Now().Sub(s.mu.foreign.since)}
}

// WaitDecided blocks until this controller has asked the others once which metadata they use, or ctx ends.
func (s *Session) WaitDecided(ctx context.Context) {
	select {
	case <-s.decided:
	case <-ctx.Done():
	}
}

// StandsBack is an error while this controller does nothing, because a controller of its cluster uses other metadata,
// or it does not know yet whether one does.
func (s *Session) StandsBack() error {
	d := s.stands.Load()
	switch {
	case d == nil:
		return core.Errorf(core.CodeUnavailable, "controller %s has started a moment ago, and asks the other controllers which metadata they use; ask again", s.cfg.Self)
	case d.course == waits:
		return core.Errorf(core.CodeUnavailable, "controller %s does nothing until it knows whether controller %s uses other metadata; ask again", s.cfg.Self, d.Host)
	case d.course == back:
		return core.Errorf(core.CodeUnavailable, "controller %s stands back, because controller %s uses other metadata: stop the process that uses the wrong keyspace", s.cfg.Self, d.Host)
	}
	return nil
}

// inquireAlways asks the other controllers of the membership what leases they hold, until ctx ends. Session.decided is
// closed when that was done once.
func (s *Session) inquireAlways(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() {
		first, cancel := context.WithTimeout(ctx, firstWithin)
		s.inquire(first)
		cancel()
		close(s.decided)
		tick := time.NewTicker(inquireEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.inquire(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// unlessClosed is c, and nil once that is closed.
func unlessClosed(c chan struct{}) chan struct{} {
	select {
	case <-c:
		return nil
	default:
		return c
	}
}

// said is an answer of another controller.
type said struct {
	Peer
	Holding
	since time.Time // as peer.since
	ok    bool
}

// inquire asks them once, and decides by their answers at once.
func (s *Session) inquire(ctx context.Context) {
	peers := s.owner.Peers()
	s.mu.Lock()
	due := s.mu.foreign.meet(peers, s.cfg.Now())
	s.mu.Unlock()
	claims := s.claimsOf(ctx, due)
	// The lease was there when its holder said so. A reading that begins after that shows it, if the metadata are the
	// same.
	looked := s.showsAll(claims) || s.look(ctx, false) == nil
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for _, c := range claims {
		switch {
		case !looked:
		case s.mu.members.holds(c.Run, c.Holding):
			s.mu.foreign.shares(c.Peer, c.since)
		case !s.mu.members.damaged():
			s.mu.foreign.claims(c.Peer, c.since, now)
		}
	}
	s.standsLocked(now, s.heldLocked() > 0)
}

// claimsOf asks controllers side by side, and answers those that say they hold leases.
func (s *Session) claimsOf(ctx context.Context, due []Peer) (claims []said) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answers := make([]said, len(due))
	var g errgroup.Group
	for i, p := range due {
		g.Go(func() error {
			asked := s.cfg.Now()
			h, err := s.owner.Inquire(ctx, p)
			now := s.cfg.Now()
			answers[i] = said{p, h, now.Add(-min(max(h.Age, 0), maxAge)), err == nil && now.Sub(asked) <= callTimeout}
			return nil
		})
	}
	g.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for _, a := range answers {
		if !a.ok {
			continue
		}
		if s.mu.foreign.hears(a.Peer, a.Term > 0, now); a.Term > 0 {
			claims = append(claims, a)
		}
	}
	return claims
}

func (s *Session) showsAll(claims []said) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		if !s.mu.members.holds(c.Run, c.Holding) {
			return false
		}
	}
	return true
}

// standsLocked decides what this controller does beside those with other metadata, and tells the log of them.
func (s *Session) standsLocked(now time.Time, holds bool) stands {
	f := &s.mu.foreign
	f.corrected(&s.mu.members)
	all, _ := s.mu.members.others()
	d := f.decide(now, holds, len(all) > 0)
	s.stands.Store(&d)
	switch {
	case d.Host == "" || d.course == waits:
		f.told.Succeeded()
	case d.course != f.said || f.told.Failed(now):
		f.told.Failed(now)
		s.cfg.Log.Error("two controllers of one cluster use different metadata, such as a keyspace and its copy: "+saying[d.course]+
			"; stop the process that uses the wrong keyspace", "host", s.cfg.Self, "other", d.Host, "run", d.Run)
	}
	f.said = d.course
	return d
}

// saying is what the log is told of each course.
var saying = map[course]string{
	acts:   "this one goes on, because controllers have used its metadata for longer",
	yields: "this one gives way in a moment, unless the other one leaves",
	back:   "this one stands back, and is responsible for no queue; it goes on ten minutes after the other one has left, or when it is started again",
}
