package controller

import (
	"bytes"
	"context"
	"math"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/session"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata/lease"
)

// duties are what this controller is responsible for (docs/adr/0062).
type duties interface {
	// Responsible reports whether this controller is for a key, such as the id of a queue. It is cheap.
	Responsible(key core.ID) bool
	// Holds reports whether this controller may be responsible for anything.
	Holds() bool
	// Handovers is how often it stopped being responsible for something.
	Handovers() uint64
	// Others are the other controllers that hold a session lease, as far as is known.
	Others() []core.HostID
	// OtherRuns are their runs.
	OtherRuns() []core.RunID
	// Unchanged is for how long nothing has changed in what it is responsible for.
	Unchanged() time.Duration
	// Acknowledge counts another controller as a member.
	Acknowledge(ctx context.Context, run core.RunID, term uint64) (counter uint64, err error)
	// Holding is what it tells others of its session lease.
	Holding() session.Holding
	// StandsBack is an error while it does nothing, because a controller of the cluster uses other metadata.
	StandsBack() error
	// Blocked reports whether another controller is the reason that this one has no session lease, or gives it back.
	Blocked() bool
	// WaitDecided waits until StandsBack knows of the controllers that were there when this one started, or ctx ends.
	WaitDecided(ctx context.Context)
	// Run keeps the duties until ctx ends.
	Run(ctx context.Context)
}

// alone has all duties: the metadata are this process's.
type alone struct{}

func (alone) Responsible(core.ID) bool    { return true }
func (alone) Holds() bool                 { return true }
func (alone) Handovers() uint64           { return 0 }
func (alone) Others() []core.HostID       { return nil }
func (alone) OtherRuns() []core.RunID     { return nil }
func (alone) Unchanged() time.Duration    { return math.MaxInt64 }
func (alone) StandsBack() error           { return nil }
func (alone) Blocked() bool               { return false }
func (alone) Holding() session.Holding    { return session.Holding{} }
func (alone) WaitDecided(context.Context) {}
func (alone) Run(context.Context)         {}

func (alone) Acknowledge(context.Context, core.RunID, uint64) (uint64, error) {
	return 0, core.Errorf(core.CodeUnsupported, "this controller has embedded metadata, and there is no other beside it")
}

// Responsible reports whether this controller is for a key, such as the id of a queue. Safe for concurrent use.
func (h *Host) Responsible(key core.ID) bool { return h.duties.Responsible(key) }

// acting calls f if this controller is responsible for a queue, and reports whether it is. Another controller is
// acknowledged only after f.
func (h *Host) acting(queue core.QueueID, f func()) bool {
	defer h.actions.begin()()
	if !h.duties.Responsible(queue.ID) {
		return false
	}
	f()
	return true
}

// telling is acting for what output hosts are told, see mayTell.
func (h *Host) telling(queue core.QueueID, f func()) (told bool) {
	h.acting(queue, func() {
		if told = h.mayTell(queue); told {
			f()
		}
	})
	return told
}

// mayTell reports whether output hosts may be told of a queue: since this controller became responsible for it, a round
// has looked at it, or the extents were read again and it has none. It waits for nothing. The answer may be another one
// a moment later: see telling.
func (h *Host) mayTell(queue core.QueueID) bool {
	return h.duties.Responsible(queue.ID) && (h.shares.looked(queue) || !h.extents.Has(queue) && h.hasReloaded())
}

// hasReloaded reports whether the extents were read again since this controller became responsible for other queues:
// before, it may not know those that another controller made. If no reading is under way it asks for one.
func (h *Host) hasReloaded() bool {
	unchanged := h.duties.Unchanged()
	if unchanged == math.MaxInt64 { // there is no other controller
		return true
	}
	done, begun := h.reloads.since(time.Now().Add(-unchanged))
	if !done && !begun {
		poke(h.reload)
	}
	return done
}

// reloads are the readings of all extents, by the clock of the session. Safe for concurrent use.
type reloads struct {
	mu struct {
		sync.Mutex
		begun time.Time // the last one; zero: it failed
		done  time.Time // when the last one began that succeeded
	}
}

// begin a reading. end is told whether it succeeded.
func (r *reloads) begin() (end func(err error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began := time.Now()
	r.mu.begun = began
	return func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.mu.begun = (time.Time{}); err == nil {
			r.mu.begun, r.mu.done = began, began
		}
	}
}

// since reports whether one that began after that has succeeded, and whether one has begun.
func (r *reloads) since(at time.Time) (done, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.done.After(at), r.mu.begun.After(at)
}

// leaveOthers forgets the queues that another controller is responsible for, or was in between. It is the rounds'.
func (h *Host) leaveOthers() {
	yielded := h.shares.hasYielded()
	for queue := range h.shares.queues {
		switch {
		case !h.duties.Responsible(queue.ID):
			h.leave(queue)
		case yielded:
			h.leaveYielded(queue)
		}
	}
}

// leaveYielded forgets a queue that this controller has yielded since the last look at it. It is the rounds'.
func (h *Host) leaveYielded(queue core.QueueID) {
	if h.shares.of(queue) != nil && !h.shares.looked(queue) {
		h.leave(queue)
	}
}

func (h *Host) leave(queue core.QueueID) {
	h.shares.Leave(queue)
	h.shares.setQueue(queue, nil)
	h.backlogs.LeaveQueue(queue)
}

