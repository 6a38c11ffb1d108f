package outputhost

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
)

// settle applies one frame of the consumer. An error ends the stream.
func (c *consumer) settle(g *group, f wire.Frame) error {
	now := c.h.deps.Now()
	switch f.Type {
	case wire.TypeConsumeCredit:
		var credit wire.Credit
		if err := credit.Decode(f.Body); err != nil {
			return err
		}
		if f.Flags&wire.FlagRecall != 0 {
			c.recall(g)
			return nil
		}
		g.mu.Lock()
		c.credit.grant(credit, c.h.cfg.MaxCredit)
		g.countCreditLocked(c)
		g.mu.Unlock()
		return nil
	case wire.TypeAck, wire.TypeReturn:
		return c.settleRuns(g, f, now)
	case wire.TypeNack, wire.TypeReject:
		return c.nack(g, f, now)
	case wire.TypeExtend:
		var e wire.Extend
		if err := e.Decode(f.Body); err != nil {
			return err
		}
		g.mu.Lock()
		s, err := c.heldLocked(e.Handle, e.Seq)
		if err == nil {
			err = s.rules.Extend(e.Seq, e.Attempt, millis(e.Millis, core.MaxLockTimeout), now)
		}
		g.mu.Unlock()
		c.answer(e.Handle, e.Seq, e.Attempt, err)
		return nil
	}
	return core.Errorf(core.CodeBadFrame, "unexpected frame %d on a consume stream", f.Type)
}

// recall takes back the messages that the consumer may still be sent, and tells it how many those are: it may ask
// another host for them.
func (c *consumer) recall(g *group) {
	g.mu.Lock()
	back := c.credit.recall()
	g.countCreditLocked(c)
	g.mu.Unlock()
	b, at := wire.BeginFrame(nil, wire.TypeConsumeCredit, wire.FlagRecall, c.stream)
	b = back.Append(b)
	wire.EndFrame(b, at)
	c.s.mux.Conn.Post(b)
}

// settleRuns applies an Ack or a Return.
func (c *consumer) settleRuns(g *group, f wire.Frame, now time.Time) error {
	defer c.forgetRuns()
	if err := c.settled.Decode(f.Body); err != nil {
		return err
	}
	messages := uint64(0)
	for _, r := range c.settled.Runs {
		messages += uint64(r.Count)
	}
	var refused []refusal
	var bad []dispatch.Refusal
	g.mu.Lock()
	if messages > maxSettled && g.mu.record.Spec.Delivery != core.AtMostOnce {
		g.mu.Unlock()
		return core.Errorf(core.CodeTooLarge, "a frame settles %d messages; settle at most %d with one", messages, maxSettled)
	}
	before, applied := g.mu.rules.InFlightOf(c.id), 0
	for _, r := range c.settled.Runs {
		bad = c.settleRunLocked(g, f.Type, r, now, bad[:0])
		applied += int(r.Count)
		for _, b := range bad {
			refused = append(refused, refusal{b, r.Attempt})
			applied -= int(b.Count)
			c.refused += int(b.Count)
		}
	}
	c.settledLocked(g, applied, before)
	g.countCreditLocked(c)
	given, wrong := c.given, c.refused
	g.mu.Unlock()
	if wrong > given+maxMadeUp {
		return core.Errorf(core.CodeBadFrame, "%d settlements of the stream were refused, and it was handed %d messages; settle each delivery once, on the stream that brought it", wrong, given)
	}
	c.report(c.settled.Handle, refused)
	return nil
}

// settleRunLocked applies one run of an Ack or a Return; refused settlements are appended to bad. Only applied ones
// lower what the consumer holds: a consumer that makes settlements up holds as much as before.
func (c *consumer) settleRunLocked(g *group, t wire.FrameType, r wire.SeqRun, now time.Time, bad []dispatch.Refusal) []dispatch.Refusal {
	handle := c.settled.Handle
	s, given := c.shareLocked(handle), c.lateLocked(handle)
	switch {
	case g.mu.record.Spec.Delivery == core.AtMostOnce: // it was done before it was handed out
		return bad
	case given != nil && t == wire.TypeAck:
		return given.ackLateLocked(r.Base, r.Count, r.Attempt, now, bad)
	case s == nil: // a return of what was given away, too: only its new owner can hand it out again
		return append(bad, dispatch.Refusal{Base: r.Base, Count: r.Count, Code: core.CodeOf(c.lackLocked(handle))})
	case t == wire.TypeReturn:
		return s.rules.Return(c.id, r.Base, r.Count, r.Attempt, now, bad)
	}
	bad = s.rules.Ack(r.Base, r.Count, r.Attempt, now, bad)
	s.settled += int32(r.Count)
	for _, b := range bad {
		s.settled -= int32(b.Count)
	}
	return bad
}

// keptRuns is how many runs a consumer's scratch keeps room for.
const keptRuns = 1024

// forgetRuns gives back the memory of a large frame.
func (c *consumer) forgetRuns() {
	if cap(c.settled.Runs) > keptRuns {
		c.settled.Runs = nil
	}
}

