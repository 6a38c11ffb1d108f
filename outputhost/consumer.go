package outputhost

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/outputhost/inspect"
	"github.com/columbamq/columba/wire"
)

// consumer is one stream: a member of a group. Its fields are the group's mutex's, but for those that say otherwise.
type consumer struct {
	s       *session
	h       *Host
	stream  uint32
	id      dispatch.SessionID
	greeted bool         // the reader's own
	settled wire.Settled // the reader's scratch
	tokens  bool         // set before the consumer joins
	resumes bool         // set before the consumer joins: extents are named with their tokens
	name    string       // set before the consumer joins
	joined  time.Time    // set before the consumer joins
	told    string       // the hosts it was told of last; the group's mutex's
	group   atomic.Pointer[group]
	closed  atomic.Bool

	credit  window
	held    int // handed out and not settled, as far as this host was told
	given   int // handed out, ever
	refused int // of what its Acks and Returns named, ever
	holding holding
	demand  dispatch.Credit // how much it would take; this and those below: see credits
	queued  bool            // it waits for its turn
	capped  bool            // it holds as many as it may
	full    bool            // its connection was full at its last turn
	left    bool            // it is not in the group any more
	ahead   *consumer       // before it in line for a turn
	behind  *consumer       // after it
	handles map[*share]uint32
	earlier map[*share][]uint32 // of shares that came back: their handles from before that
	shares  []*share            // by handle; nil: nothing of it is settled any more; movedShare: not here
}

// window is what a consumer may still be sent. One message that is larger than the bytes left takes them below zero:
// what is granted then makes up for that first.
type window struct{ messages, bytes int }

// maxWindow bounds the messages of a window.
const maxWindow = 1 << 20

// grant adds what a consumer takes on top, up to mostBytes. The rest is forgotten.
func (w *window) grant(more wire.Credit, mostBytes int) {
	w.messages = int(min(int64(w.messages)+int64(more.Messages), maxWindow))
	w.bytes += int(min(more.Bytes, uint64(max(mostBytes-w.bytes, 0))))
}

// spend takes what was sent.
func (w *window) spend(messages, bytes int) {
	w.messages -= messages
	w.bytes -= bytes
}

// recall takes back the messages, and says how many those are.
func (w *window) recall() wire.Credit {
	back := wire.Credit{Messages: uint32(max(0, w.messages))}
	w.messages = 0
	return back
}

// holding is what tells how many messages a consumer holds under a lock. The group's mutex's.
type holding struct {
	timedOut int    // of those handed out and not settled, how many are not locked any more
	changes  uint64 // of the group when they were counted, see changesLocked
}

// Why a settlement of a share that is not there is refused; made once, as they may be frequent.
var (
	errMoved     = core.Errorf(core.CodeMoved, "another output host delivers the extent now")
	errForgotten = core.Errorf(core.CodeStale, "the delivery is not known any more: a seek moved the group, or the group has consumed the extent")
)

// delivery is one frame (or a few) on its way to a consumer, made under the group's mutex and sent outside.
type delivery struct {
	c       *consumer
	head    []byte
	records []byte
	release func()
}

// send queues the delivery. It never waits: a consumer that does not read must not hold up who delivers to others.
// maxUnread bounds what is queued, and the connection ends when nothing can be written to it for a while.
func (d delivery) send() {
	// It fails when the connection has ended: the stream's Closed says so, and the messages stay locked until their
	// timeout.
	d.c.s.mux.Conn.PushOwned(d.head, d.records, d.release)
}

// smallRun is the size up to which the bytes of a run are copied behind those of its neighbors: that costs less than a
// frame of its own.
const smallRun = 4 << 10

// deliverLocked frames the runs that were taken for this consumer. A run's bytes are sent as they were read; small runs
// in a row, as those of retries from many places, are gathered.
func (c *consumer) deliverLocked(runs []dispatch.Run, now time.Time, out []delivery) []delivery {
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && runs[n].Share == runs[0].Share && max(len(runs[n-1].Bytes), len(runs[n].Bytes)) <= smallRun {
			n++
		}
		out = append(out, c.frameLocked(runs[:n], now))
		runs = runs[n:]
	}
	return out
}

