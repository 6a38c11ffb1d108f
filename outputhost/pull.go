package outputhost

import (
	"bytes"
	"cmp"
	"context"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/inspect"
	"github.com/columbamq/columba/wire"
)

// Limits of a unary pull, and of a unary settlement.
const (
	maxTokens    = 1000
	maxPull      = 1000
	maxPullBytes = 8 << 20
	maxPullWait  = time.Minute
)

// pull hands out up to most messages, waiting for the first up to wait.
func (g *group) pull(ctx context.Context, most int, wait time.Duration) ([]*pb.PulledMessage, error) {
	if err := g.consumable(ctx); err != nil {
		return nil, err
	}
	wake := make(chan struct{}, 1)
	g.mu.Lock()
	g.joinPullLocked(wake, most)
	g.mu.Unlock()
	defer g.endPull(wake)
	g.pump() // reading may have to begin
	timer := time.NewTimer(max(wait, firstRead))
	defer timer.Stop()
	more := wait == 0
	for {
		g.mu.Lock()
		g.mu.pulls.again(wake) // a pump that comes from here on wakes it
		g.mu.Unlock()
		messages, err := g.takeForPull(ctx, most)
		if len(messages) > 0 || err != nil {
			return messages, err
		}
		select {
		case <-wake:
		case <-timer.C:
			if !more || !g.lacksReads() {
				return nil, nil
			}
			more = false
			timer.Reset(slowFirstRead - firstRead)
		case <-ctx.Done():
			return nil, nil
		case <-g.h.tasks.Context().Done():
			return nil, context.Cause(g.h.tasks.Context())
		}
	}
}

const (
	// firstRead is how long a pull that does not want to wait still gives the first read from a store …
	firstRead = 100 * time.Millisecond
	// … and slowFirstRead how long while a store has messages that are not here, or has not told whether it has: on a
	// busy server.
	slowFirstRead = time.Second
)

// lacksReads reports whether the group may have messages that it could hand out, and that are not read yet.
func (g *group) lacksReads() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.mu.shares {
		if s.readingLocked() != notRead && s.rules.WantsMore() && !s.rules.AtLimit() && (!s.answeredLocked() || !s.timers() && s.rules.Unread(s.last) > 0) {
			return true
		}
	}
	return false
}

// endPull leaves the readers open for the next pull, which mostly follows at once. A pull that was woken passes its
// turn on.
func (g *group) endPull(wake chan struct{}) {
	g.mu.Lock()
	woken := g.mu.pulls.leave(wake)
	g.mu.pulled = g.h.elapsed(g.h.deps.Now())
	g.mu.lingering = !g.wantedLocked()
	g.mu.Unlock()
	if woken {
		g.pump()
	}
}

// pullLinger is how long readers stay open after the last pull.
const pullLinger = 5 * time.Second

// endLinger closes the readers of a group that was not pulled from for a while.
func (g *group) endLinger(now time.Time) {
	g.mu.Lock()
	if !g.mu.lingering || g.h.elapsed(now)-g.mu.pulled < pullLinger {
		g.mu.Unlock()
		return
	}
	g.mu.lingering = false
	idle := g.idleReadersLocked()
	g.mu.Unlock()
	stopAll(idle)
}

// takeForPull hands out up to most messages. A record that cannot be read stays locked; it is an error only when no
// other was taken.
func (g *group) takeForPull(ctx context.Context, most int) ([]*pb.PulledMessage, error) {
	if ctx.Err() != nil { // nobody waits for an answer: messages would be locked in vain
		return nil, nil
	}
	now := g.h.deps.Now()
	g.mu.Lock()
	if err := g.mu.paused; err != nil {
		g.mu.Unlock()
		return nil, err
	}
	if g.h.draining.Load() {
		g.mu.Unlock()
		return nil, core.Errorf(core.CodeDraining, "output host is stopping")
	}
	if !g.mayGive(now) {
		g.mu.Unlock()
		return nil, nil
	}
	g.countCreditsLocked(now)
	if most = min(most, g.mayPullLocked()); most == 0 { // a pump wakes it when that changes
		g.mu.Unlock()
		return nil, nil
	}
	var out []*pb.PulledMessage
	var failed error // to read the first of those that could not be
	g.takeChangedLocked()
	g.orderLocked()
	demand := g.demandLocked()
	g.mu.rules.Want(dispatch.Credit{Messages: max(most, demand.Messages), Bytes: max(maxPullBytes, demand.Bytes)}, true)
	session := dispatch.PullSession(g.h.nextPull.Add(1))
	for _, run := range g.mu.rules.Take(session, dispatch.Credit{Messages: most, Bytes: maxPullBytes, Largest: dispatch.AnySize}, now, nil) {
		s := shareOf(run.Share)
		g.h.metrics.handedOut(run, now)
		err := inspect.EachRecord(run.Bytes, run.Base, func(seq core.Seq, record []byte) error {
			m, err := s.pulledLocked(session, seq, record, run)
			if err != nil {
				failed = cmp.Or(failed, err)
			} else {
				out = append(out, m)
			}
			return nil
		})
		failed = cmp.Or(failed, err)
	}
	g.mu.Unlock()
	g.pump()
	if failed != nil && len(out) > 0 {
		g.h.log.Warn("cannot decode a pulled message; it stays locked, and the pull goes without it", "queue", g.queuePath, "group", g.name, "err", failed)
		failed = nil
	}
	return out, failed
}

