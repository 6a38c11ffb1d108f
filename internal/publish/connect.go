package publish

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// aim is which host to connect to.
type aim struct {
	to    core.HostID // this one only; "": any
	avoid core.HostID // comes last
	greet time.Duration
}

// connect makes a session with one of the queue's input hosts and makes it the active one; the one before finishes what
// it has in flight.
func (p *Publisher) connect(ctx context.Context, a aim) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s, err := p.open(ctx, a)
	p.mu.Lock()
	p.mu.connecting = false
	if err == nil && s.over {
		err = core.Errorf(core.CodeUnavailable, "input host %s went away", s.host.ID)
	}
	unwanted := err == nil && p.mu.over
	var tell []chan error
	var idle *session
	switch {
	case unwanted:
		s.over = true
	case err == nil:
		if old := p.mu.active; old != nil && p.moveAwayLocked(old, core.ErrMoved) {
			idle = old
		}
		p.mu.active, p.mu.avoid = s, ""
		tell, p.mu.connects = p.mu.connects, nil
	case a.to != "": // it would have been the better one; the active one goes on
	case fatal(err):
		p.mu.lastErr = err
		tell, p.mu.connects = p.mu.connects, nil
		p.failWaitingLocked(err)
		p.pauseLocked(p.now(), jitter())
	default:
		p.mu.lastErr = err
		p.pauseLocked(p.now(), jitter())
		if waiting, lack := p.lackedLocked(err, p.now()); lack != nil {
			tell, err = waiting, lack
		}
	}
	p.mu.Unlock()
	if unwanted {
		s.leave()
	}
	if idle != nil {
		idle.leave()
	}
	for _, c := range tell {
		c <- err
	}
	signal(p.wake)
	signal(p.outcomes)
}

// open tries hosts one after another. A host that was lost is replaced by those known from before, without asking
// anybody; if none of them will do, or there is nothing to replace, the hosts are looked up, and if that fails the
// known ones have to do.
func (p *Publisher) open(ctx context.Context, a aim) (*session, error) {
	known := p.known()
	var err error
	if a.to != "" || a.avoid != "" && !p.ordered() {
		var rest []Host
		for _, h := range known {
			if a.to == "" && h.ID != a.avoid || h.ID == a.to {
				rest = append(rest, h)
			}
		}
		s, oerr := p.openAny(ctx, rest, a)
		if oerr == nil || fatal(oerr) || a.to != "" {
			return s, oerr
		}
	}
	hosts, err := p.cfg.Route(ctx)
	switch {
	case err == nil:
		p.learn(hosts)
	case fatal(err) || len(known) == 0:
		return nil, unrouted(err)
	default:
		hosts = known
	}
	s, oerr := p.openAny(ctx, hosts, a)
	if oerr != nil && err != nil && !lacks(oerr) {
		return nil, unrouted(err) // why nobody says where else to go
	}
	return s, oerr
}

// unrouted is why nobody says where the input hosts are. That no majority of the metadata answered the look-up says
// nothing about the queue: an AP queue needs none.
func unrouted(err error) error {
	if core.CodeOf(err) == core.CodeNoMajority {
		return core.Errorf(core.CodeUnavailable, "look up the input hosts: %w", err)
	}
	return err
}

// openAny tries the hosts in this publisher's order: each publisher has its own, so that they spread. The avoided one
// comes last.
func (p *Publisher) openAny(ctx context.Context, hosts []Host, a aim) (*session, error) {
	var err error = core.Errorf(core.CodeUnavailable, "queue %s has no input host now", p.cfg.Queue)
	lacking, may := false, false // a host says what is lacking; another one that answers may be about to take the queue
	for _, h := range p.order(hosts, a.avoid) {
		hctx, cancel := context.WithTimeout(ctx, a.greet)
		s, answered, oerr := p.openOn(hctx, h)
		cancel()
		if oerr == nil {
			return s, nil
		}
		switch lack := lacks(oerr); {
		case answered && !lack:
			err, may = oerr, true
		case !may && (lack || !lacking):
			err, lacking = oerr, lack
		}
		if fatal(err) || ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, err
}

// openOn makes a session with a host. answered: the error is the host's own.
func (p *Publisher) openOn(ctx context.Context, h Host) (_ *session, answered bool, err error) {
	mux, err := p.cfg.Dial(ctx, h)
	if err != nil {
		return nil, false, err
	}
	s := &session{p: p, host: h, mux: mux, hello: make(chan error, 2), next: 1}
	if s.stream, err = mux.Open(s); err != nil {
		return nil, false, err
	}
	hello := &pb.PublishHello{Queue: p.cfg.Queue, Client: p.cfg.Client, Internal: p.cfg.Internal, Producer: p.id[:], Session: p.nextSession()}
	if owner := p.cfg.Owner; !owner.IsZero() {
		hello.Owner = owner.ID[:]
	}
	body, err := proto.Marshal(hello)
	if err == nil {
		err = mux.Conn.Send(ctx, wire.AppendFrame(nil, wire.TypePublishHello, s.stream, body))
	}
	if err == nil {
		select {
		case err = <-s.hello:
			answered = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		return s, true, nil
	}
	s.leave()
	if _, known := err.(*core.Error); !known {
		err = core.Errorf(core.CodeUnavailable, "greet input host %s: %w", h.ID, err)
	}
	return nil, answered, err
}

func (p *Publisher) order(hosts []Host, avoid core.HostID) []Host {
	ranked := core.Rank(p.key, hosts, hostID)
	if i := slices.IndexFunc(ranked, func(h Host) bool { return h.ID == avoid }); i >= 0 {
		ranked = append(slices.Delete(slices.Clone(ranked), i, i+1), ranked[i])
	}
	return ranked
}

func hostID(h Host) core.HostID { return h.ID }

func fatal(err error) bool { return core.CodeOf(err).Class() == core.ClassFatal }

// known are the hosts of the queue as far as this publisher has heard.
func (p *Publisher) known() []Host {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.hosts
}

func (p *Publisher) learn(hosts []Host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.hosts = slices.Clone(hosts)
}

// reconfigure takes the complete list of hosts from the one of s. When another has become this publisher's first, a
// session with it is made, and then this one left; when this one is not among them, it is left at once.
func (p *Publisher) reconfigure(s *session, version uint64, hosts []Host) {
	p.mu.Lock()
	if version <= s.version || len(hosts) == 0 {
		p.mu.Unlock()
		return
	}
	s.version = version
	p.mu.hosts = hosts
	gone, idle := !slices.ContainsFunc(hosts, func(h Host) bool { return h.ID == s.host.ID }), false
	switch first := core.Rank(p.key, hosts, hostID)[0].ID; {
	case gone:
		idle = p.moveAwayLocked(s, core.ErrMoved)
	case p.mu.active == s && first != s.host.ID && !s.ordered:
		p.mu.better = first
	default:
		p.mu.better = ""
	}
	p.mu.Unlock()
	if idle {
		s.leave()
	}
	signal(p.wake)
}
