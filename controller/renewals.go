package controller

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
)

// renewals are when runs of output hosts were heard last. One that is cut off, or stands still, and was heard a moment
// ago may be handing out: its shares are kept for it until it does no more. Safe for concurrent use.
type renewals struct {
	mu struct {
		sync.Mutex
		heard   map[core.RunID]time.Time
		waiting map[core.RunID]struct{}  // their shares are to move as soon as may be
		ended   map[core.RunID]time.Time // when it was found out that they hand out no more; for a minute
	}
}

func newRenewals() *renewals {
	x := &renewals{}
	x.mu.heard = make(map[core.RunID]time.Time)
	x.mu.waiting = make(map[core.RunID]struct{})
	x.mu.ended = make(map[core.RunID]time.Time)
	return x
}

// note that a run was heard; what was heard of others long ago is forgotten.
func (x *renewals) note(run core.RunID, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.heard[run] = now
	if len(x.mu.heard)%64 == 0 {
		for r, at := range x.mu.heard {
			if now.Sub(at) > dispatch.OwnerGone {
				delete(x.mu.heard, r)
			}
		}
	}
}

// left is for how long a run may still be handing out, if another controller may have heard it last at a time.
func (x *renewals) left(run core.RunID, others, now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := others
	if heard, ok := x.mu.heard[run]; ok && heard.After(at) {
		at = heard
	}
	if ended, ok := x.mu.ended[run]; ok && !ended.Before(at) {
		return 0
	}
	return min(max(dispatch.OwnerGone-now.Sub(at), 0), dispatch.OwnerGone) // the clock may have gone back
}

// wait reports whether nobody waits for the run yet; the caller does from now on.
func (x *renewals) wait(run core.RunID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, waiting := x.mu.waiting[run]
	x.mu.waiting[run] = struct{}{}
	return !waiting
}

// over ends a wait: the run hands out no more. others is as for left, and may be later than now when the clock went
// back.
func (x *renewals) over(run core.RunID, others, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.mu.heard, run)
	delete(x.mu.waiting, run)
	x.mu.ended[run] = now
	if others.After(now) {
		x.mu.ended[run] = others
	}
	maps.DeleteFunc(x.mu.ended, func(_ core.RunID, at time.Time) bool { return now.Sub(at) > time.Minute })
}

// stays reports whether the owner of a share keeps it for now, be it alive or not: it is not known yet which, or it may
// still be handing out. The latter asks for a round when that is over. It is the rounds'.
func (h *Host) stays(old catalog.Decision, now time.Time) bool {
	if old.Counter == 0 {
		return false
	}
	switch h.hosts.fate(old.Owner.Host, old.Owner.Run, now) {
	case unsure:
		return true
	case alive:
		return false
	}
	last, known := h.hosts.find(old.Owner.Host)
	var taken time.Time // the controller before may have heard it until then
	if q := h.shares.queues[old.Queue]; q != nil && !h.cfg.Alone {
		taken = q.taken
	}
	left := h.shares.renewals.left(old.Owner.Run, taken, now)
	if left == 0 || !known || last.Run != old.Owner.Run { // another run of the host: this one has ended
		return false
	}
	if h.shares.renewals.wait(old.Owner.Run) && !h.tasks.Go(func(ctx context.Context) { h.waitFor(ctx, last, taken, left) }) {
		h.shares.renewals.over(old.Owner.Run, taken, now)
	}
	return true
}

// waitFor waits until a run that is gone hands out no more: at once if its machine says that nobody listens there.
// others is when another controller may have heard it last.
func (h *Host) waitFor(ctx context.Context, m membership.Host, others time.Time, left time.Duration) {
	dctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	conn, err := h.deps.Peers.Dial(dctx, "tcp", m.Address)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, net.ErrClosed) { // the latter: in memory
		<-dctx.Done()
	}
	h.shares.renewals.over(m.Run, others, h.deps.now())
	h.pokeMoved()
}

// find a host as membership last showed it.
func (x *hosts) find(id core.HostID) (membership.Host, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.mu.byID[id]
	if s == nil {
		return membership.Host{}, false
	}
	return s.Host, true
}

// RenewShares promises that this controller moves no share of the host for OwnerGone. The call is a sign of life of the
// host. It tells, and is told, of breakers that are open on other hosts.
func (s *service) RenewShares(_ context.Context, req *connect.Request[pb.RenewSharesRequest]) (*connect.Response[pb.RenewSharesResponse], error) {
	host, err := core.ParseHostID(req.Msg.Owner)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	run, err := core.IDFromBytes(req.Msg.Run)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	open, err := convert.OpeningsFromProto(req.Msg.Openings)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	now, self, of := s.h.deps.now(), s.h.deps.Members.Self(), catalog.HostRun{Host: host, Run: core.RunID{ID: run}}
	s.h.hosts.heard(of, now)
	s.h.shares.renewals.note(of.Run, now)
	counter, others := s.h.openings.exchange(of, open, req.Msg.OpeningsCounter, now)
	held := s.h.duties.Holds() // before the hand-overs: these count by then what was before the session that is held
	return connect.NewResponse(&pb.RenewSharesResponse{
		Handovers: s.h.duties.Handovers(), Held: held, Run: self.Run.ID[:], Minority: s.h.minority.mayKeep(of.Run),
		OpeningsCounter: counter, Openings: convert.OpeningsToProto(others),
	}), nil
}
