// Package cancels owns how messages that wait for their time are taken back, for all groups at once: what each group's owner says is gathered while
// nobody hands them out, and decided in one row.
package cancels

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/cancel"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	// tryFor is how long one call tries: shares whose owner died have another one by then.
	tryFor = 7 * time.Second
	// orphan is after how long a share without an owner counts as one that will not have one soon.
	orphan = dispatch.OwnerGone + time.Second
	// zombie is for how long an owner that nobody can ask may hand out what becomes due: its lease, and that clocks differ.
	zombie = 2 * dispatch.OwnerGone
	// askTimeout bounds one question to an output host.
	askTimeout         = 1500 * time.Millisecond
	followTimeout      = time.Second
	minPause, maxPause = 20 * time.Millisecond, 320 * time.Millisecond
	hostsAtOnce        = 32
)

// Message is one of a timer extent.
type Message struct {
	Seq      core.Seq
	Due      time.Time
	Enqueued time.Time
}

// Cluster is what a cancellation asks of others. Its reads see everything that was written before they began.
type Cluster interface {
	// Readers are the groups that read an extent.
	Readers(ctx context.Context, e core.Extent) ([]metadata.GroupRecord, error)
	// Owner is who was given a group's share of an extent last; "": nobody yet.
	Owner(ctx context.Context, group core.GroupID, extent core.ExtentID) (core.HostID, error)
	// Consumed reports whether a group has consumed an extent to its end.
	Consumed(ctx context.Context, group metadata.GroupRecord, extent core.ExtentID) (bool, error)
	// Saved is what the owners of a share have saved.
	Saved(ctx context.Context, group metadata.GroupRecord, extent core.ExtentID) (dispatch.State, error)
	// Outputs are the output hosts that are there.
	Outputs() []membership.Host
	Hold(ctx context.Context, h membership.Host, req *pb.HoldTimersRequest) (*pb.HoldTimersResponse, error)
	Follow(ctx context.Context, h membership.Host, req *pb.FollowCancelsRequest) error
}

// Canceller takes messages back. It keeps nothing.
type Canceller struct {
	Meta    metadata.Store
	Cluster Cluster
	Now     func() time.Time
}

// Result is what came of each message of a call, for one group.
type Result struct {
	Group    string
	Outcomes []cancel.Outcome
}

// Cancel takes messages of an extent back for all of its groups, or for none: when it is not known of every group whether it had them, CodeUnavailable.
// CodeUnknown: they may be cancelled. It may be repeated, and then says the same.
func (c *Canceller) Cancel(ctx context.Context, e core.Extent, messages []Message) ([]Result, error) {
	ctx, stop := context.WithTimeout(ctx, tryFor)
	defer stop()
	if err := c.open(ctx, e.ID); err != nil {
		return nil, err
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		results, err := c.try(ctx, e, messages)
		if core.CodeOf(err) != core.CodeConflict {
			return results, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, core.Errorf(core.CodeUnavailable, "nothing was cancelled by this call: %w", err)
		}
	}
}

// open makes the book of an extent.
func (c *Canceller) open(ctx context.Context, extent core.ExtentID) error {
	key := metadata.CancelKey(extent)
	_, err := c.Meta.Get(ctx, metadata.Cancels, key, metadata.One)
	if core.CodeOf(err) != core.CodeNotFound {
		return err
	}
	if err = metadata.Create(ctx, c.Meta, metadata.Cancels, key, cancel.Book{}); core.CodeOf(err) == core.CodeExists {
		return nil
	}
	return err
}

// try is one attempt: CodeConflict when another one was at it.
func (c *Canceller) try(ctx context.Context, e core.Extent, messages []Message) ([]Result, error) {
	key, attempt := metadata.CancelKey(e.ID), core.NewID(c.Now())
	var undecided []core.Seq
	book, err := metadata.Change(ctx, c.Meta, metadata.Cancels, key, func(b *cancel.Book) (err error) {
		undecided, err = b.Begin(attempt, seqsOf(messages), c.Now())
		return err
	})
	if err != nil {
		return nil, err
	}
	groups, err := c.Cluster.Readers(ctx, e)
	if err == nil && len(undecided) == 0 {
		return results(&book, groups, messages, nil)
	}
	var left []Message // each once
	for _, seq := range undecided {
		left = append(left, messages[slices.IndexFunc(messages, func(m Message) bool { return m.Seq == seq })])
	}
	var kept []cancel.Kept
	if err == nil {
		kept, err = c.gather(ctx, e, left, groups)
	}
	if err == nil {
		calls, exceptions := called(undecided, kept, len(groups))
		book, err = metadata.Change(ctx, c.Meta, metadata.Cancels, key, func(b *cancel.Book) error {
			if err := b.Decide(attempt, calls, exceptions); err != nil {
				return err
			}
			b.Drop(attempt)
			return nil
		})
		if core.CodeOf(err) == core.CodeUnknown {
			return nil, err // owners find out
		}
	}
	fctx, stop := context.WithTimeout(context.WithoutCancel(ctx), followTimeout)
	defer stop()
	if err != nil {
		c.drop(fctx, key, attempt)
		c.follow(fctx, e.ID)
		return nil, err
	}
	c.follow(fctx, e.ID)
	return results(&book, groups, messages, kept)
}

// called are the messages to be called off, and who keeps them: one that all groups keep stays as it is, also for groups that come later.
func called(seqs []core.Seq, kept []cancel.Kept, groups int) (calls []core.Seq, exceptions []cancel.Kept) {
	keeps := make(map[core.Seq]int)
	for _, k := range kept {
		keeps[k.Seq]++
	}
	for _, seq := range seqs {
		if groups == 0 || keeps[seq] < groups {
			calls = append(calls, seq)
		}
	}
	for _, k := range kept {
		if slices.Contains(calls, k.Seq) {
			exceptions = append(exceptions, k)
		}
	}
	return calls, exceptions
}

