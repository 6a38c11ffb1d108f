package cancels

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// verdict has the states of the messages in one group. An answer of an owner stays true: see core/cancel.
type verdict struct {
	group    metadata.GroupRecord
	outcomes []cancel.Outcome // "": not known yet
	trouble  error
}

// round is one question to all.
type round struct {
	c        *Canceller
	e        core.Extent
	messages []Message
	now      time.Time
	alone    bool                                                        // a share without an owner counts as one
	said     map[core.HostID]map[string]*pb.HoldTimersResponse_GroupHold // by group id
	silent   map[core.HostID]error                                       // hosts that may be alive and did not answer
}

// ask asks all output hosts: who had the share a moment ago may not know yet that it has not.
func (r *round) ask(ctx context.Context, open []*verdict) {
	req := &pb.HoldTimersRequest{Extent: r.e.ID.ID[:]}
	for _, v := range open {
		req.Groups = append(req.Groups, v.group.ID.ID[:])
	}
	for _, m := range r.messages {
		req.Messages = append(req.Messages, &pb.HoldTimersRequest_Timer{Seq: uint64(m.Seq), Due: m.Due.UnixMilli()})
	}
	hosts := r.c.Cluster.Outputs()
	answers, errs := make([]*pb.HoldTimersResponse, len(hosts)), make([]error, len(hosts))
	var calls errgroup.Group
	calls.SetLimit(hostsAtOnce)
	for i, h := range hosts {
		calls.Go(func() error {
			cctx, stop := context.WithTimeout(ctx, askTimeout)
			defer stop()
			answers[i], errs[i] = r.c.Cluster.Hold(cctx, h, req)
			return nil
		})
	}
	calls.Wait() // no function fails
	r.said, r.silent = make(map[core.HostID]map[string]*pb.HoldTimersResponse_GroupHold), make(map[core.HostID]error)
	for i, h := range hosts {
		if err := errs[i]; err != nil {
			if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, net.ErrClosed) { // the latter: in memory
				r.silent[h.ID] = err
			}
			continue
		}
		r.said[h.ID] = make(map[string]*pb.HoldTimersResponse_GroupHold)
		for _, g := range answers[i].GetGroups() {
			if len(g.GetMessages()) == len(r.messages) {
				r.said[h.ID][string(g.GetGroup())] = g
			}
		}
	}
}

// judge says what the answers mean for a group; an error: not enough is known.
func (r *round) judge(ctx context.Context, v *verdict) error {
	for _, said := range r.said { // whoever handed it out
		for i, word := range said[string(v.group.ID.ID[:])].GetMessages() {
			if word == string(dispatch.Handed) {
				v.outcomes[i] = cancel.Delivered
			}
		}
	}
	owner, err := r.c.Cluster.Owner(ctx, v.group.ID, r.e.ID)
	if err != nil {
		return err
	}
	consumed, err := r.c.Cluster.Consumed(ctx, v.group, r.e.ID)
	if err != nil {
		return err
	}
	hold, answered := r.said[owner.Host][string(v.group.ID.ID[:])]
	// One that had the share before, lost it and was given it again may not know yet: others have handed out meanwhile
	// what it still has.
	answered = answered && hold.GetCounter() == owner.Counter
	var saved *dispatch.State
	if !answered && !consumed && owner.Host == "" { // one that is not seen may be alive, and hears of nothing; if it is dead there is another one soon
		state, err := r.c.Cluster.Saved(ctx, v.group, r.e)
		if err != nil {
			return err
		}
		saved = &state
	}
	var trouble error
	for i, m := range r.messages {
		if v.outcomes[i] != "" {
			continue
		}
		switch {
		case answered:
			v.outcomes[i] = r.outcome(hold.GetMessages()[i], v.group, m)
		case consumed:
			v.outcomes[i] = r.settled(v.group, m)
		case saved != nil:
			v.outcomes[i] = r.ownerless(saved.Standing(m.Seq), v.group, m)
		}
		if v.outcomes[i] == cancel.Cancelled && len(r.silent) > 0 && r.soon(m) {
			v.outcomes[i] = ""
		}
		if v.outcomes[i] == "" {
			trouble = r.unsure(owner.Host)
		}
	}
	return trouble
}

// soon reports whether an owner that cannot be asked may hand a message out before it finds out that it is none any
// more.
func (r *round) soon(m Message) bool { return m.Due.Before(r.now.Add(zombie)) }

func (r *round) unsure(owner core.HostID) error {
	for host, err := range r.silent {
		return core.Errorf(core.CodeUnavailable, "output host %s does not answer: %w", host, err)
	}
	return core.Errorf(core.CodeUnavailable, "output host %s, which is to own the extent, does not serve it yet", owner)
}

// outcome is what an owner's word means.
func (r *round) outcome(word string, g metadata.GroupRecord, m Message) cancel.Outcome {
	switch word {
	case string(dispatch.Held):
		return cancel.Cancelled
	case string(dispatch.Settled):
		return r.settled(g, m)
	case string(cancel.Due):
		return cancel.Due
	}
	return cancel.Delivered
}

// settled is the outcome of a message that the group has settled. A message that was published before the group began,
// and is not due, was never the group's.
func (r *round) settled(g metadata.GroupRecord, m Message) cancel.Outcome {
	from := g.Created
	if g.Spec.Start.Mode == core.StartTime {
		from = g.Spec.Start.At
	}
	if g.Spec.Start.Mode != core.StartEarliest && !g.Rewound() && m.Enqueued.Before(from) && m.Due.After(r.now) {
		return cancel.Cancelled
	}
	return cancel.Delivered
}

// ownerless is the outcome in a share that nobody has: who gets it finds the message held.
func (r *round) ownerless(st dispatch.Standing, g metadata.GroupRecord, m Message) cancel.Outcome {
	switch {
	case st.Place == dispatch.PlaceDone:
		return r.settled(g, m)
	case st.Place != dispatch.PlaceUnread:
		return cancel.Delivered
	case !r.soon(m):
		return cancel.Cancelled
	case r.alone && !m.Due.After(r.now):
		return cancel.Due
	case r.alone:
		return cancel.Cancelled
	}
	return ""
}