// frameLocked makes one Deliver frame of runs of one share.
func (c *consumer) frameLocked(runs []dispatch.Run, now time.Time) delivery {
	s := shareOf(runs[0].Share)
	d := delivery{c: c}
	handle, known := c.handles[s]
	if !known {
		handle = uint32(len(c.shares))
		if c.handles == nil {
			c.handles = make(map[*share]uint32)
		}
		c.handles[s] = handle
		c.shares = append(c.shares, s)
		name := wire.Handle{Handle: handle, Extent: s.extent.ID}
		var flags uint16
		if c.resumes {
			flags, name.Token = wire.FlagTokens, []byte(s.deliveryTokenLocked(c.id, 0, 0).SealExtent(s.group.h.keys))
		}
		var at int
		d.head, at = wire.BeginFrame(d.head, wire.TypeHandle, flags, c.stream)
		d.head = name.Append(d.head)
		wire.EndFrame(d.head, at)
	}
	frame := make([]wire.DeliverRun, 0, 16)
	bytes := 0
	for _, r := range runs {
		frame = append(frame, wire.DeliverRun{Base: r.Base, Count: r.Count, Attempt: r.Attempt, Enqueued: r.Enqueued})
		bytes += len(r.Bytes)
		c.credit.spend(int(r.Count), len(r.Bytes))
		c.held += int(r.Count)
		c.given += int(r.Count)
		s.group.h.metrics.handedOut(r, now)
	}
	var flags uint16
	var tokens []byte
	if c.tokens {
		flags = wire.FlagTokens
		tokens = s.tokensLocked(c.id, runs)
	}
	d.head = wire.AppendDeliverHead(d.head, c.stream, flags, handle, frame, bytes, len(tokens))
	if len(runs) == 1 && tokens == nil {
		if b, ok := runs[0].Buffer.(*buffer); ok {
			b.refs.Add(1)
			d.records, d.release = runs[0].Bytes, b.Release
			return d
		}
	}
	d.records = make([]byte, 0, bytes+len(tokens))
	for _, r := range runs {
		d.records = append(d.records, r.Bytes...)
	}
	d.records = append(d.records, tokens...)
	return d
}

// tokensLocked seals a token for each message of the runs that a session was handed.
func (s *share) tokensLocked(id dispatch.SessionID, runs []dispatch.Run) []byte {
	var out []byte
	for _, r := range runs {
		for i := range r.Count {
			out = wire.AppendToken(out, []byte(s.tokenLocked(id, r.Base+core.Seq(i), r.Attempt)))
		}
	}
	return out
}

func (s *share) tokenLocked(id dispatch.SessionID, seq core.Seq, attempt uint16) string {
	return s.deliveryTokenLocked(id, seq, attempt).Seal(s.group.h.keys)
}

func (s *share) deliveryTokenLocked(id dispatch.SessionID, seq core.Seq, attempt uint16) deliverytoken.Token {
	return deliverytoken.Token{
		Queue: s.group.queue, Group: s.group.id, Extent: s.extent.ID, Seq: seq, Attempt: attempt, Session: uint32(id),
		Epoch: s.group.mu.record.Epoch, Generation: s.generation,
	}
}

// shareLocked is the share behind a handle, nil when it is unknown or no longer this host's.
func (c *consumer) shareLocked(handle uint32) *share {
	if s := c.namedLocked(handle); s != nil && !s.removed {
		return s
	}
	return nil
}

// movedShare stands for every share that was given to another host long ago: who settles what this host handed out of
// it is sent there. forgottenShare stands for those of which nothing is settled any more.
var movedShare, forgottenShare = &share{removed: true}, &share{removed: true}

// lackLocked says why there is no share behind a handle.
func (c *consumer) lackLocked(handle uint32) error {
	if s := c.namedLocked(handle); s != nil && (s == movedShare || s.late != nil) {
		return errMoved
	}
	return errForgotten
}

// lateLocked is the share behind a handle that was given to another host not long ago, else nil.
func (c *consumer) lateLocked(handle uint32) *share {
	if s := c.namedLocked(handle); s != nil && s.late != nil {
		return s
	}
	return nil
}

// namedLocked is the share that a handle means, nil when it was never given out.
func (c *consumer) namedLocked(handle uint32) *share {
	if int64(handle) >= int64(len(c.shares)) {
		return nil
	}
	s := c.shares[handle]
	for s.instead != nil {
		s = s.instead
	}
	return s
}

// forgetLocked makes the share's handles mean instead, and answers them. Their numbers stay: they must not mean another
// extent.
func (c *consumer) forgetLocked(s, instead *share) []uint32 {
	all := c.earlier[s]
	if handle, known := c.handles[s]; known {
		all = append(all, handle)
	}
	for _, handle := range all {
		c.shares[handle] = instead
	}
	delete(c.handles, s)
	delete(c.earlier, s)
	return all
}

// forgetHandlesLocked takes a share from the consumers: nothing of it is settled here any more. Instead is movedShare
// when another host settles it, else forgottenShare. A consumer that has closed is not in the group's list, but it may
// still settle: its handles follow the field instead of the share.
func (g *group) forgetHandlesLocked(s, instead *share) {
	s.instead = instead
	for _, c := range g.mu.consumers {
		c.forgetLocked(s, instead)
	}
}

// renameHandlesLocked has what consumers hold of a share that came back settled there. Deliveries from now on have
// another handle: that is named with a token of the share as it is now.
func (g *group) renameHandlesLocked(old, now *share) {
	old.instead = now
	for _, c := range g.mu.consumers {
		if all := c.forgetLocked(old, now); len(all) > 0 {
			if c.earlier == nil {
				c.earlier = make(map[*share][]uint32)
			}
			c.earlier[now] = all
		}
	}
}

// Consumers of a group that grant much must not starve those that grant little: consumers take turns, which are short
// while several have credit, and one consumer may not hold so much of what the group's shares may have outstanding that
// nothing is left for the others.

