package publish

import (
	"context"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// connect makes a session with one of the queue's input hosts and makes it the active one.
func (p *Publisher) connect(ctx context.Context, avoid core.HostID) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s, err := p.open(ctx, avoid)
	p.mu.Lock()
	p.mu.connecting = false
	if err == nil && s.over {
		err = core.Errorf(core.CodeUnavailable, "input host %s went away", s.host.ID)
	}
	unwanted := err == nil && p.mu.over
	var tell []chan error
	switch {
	case unwanted:
		s.over = true
	case err == nil:
		p.mu.active, p.mu.avoid = s, ""
		tell, p.mu.connects = p.mu.connects, nil
	case fatal(err):
		p.mu.lastErr = err
		tell, p.mu.connects = p.mu.connects, nil
		p.failWaitingLocked(err)
		p.pauseLocked(p.now(), jitter())
	default:
		p.mu.lastErr = err
		p.pauseLocked(p.now(), jitter())
	}
	p.mu.Unlock()
	if unwanted {
		s.leave()
	}
	for _, c := range tell {
		c <- err
	}
	signal(p.wake)
	signal(p.outcomes)
}

// open tries the hosts one after another; the avoided one comes last.
func (p *Publisher) open(ctx context.Context, avoid core.HostID) (*session, error) {
	hosts, err := p.cfg.Route(ctx)
	if err != nil {
		return nil, err
	}
	err = core.Errorf(core.CodeUnavailable, "queue %s has no input host now", p.cfg.Queue)
	order(hosts, avoid)
	for _, h := range hosts {
		s, oerr := p.openOn(ctx, h)
		if oerr == nil {
			return s, nil
		}
		if err = oerr; fatal(err) || ctx.Err() != nil {
			return nil, err
		}
	}
	return nil, err
}

func (p *Publisher) openOn(ctx context.Context, h Host) (*session, error) {
	mux, err := p.cfg.Dial(ctx, h)
	if err != nil {
		return nil, err
	}
	s := &session{p: p, host: h, mux: mux, hello: make(chan error, 2), next: 1}
	if s.stream, err = mux.Open(s); err != nil {
		return nil, err
	}
	body, err := proto.Marshal(&pb.PublishHello{Queue: p.cfg.Queue, Client: p.cfg.Client, Internal: p.cfg.Internal})
	if err == nil {
		err = mux.Conn.Send(ctx, wire.AppendFrame(nil, wire.TypePublishHello, s.stream, body))
	}
	if err == nil {
		select {
		case err = <-s.hello:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		return s, nil
	}
	mux.Forget(s.stream)
	if _, known := err.(*core.Error); !known {
		err = core.Errorf(core.CodeUnavailable, "greet input host %s: %w", h.ID, err)
	}
	return nil, err
}

// order shuffles hosts and puts the avoided one last.
func order(hosts []Host, avoid core.HostID) {
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	if i := slices.IndexFunc(hosts, func(h Host) bool { return h.ID == avoid }); i >= 0 {
		hosts[i], hosts[len(hosts)-1] = hosts[len(hosts)-1], hosts[i]
	}
}

func fatal(err error) bool { return core.CodeOf(err).Class() == core.ClassFatal }