func seqsOf(messages []Message) (seqs []core.Seq) {
	for _, m := range messages {
		seqs = append(seqs, m.Seq)
	}
	return seqs
}

// drop ends an attempt that decides nothing. If it fails the owners do that, later.
func (c *Canceller) drop(ctx context.Context, key metadata.Key, attempt core.ID) {
	metadata.Change(ctx, c.Meta, metadata.Cancels, key, func(b *cancel.Book) error {
		if !b.Drop(attempt) {
			return metadata.ErrNoChange
		}
		return nil
	})
}

// follow tells the owners that something was decided; those that do not hear it look by themselves.
func (c *Canceller) follow(ctx context.Context, extent core.ExtentID) {
	var calls errgroup.Group
	calls.SetLimit(hostsAtOnce)
	for _, h := range c.Cluster.Outputs() {
		calls.Go(func() error { return c.Cluster.Follow(ctx, h, &pb.FollowCancelsRequest{Extent: extent.ID[:]}) })
	}
	calls.Wait() // see above
}

// results are what the book says, and for what is not in it who keeps it.
func results(book *cancel.Book, groups []metadata.GroupRecord, messages []Message, kept []cancel.Kept) ([]Result, error) {
	called, err := book.Window()
	if err != nil {
		return nil, err
	}
	var out []Result
	for _, g := range groups {
		r := Result{Group: g.Spec.Name}
		for _, m := range messages {
			outcome := book.Outcome(called, m.Seq, g.ID)
			for _, k := range kept {
				if outcome == "" && k.Seq == m.Seq && k.Group == g.ID {
					outcome = k.Outcome
				}
			}
			r.Outcomes = append(r.Outcomes, outcome)
		}
		out = append(out, r)
	}
	return out, nil
}

// gather asks until it is known of each group and message whether the group keeps it.
func (c *Canceller) gather(ctx context.Context, e core.Extent, messages []Message, groups []metadata.GroupRecord) (kept []cancel.Kept, err error) {
	began := c.Now()
	open := make([]*verdict, 0, len(groups))
	for _, g := range groups {
		open = append(open, &verdict{group: g, outcomes: make([]cancel.Outcome, len(messages))})
	}
	for pause := minPause; len(open) > 0; pause = min(2*pause, maxPause) {
		if pause > minPause {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, core.Errorf(core.CodeUnavailable, "it cannot be told whether group %s had the message; nothing was cancelled, try again: %w",
					open[0].group.Spec.Name, errors.Join(open[0].trouble, context.Cause(ctx)))
			}
		}
		r := round{c: c, e: e, messages: messages, now: c.Now(), alone: c.Now().Sub(began) >= orphan}
		r.ask(ctx, open)
		var left []*verdict
		for _, v := range open {
			if v.trouble = r.judge(ctx, v); v.trouble != nil {
				left = append(left, v)
				continue
			}
			for i, o := range v.outcomes {
				if o != cancel.Cancelled {
					kept = append(kept, cancel.Kept{Seq: messages[i].Seq, Group: v.group.ID, Outcome: o})
				}
			}
		}
		open = left
	}
	return kept, nil
}

// verdict is what is known of the messages in one group. What an owner has said stays true: see core/cancel.
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
	alone    bool                                // a share without an owner counts as one
	said     map[core.HostID]map[string][]string // by group id
	silent   map[core.HostID]error               // hosts that may be alive and did not answer
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
	r.said, r.silent = make(map[core.HostID]map[string][]string), make(map[core.HostID]error)
	for i, h := range hosts {
		if err := errs[i]; err != nil {
			if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, net.ErrClosed) { // the latter: in memory
				r.silent[h.ID] = err
			}
			continue
		}
		r.said[h.ID] = make(map[string][]string)
		for _, g := range answers[i].GetGroups() {
			if len(g.GetMessages()) == len(r.messages) {
				r.said[h.ID][string(g.GetGroup())] = g.GetMessages()
			}
		}
	}
}

// judge says what the answers mean for a group; an error: not enough is known.
func (r *round) judge(ctx context.Context, v *verdict) error {
	for _, said := range r.said { // whoever handed it out
		for i, word := range said[string(v.group.ID.ID[:])] {
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
	words, answered := r.said[owner][string(v.group.ID.ID[:])]
	var saved *dispatch.State
	if !answered && !consumed && owner == "" { // one that is not seen may be alive, and hears of nothing; if it is dead there is another one soon
		state, err := r.c.Cluster.Saved(ctx, v.group, r.e.ID)
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
			v.outcomes[i] = r.outcome(words[i], v.group, m)
		case consumed:
			v.outcomes[i] = r.settled(v.group, m)
		case saved != nil:
			v.outcomes[i] = r.ownerless(saved.Standing(m.Seq), v.group, m)
		}
		if v.outcomes[i] == cancel.Cancelled && len(r.silent) > 0 && r.soon(m) {
			v.outcomes[i] = ""
		}
		if v.outcomes[i] == "" {
			trouble = r.unsure(owner)
		}
	}
	return trouble
}

// soon reports whether an owner that cannot be asked may hand a message out before it finds out that it is none any more.
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

// settled is the outcome of what a group has done with. What was published before the group began, and is not due, it never had.
func (r *round) settled(g metadata.GroupRecord, m Message) cancel.Outcome {
	from := g.Created
	if g.Spec.Start.Mode == core.StartTime {
		from = g.Spec.Start.At
	}
	if g.Spec.Start.Mode != core.StartEarliest && g.Epoch == 0 && m.Enqueued.Before(from) && m.Due.After(r.now) {
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