// pulledLocked is the answer of a pull for one record of a run.
func (s *share) pulledLocked(session dispatch.SessionID, seq core.Seq, record []byte, run dispatch.Run) (*pb.PulledMessage, error) {
	m, r, err := inspect.Message(record)
	if err != nil {
		return nil, err
	}
	return &pb.PulledMessage{
		Token: s.tokenLocked(session, seq, run.Attempt), Receipt: core.Receipt{Extent: s.extent.ID, Seq: seq}.String(), Attempt: int32(run.Attempt),
		Enqueued: convert.Time(time.UnixMicro(cmp.Or(r.FirstEnqueue, run.Enqueued))), Message: m, Metadata: bytes.Clone(r.Metadata),
	}, nil
}

// settleTokens applies a verb to deliveries named by tokens, and lists those it refused.
func (h *Host) settleTokens(ctx context.Context, req *pb.SettleRequest) []*pb.SettleResponse_Failure {
	var failures []*pb.SettleResponse_Failure
	asked := make(map[core.ExtentID]bool)
	for _, text := range req.Tokens {
		if err := h.settleToken(ctx, req, text, asked); err != nil {
			failures = append(failures, &pb.SettleResponse_Failure{Token: text, Error: convert.ErrorToProto(err)})
		}
	}
	return failures
}

// settleToken applies a verb to the delivery of a token. asked are the extents of which this call has asked the stores
// how far they go.
func (h *Host) settleToken(ctx context.Context, req *pb.SettleRequest, text string, asked map[core.ExtentID]bool) error {
	t, err := deliverytoken.Open(h.keys, text)
	if err != nil {
		return err
	}
	g, err := h.groupByID(ctx, t.Queue, t.Group)
	if err != nil {
		return err
	}
	defer g.release()
	now := h.deps.Now()
	g.mu.Lock()
	s := g.mu.shares[t.Extent]
	if s != nil && req.Verb == "ack" && s.beyondLocked(t) && !asked[t.Extent] { // nobody may have read the extent here yet
		asked[t.Extent] = true
		g.mu.Unlock()
		if err := h.inspector.UpdateLength(ctx, inspectedGroup{g}, inspectedShare{s}); err != nil {
			return err
		}
		g.mu.Lock()
		s = g.mu.shares[t.Extent]
	}
	switch {
	case t.Epoch > g.mu.record.Epoch:
		err = core.Errorf(core.CodeMoved, "a seek moved the group a moment ago; try again")
	case t.Epoch < g.mu.record.Epoch && (s == nil || !g.stays(s.extent)):
		err = core.Errorf(core.CodeStale, "a seek has moved the group since; the message comes again if it is after the new place")
	case s != nil:
		if err = s.settleTokenLocked(req, t, now); err == nil {
			g.mu.elsewhere++
		}
	}
	once := g.mu.record.Spec.Delivery == core.AtMostOnce
	g.mu.Unlock()
	if err == nil && s == nil {
		err = h.noShare(ctx, t)
	} else {
		g.pump()
	}
	if once && req.Verb == "ack" && core.CodeOf(err) == core.CodeStale {
		return nil // it was done before it was handed out
	}
	return err
}

// groupByID finds the group of a token; after a restart it may not be loaded yet.
func (h *Host) groupByID(ctx context.Context, queue core.QueueID, id core.GroupID) (*group, error) {
	h.mu.Lock()
	g := h.mu.groups[id]
	if g != nil {
		g.users.Add(1)
	}
	h.mu.Unlock()
	if g != nil {
		return g, nil
	}
	for _, c := range oneThenQuorum {
		name, err := h.groupName(ctx, queue, id, c)
		if err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		if g, err = h.groupOf(ctx, queue, name, id); core.CodeOf(err) != core.CodeNotFound {
			return g, err
		}
		break // it was deleted meanwhile, and its name may have been used again
	}
	return nil, core.Errorf(core.CodeStale, "the group of this token was deleted")
}

// groupName reads what the group of a queue is called; "": it is not there.
func (h *Host) groupName(ctx context.Context, queue core.QueueID, id core.GroupID, c metadata.Consistency) (string, error) {
	for r, err := range metadata.All[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, queue.String(), c) {
		if err != nil {
			return "", err
		}
		if r.Value.ID == id {
			return r.Value.Spec.Name, nil
		}
	}
	return "", nil
}

