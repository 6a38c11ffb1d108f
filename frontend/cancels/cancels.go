// Package cancels owns the cancelling of delayed messages, for all groups at once: it gathers the answers of the
// groups' owners while none of them delivers the messages, and decides in one row.
package cancels

import (
	"context"
	"errors"
	"slices"
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
	// zombie is for how long an owner that nobody can ask may hand out what becomes due: its lease, and that clocks
	// differ.
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
	// Owner is who was given a group's share of an extent last.
	Owner(ctx context.Context, group core.GroupID, extent core.ExtentID) (Owner, error)
	// Consumed reports whether a group has consumed an extent to its end.
	Consumed(ctx context.Context, group metadata.GroupRecord, extent core.ExtentID) (bool, error)
	// Saved is what the owners of a share have saved.
	Saved(ctx context.Context, group metadata.GroupRecord, extent core.Extent) (dispatch.State, error)
	// Outputs are the output hosts that are there.
	Outputs() []membership.Host
	Hold(ctx context.Context, h membership.Host, req *pb.HoldTimersRequest) (*pb.HoldTimersResponse, error)
	Follow(ctx context.Context, h membership.Host, req *pb.FollowCancelsRequest) error
}

// Owner of a share, by the assignment that has this counter. Host "": nobody yet.
type Owner struct {
	Host    core.HostID
	Counter uint64
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

// Cancel takes messages of an extent back for all of its groups, or for none: when it is not known of every group
// whether it had them, CodeUnavailable. CodeUnknown: they may be cancelled. It may be repeated, and then says the same.
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

// called are the messages to be called off, and who keeps them: one that all groups keep stays as it is, also for
// groups that come later.
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