const (
	// takeAtOnce and takeBytesAtOnce are what one consumer gets at most before the next one's turn, while nobody else
	// has credit …
	takeAtOnce      = 1000
	takeBytesAtOnce = 1 << 20
	// … and while others have, unless there is more for each of them.
	turnAtOnce      = 250
	turnBytesAtOnce = 256 << 10
	// anySizeCredit is how many bytes of credit a consumer needs for a message of any size, also one that is larger.
	// Without that it would get nothing while such a message is the next one, until it has settled all that it holds.
	anySizeCredit = 2 << 20
	// leastHeld is how much a consumer may hold, however many there are.
	leastHeld = 100
)

// changesLocked counts what ends locks without a word on their consumer's stream: locks that timed out, settlements by
// token, by another consumer, by another owner or by a selection, and shares that are here no more.
func (g *group) changesLocked() uint64 {
	return g.mu.rules.Counters().LockTimeouts + g.mu.elsewhere + g.mu.dropped
}

// settledLocked takes note that a consumer has settled so many messages; before, it held that many under a lock. Others
// hold the rest of those, or did: a message may have been redelivered, and be acked late.
func (c *consumer) settledLocked(g *group, settled, before int) {
	c.held = max(0, c.held-settled)
	if settled > before-g.mu.rules.InFlightOf(c.id) {
		g.mu.elsewhere++
	}
}

// holdsLocked is how many messages a consumer holds under a lock.
func (g *group) holdsLocked(c *consumer) int {
	if g.mu.record.Spec.Delivery == core.AtMostOnce {
		return 0
	}
	if n := g.changesLocked(); n != c.holding.changes {
		c.holding = holding{timedOut: max(0, c.held-g.mu.rules.InFlightOf(c.id)), changes: n}
	}
	return max(0, c.held-c.holding.timedOut)
}

// admitLocked refuses a consumer of a group that has as many as it may have on this host.
func (g *group) admitLocked() error {
	if most := g.h.cfg.GroupConsumers; len(g.mu.consumers) >= most {
		return core.Errorf(core.CodeThrottled, "group %s has %d consumers on this host, the most it may have; close some, or let each take more messages at a time", g.name, most)
	}
	return nil
}

// mostHeldLocked is how many messages a consumer may hold: an equal part for each consumer, and one for those that
// come. All pulls together are a consumer. A single consumer may hold all, and so may consumers of a group that
// delivers at most once: they settle nothing.
func (g *group) mostHeldLocked(now time.Time) int {
	n := len(g.mu.consumers)
	if g.pullsLocked(now) {
		n++
	}
	if n < 2 || g.mu.record.Spec.Delivery == core.AtMostOnce {
		return math.MaxInt
	}
	return max(leastHeld, dispatch.MaxOutstanding*max(1, len(g.mu.shares))/(n+1))
}

// mayHoldLocked is how many more messages a consumer may hold of most. Locks that have run out do not count.
func (g *group) mayHoldLocked(c *consumer, most int) int {
	if most == math.MaxInt || c.held < most {
		return most - min(c.held, most)
	}
	return max(0, most-g.holdsLocked(c))
}

// mayPullLocked is how many more messages all pulls together may hold, as it was counted for consumers last. While
// there is no consumer they may hold all.
func (g *group) mayPullLocked() int {
	x := g.mu.credits
	if x == nil || len(g.mu.consumers) == 0 || x.most == 0 {
		return math.MaxInt
	}
	return max(0, x.most-g.mu.rules.InFlightOf(pullSession))
}

// creditLocked is what a consumer may be handed out now; no messages: nothing.
func (g *group) creditLocked(c *consumer, most int) dispatch.Credit {
	if c.credit.messages <= 0 || c.credit.bytes <= 0 {
		return dispatch.Credit{}
	}
	largest := c.credit.bytes // a message that is larger than a turn goes alone
	if c.held == 0 || c.credit.bytes >= anySizeCredit || g.holdsLocked(c) == 0 {
		largest = dispatch.AnySize
	}
	return dispatch.Credit{Messages: min(c.credit.messages, g.mayHoldLocked(c, most)), Bytes: c.credit.bytes, Largest: largest}
}

// takersLocked are the consumers and pulls, and one pull more shortly after the last. A consumer without room for the
// message whose turn it is has no credit.
func (g *group) takersLocked(now time.Time) inspect.Takers {
	t := inspect.Takers{All: len(g.mu.consumers) + g.mu.pulls.number(), Credit: g.mu.pulls.number(), Throttled: true}
	if g.h.elapsed(now)-g.mu.pulled < pullAgain {
		t.All, t.Credit = t.All+1, t.Credit+1
	}
	if g.mayPullLocked() == 0 {
		t.Credit = 0
	}
	if t.Credit > 0 {
		t.Throttled = g.mu.rules.Throttled(pullSession)
	}
	most, size := g.mostHeldLocked(now), g.mu.rules.TooLarge()
	for _, c := range g.mu.consumers {
		if credit := g.creditLocked(c, most); credit.Messages > 0 && credit.Largest >= size && !c.s.mux.Conn.Full() {
			t.Credit++
			t.Throttled = t.Throttled && g.mu.rules.Throttled(c.id)
		}
	}
	t.Throttled = t.Throttled && t.Credit > 0
	return t
}