func (c *consumer) nack(g *group, f wire.Frame, now time.Time) error {
	var n wire.Nack
	if err := n.Decode(f.Body); err != nil {
		return err
	}
	delay := time.Duration(-1)
	if n.DelayMillis >= 0 {
		delay = millis(n.DelayMillis, core.MaxNackDelay)
	}
	g.mu.Lock()
	s, err := c.heldLocked(n.Handle, n.Seq)
	if err == nil {
		before := g.mu.rules.InFlightOf(c.id)
		if err = s.nackLocked(&n, delay, f.Type == wire.TypeReject, now); err == nil {
			c.settledLocked(g, 1, before)
			g.countCreditLocked(c)
		}
	}
	g.mu.Unlock()
	c.answer(n.Handle, n.Seq, n.Attempt, err)
	return nil
}

// errOther is what a consumer is told of a delivery that was given back, by its token.
var errOther = core.Errorf(core.CodeStale, "the message was delivered to another consumer since")

// heldLocked is the share behind a handle, unless another session has the message now.
func (c *consumer) heldLocked(handle uint32, seq core.Seq) (*share, error) {
	s := c.shareLocked(handle)
	switch {
	case s == nil:
		return nil, c.lackLocked(handle)
	case s.otherLocked(c.id, seq):
		return nil, errOther
	}
	return s, nil
}

// millis is a number of milliseconds that a frame says, up to most. A frame may say more than a time.Duration can.
func millis(n int64, most time.Duration) time.Duration {
	return time.Duration(min(n, most.Milliseconds())) * time.Millisecond
}

// nackLocked applies a nack, or a rejection, which has no delay. A negative delay leaves it to the group.
func (s *share) nackLocked(n *wire.Nack, delay time.Duration, reject bool, now time.Time) error {
	if err := s.replaceLocked(n.Seq, n.Attempt, n.Metadata, now); err != nil {
		return err
	}
	defer s.countHeldLocked()
	reason := s.reasonLocked(n.Reason)
	if reject {
		return s.rules.Reject(n.Seq, n.Attempt, reason, now)
	}
	return s.rules.Nack(n.Seq, n.Attempt, delay, reason, s.group.h.deps.Random(), now)
}

// notesPart of the memory for messages that are held is for what nacks leave with them: without a bound of its own,
// consumers would fill it while a retry queue takes nothing.
const notesPart = 4

var errNotes = core.Errorf(core.CodeThrottled, "the output host has no room for more metadata of nacks, as messages wait for their retry queue; try again later, or without metadata")

// replaceLocked has metadata, if there are any, replace a message's own, as far as there is memory for them.
func (s *share) replaceLocked(seq core.Seq, attempt uint16, metadata []byte, now time.Time) error {
	switch {
	case len(metadata) == 0:
		return nil
	case len(metadata) > s.group.h.notes.Room(s.rules.NoteBytes()):
		return errNotes
	}
	return s.rules.Replace(seq, attempt, metadata, now)
}

// reasonLocked is what is kept of a reason: nothing while there is no memory for it, since the settlement counts
// without it.
func (s *share) reasonLocked(reason []byte) []byte {
	if len(reason) > s.group.h.notes.Room(s.rules.NoteBytes()) {
		return nil
	}
	return reason
}

const (
	// maxSettled bounds the messages that one frame settles: several times what a share can have outstanding. A group that
	// delivers at most once has no such bound, and there a settlement costs nothing.
	maxSettled = dispatch.MaxSettleRun
	// maxMadeUp bounds the refused settlements of a stream beside one of each message that it was handed. Some bytes name
	// many messages that were never handed out, and listing those takes a thousand times as much.
	maxMadeUp = 1000
	// maxListed bounds how many refused settlements are listed in one frame; more go into further ones.
	maxListed = 1000
)

// refusal is a run of settlements that were not applied.
type refusal struct {
	dispatch.Refusal
	attempt uint16
}

func (c *consumer) answer(handle uint32, seq core.Seq, attempt uint16, err error) {
	if err != nil {
		c.report(handle, []refusal{{dispatch.Refusal{Base: seq, Count: 1, Code: core.CodeOf(err)}, attempt}})
	}
}

// report lists each refused settlement: the consumer takes the others for applied.
func (c *consumer) report(handle uint32, refused []refusal) {
	var list wire.AckResult
	for _, r := range refused {
		for i := range r.Count {
			list.Entries = append(list.Entries, wire.AckFailure{Handle: handle, Seq: r.Base + core.Seq(i), Attempt: r.attempt, Code: r.Code})
			if len(list.Entries) == maxListed {
				c.post(&list)
			}
		}
	}
	if len(list.Entries) > 0 {
		c.post(&list)
	}
}

// post sends a list, and empties it.
func (c *consumer) post(list *wire.AckResult) {
	c.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeAckResult, c.stream, list.Append(nil)))
	list.Entries = list.Entries[:0]
}