// noShare says why there is no share for a token: its extent is consumed, or this host does not serve it (yet).
func (h *Host) noShare(ctx context.Context, t deliverytoken.Token) error {
	if done, err := metadata.IsConsumed(ctx, h.deps.Meta, t.Group, t.Extent, t.Epoch, metadata.One); err == nil && done {
		return core.Errorf(core.CodeStale, "message %s was settled before; there is nothing to be done", t.Receipt())
	}
	return core.Errorf(core.CodeMoved, "extent %s is not served by this host now; try again", t.Extent)
}

// beyondLocked reports whether the bearer of a derived token, from another owner, names a message behind the end of the
// extent, as far as this owner knows. An ack of it would settle a message for the group that nobody has published yet.
func (s *share) beyondLocked(t deliverytoken.Token) bool {
	return t.Derived && t.Generation != s.generation && t.Seq > s.last && t.Seq >= s.rules.ReadFrom() && !s.inheritedLocked(t.Seq)
}

// inheritedLocked reports whether an earlier owner made the current delivery of a message.
func (s *share) inheritedLocked(seq core.Seq) bool {
	id, _ := s.rules.Holder(seq)
	return id == dispatch.EarlierSession
}

// otherLocked reports whether another session has the message now. It may have it under the same attempt, if the
// message was given back.
func (s *share) otherLocked(session dispatch.SessionID, seq core.Seq) bool {
	id, locked := s.rules.Holder(seq)
	return locked && id != dispatch.EarlierSession && id != session
}

func (s *share) settleTokenLocked(req *pb.SettleRequest, t deliverytoken.Token, now time.Time) error {
	session := dispatch.SessionID(t.Session)
	switch {
	case req.Verb == "ack":
	case t.Generation != s.generation && !s.inheritedLocked(t.Seq):
		return core.Errorf(core.CodeStale, "this delivery of message %s ended with its output host; the message comes again, unless it was settled", t.Receipt())
	case s.otherLocked(session, t.Seq):
		return core.Errorf(core.CodeStale, "message %s was delivered again since; only the token of that delivery can settle it", t.Receipt())
	}
	switch req.Verb {
	case "ack":
		s.settled++
		if t.Derived && t.Generation == s.generation { // this owner knows what it has handed out
			if len(s.rules.Ack(t.Seq, 1, t.Attempt, now, nil)) > 0 {
				return core.Errorf(core.CodeStale, "message %s was settled before, or not delivered as attempt %d; there is nothing to be done with this token", t.Receipt(), t.Attempt)
			}
			return nil
		}
		if s.beyondLocked(t) {
			return core.Errorf(core.CodeUnavailable, "message %s was not published, as far as this host knows: it knows of %d messages in the extent; try again", t.Receipt(), s.last)
		}
		if !s.rules.TakesProven(t.Seq) {
			return core.Errorf(core.CodeUnavailable, "message %s was not read by this host yet, which has no room to note more acks of such messages; try again", t.Receipt())
		}
		if !s.rules.AckProven(t.Seq, now) {
			return core.Errorf(core.CodeStale, "message %s was settled before, or is delayed in the retry queue; there is nothing to be done with this token", t.Receipt())
		}
		return nil
	case "return":
		if len(s.rules.Return(session, t.Seq, 1, t.Attempt, now, nil)) > 0 {
			return core.Errorf(core.CodeStale, "attempt %d is not the current delivery of message %s", t.Attempt, t.Receipt())
		}
		return nil
	case "nack":
		delay := time.Duration(-1)
		if req.Delay != nil {
			delay = req.Delay.AsDuration()
			if delay < 0 || delay > core.MaxNackDelay {
				return core.Errorf(core.CodeBadArgument, "delay %s is not in 0 … %s", core.FormatDuration(delay), core.FormatDuration(core.MaxNackDelay))
			}
		}
		return s.nackLocked(&wire.Nack{Seq: t.Seq, Attempt: t.Attempt, Reason: []byte(req.Reason), Metadata: req.Metadata}, delay, false, now)
	case "reject":
		return s.nackLocked(&wire.Nack{Seq: t.Seq, Attempt: t.Attempt, Reason: []byte(req.Reason)}, 0, true, now)
	case "extend":
		d := req.Delay.AsDuration()
		if d <= 0 || d > core.MaxLockTimeout {
			return core.Errorf(core.CodeBadArgument, "extension %s is not above 0 and up to %s", core.FormatDuration(d), core.FormatDuration(core.MaxLockTimeout))
		}
		return s.rules.Extend(t.Seq, t.Attempt, d, now)
	}
	return core.Errorf(core.CodeBadArgument, "verb %.80q is not ack, nack, reject, return or extend", req.Verb)
}