// colleague is what the session of this controller needs of it.
type colleague struct{ h *Host }

// Ask implements session.Owner.
func (c colleague) Ask(ctx context.Context, other lease.Record, term uint64) (counter uint64, err error) {
	to, ok := membership.Find(c.h.deps.Members, other.Owner)
	if !ok {
		return 0, core.Errorf(core.CodeUnavailable, "controller %s is not in the membership", other.Owner)
	}
	self := c.h.deps.Members.Self()
	resp, err := c.h.deps.Peers.Controller(to.Address).AcknowledgeSession(ctx, connect.NewRequest(&pb.AcknowledgeSessionRequest{
		Controller: string(self.ID), Run: self.Run.ID[:], Term: term, Asked: other.Run.ID[:],
	}))
	if err != nil {
		return 0, convert.FromRPC(err)
	}
	return resp.Msg.Counter, convert.CheckCounter(resp.Msg.Counter)
}

// Sees implements session.Owner.
func (c colleague) Sees() uint32 { return uint32(len(c.h.deps.Members.Hosts(""))) }

// Shows implements session.Owner.
func (c colleague) Shows(other core.HostID) bool {
	_, ok := membership.Find(c.h.deps.Members, other)
	return ok
}

// Superseded implements session.Owner.
func (c colleague) Superseded() bool {
	self := c.h.deps.Members.Self()
	m, ok := membership.Find(c.h.deps.Members, self.ID)
	return ok && bytes.Compare(m.Run.ID[:], self.Run.ID[:]) > 0
}

// Peers implements session.Owner.
func (c colleague) Peers() (out []session.Peer) {
	for run, id := range c.h.otherRuns() {
		out = append(out, session.Peer{Host: id, Run: run})
	}
	return out
}

// Inquire implements session.Owner.
func (c colleague) Inquire(ctx context.Context, other session.Peer) (session.Holding, error) {
	to, ok := membership.Find(c.h.deps.Members, other.Host)
	if !ok {
		return session.Holding{}, core.Errorf(core.CodeUnavailable, "controller %s is not in the membership", other.Host)
	}
	self := c.h.deps.Members.Self()
	resp, err := c.h.deps.Peers.Controller(to.Address).AcknowledgeSession(ctx, connect.NewRequest(&pb.AcknowledgeSessionRequest{
		Controller: string(self.ID), Run: self.Run.ID[:], Asked: other.Run.ID[:], Inquires: true,
	}))
	if err != nil {
		return session.Holding{}, convert.FromRPC(err)
	}
	age := time.Duration(min(resp.Msg.AgeMs, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	return session.Holding{Term: resp.Msg.Term, Counter: resp.Msg.LeaseCounter, Age: age}, nil
}

// Newer implements session.Owner.
func (c colleague) Newer(counter uint64) { c.h.shares.Counter(counter) }

// Yield implements session.Owner.
func (c colleague) Yield() uint64 {
	defer c.h.actions.stop()()
	c.h.shares.yield(c.h.duties.Responsible)
	return c.h.shares.Counter(0)
}

// Changed implements session.Owner.
func (c colleague) Changed() {
	c.h.backlogs.TookOver()
	c.h.pokeMoved()
	c.h.letters.Wake()
	c.h.repairs.Sweep()
	poke(c.h.reload)
}

// Looked implements session.Owner.
func (c colleague) Looked(began time.Time, err error) { c.h.heardMajority(began, err) }

// newDuties are those of a controller beside others, unless the metadata are this process's.
func (h *Host) newDuties() duties {
	if h.cfg.Alone {
		return alone{}
	}
	self := h.deps.Members.Self()
	return session.New(session.Config{Meta: h.deps.Meta, Self: self.ID, Run: self.Run, Log: h.log, Ready: h.loading.done}, colleague{h})
}

func (s *service) AcknowledgeSession(ctx context.Context, req *connect.Request[pb.AcknowledgeSessionRequest]) (*connect.Response[pb.AcknowledgeSessionResponse], error) {
	out, err := s.h.acknowledge(ctx, req.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

// acknowledge the session of another controller, if it asks this run, and this one could ask it, too.
func (h *Host) acknowledge(ctx context.Context, req *pb.AcknowledgeSessionRequest) (*pb.AcknowledgeSessionResponse, error) {
	run, err := core.IDFromBytes(req.Run)
	if err != nil {
		return nil, err
	}
	if self := h.deps.Members.Self(); len(req.Asked) > 0 && !bytes.Equal(req.Asked, self.Run.ID[:]) {
		return nil, core.Errorf(core.CodeMoved, "another process of controller %s was asked; this one does not answer for it", self.ID)
	}
	if req.Inquires {
		x := h.duties.Holding()
		return &pb.AcknowledgeSessionResponse{Term: x.Term, LeaseCounter: x.Counter, AgeMs: uint64(x.Age / time.Millisecond)}, nil
	}
	other := core.HostID(req.Controller)
	if _, ok := membership.Find(h.deps.Members, other); !ok && !h.cfg.Alone {
		return nil, core.Errorf(core.CodeUnavailable, "controller %s is not in the membership here; see that gossip reaches it both ways", other)
	}
	counter, err := h.duties.Acknowledge(ctx, core.RunID{ID: run}, req.Term)
	return &pb.AcknowledgeSessionResponse{Counter: counter}, err
}
