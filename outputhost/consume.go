package outputhost

import (
	"context"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

const (
	// consumeReadLimit bounds a message from a consumer: settlements only.
	consumeReadLimit = 4 << 20
	// maxUnread is how many bytes of deliveries may wait to be written to a connection. Above it the streams of the connection get no more: what
	// is ready stays in its group, for other consumers. A group may go over it by what it takes at once.
	maxUnread = 8 << 20
)

// HandleFrame implements ws.StreamHandler.
func (c *consumer) HandleFrame(f wire.Frame, _ *ws.Message) {
	if f.Type == wire.TypeConsumeHello && !c.greeted {
		c.greeted = true
		var hello pb.ConsumeHello
		if err := convert.DecodeHello(f.Body, &hello); err != nil {
			c.fail(err)
			return
		}
		// The look-up must not hold up the other streams of the connection.
		if err := c.s.mux.Begin(func(ctx context.Context) { c.open(ctx, &hello) }); err != nil {
			c.fail(err)
		}
		return
	}
	if f.Type == wire.TypeConsumeClose {
		c.close()
		return
	}
	g := c.group.Load()
	if g == nil {
		c.fail(core.Errorf(core.CodeBadFrame, "frame %d before the hello was answered", f.Type))
		return
	}
	var err error
	if f.Type == wire.TypeConfirm {
		err = c.confirm(f.Body)
	} else if err = c.settle(g, f); err == nil {
		g.pump()
	}
	if err != nil {
		c.fail(err)
	}
}

// confirm answers that what the stream brought before was applied: frames are handled in their order.
func (c *consumer) confirm(body []byte) error {
	position, err := wire.DecodePosition(body)
	if err == nil {
		c.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeConfirm, c.stream, wire.AppendPosition(nil, position)))
	}
	return err
}

// Closed implements ws.StreamHandler. What the consumer held stays locked until its timeout: tokens may live in another process.
func (c *consumer) Closed(error) { c.end() }

// open joins the group and answers the hello.
func (c *consumer) open(ctx context.Context, hello *pb.ConsumeHello) {
	if c.closed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.h.cfg.CallTimeout)
	defer cancel()
	g, err := c.h.lookUp(ctx, hello.Queue, hello.Group)
	if err != nil {
		c.fail(err)
		return
	}
	defer g.release()
	if err := g.consumable(ctx); err != nil {
		c.fail(err)
		return
	}
	c.tokens, c.resumes = hello.Tokens, hello.Resume
	c.name = clipName(hello.Client)
	c.joined = c.h.deps.Now()
	g.mu.Lock()
	paused := g.mu.paused
	switch {
	case g.mu.closed:
		paused = core.Errorf(core.CodeDraining, "output host is stopping")
	case paused == nil:
		paused = g.admitLocked()
	}
	if paused == nil {
		g.rememberLocked(c.id, c.name)
		g.mu.consumers = append(g.mu.consumers, c)
		c.group.Store(g)
	}
	g.mu.Unlock()
	if paused != nil {
		c.fail(paused)
		return
	}
	c.greet(g)
	if c.closed.Load() { // the connection ended meanwhile
		c.leave()
		return
	}
	g.pump()
}

// greet answers the hello, and again whenever the group's lock timeout has changed.
func (c *consumer) greet(g *group) {
	for {
		g.mu.Lock()
		spec := g.mu.record.Spec
		g.mu.Unlock()
		run := c.h.deps.Members.Self().Run
		ok := &pb.ConsumeHelloOK{QueueId: g.queue.String(), GroupId: g.id.String(), Confirms: c.resumes, Run: run.ID[:]}
		if spec.Delivery != core.AtMostOnce { // else there is no lock: what waits at the consumer must not come back
			ok.LockTimeout = convert.DurationToProto(spec.LockTimeout)
		}
		body, err := proto.Marshal(ok)
		if err != nil {
			c.fail(core.Errorf(core.CodeInternal, "encode hello: %w", err))
			return
		}
		c.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeConsumeHelloOK, c.stream, body))
		g.mu.Lock()
		changed := g.mu.record.Spec.LockTimeout != spec.LockTimeout // another may have sent the newer one before this
		g.mu.Unlock()
		if !changed {
			return
		}
	}
}

// close stops the deliveries and answers so, after those that are on their way. The consumer then returns what it will not hand out,
// and closes again: that ends the stream.
func (c *consumer) close() {
	if c.closed.Load() {
		c.s.mux.Forget(c.stream)
		return
	}
	c.end()
	c.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeConsumeClose, c.stream, nil))
}

func (c *consumer) fail(err error) {
	c.s.refuse(c.stream, err)
	c.end()
}

func (c *consumer) end() {
	c.closed.Store(true)
	c.leave()
}

// leave takes the consumer out of its group; the last one stops the readers.
func (c *consumer) leave() {
	g := c.group.Load()
	if g == nil {
		return
	}
	g.mu.Lock()
	for i, o := range g.mu.consumers {
		if o == c {
			g.mu.consumers = append(g.mu.consumers[:i], g.mu.consumers[i+1:]...)
			break
		}
	}
	g.mu.rules.Leave(c.id)
	var idle []*reader
	if !g.wantedLocked() {
		idle = g.readersLocked()
	}
	g.mu.Unlock()
	for _, r := range idle {
		r.stop()
	}
	g.pump()
}

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
		s := c.shareLocked(e.Handle)
		err := c.lackLocked(e.Handle)
		if s != nil {
			err = s.rules.Extend(e.Seq, e.Attempt, time.Duration(e.Millis)*time.Millisecond, now)
		}
		g.mu.Unlock()
		c.answer(e.Handle, e.Seq, e.Attempt, err)
		return nil
	}
	return core.Errorf(core.CodeBadFrame, "unexpected frame %d on a consume stream", f.Type)
}

// recall takes back the messages that the consumer may still be sent, and tells it how many those are: it may ask another host for them.
func (c *consumer) recall(g *group) {
	g.mu.Lock()
	back := c.credit.recall()
	g.mu.Unlock()
	b, at := wire.BeginFrame(nil, wire.TypeConsumeCredit, wire.FlagRecall, c.stream)
	b = back.Append(b)
	wire.EndFrame(b, at)
	c.s.mux.Conn.Post(b)
}

func (c *consumer) settleRuns(g *group, f wire.Frame, now time.Time) error {
	if err := c.settled.Decode(f.Body); err != nil {
		return err
	}
	var bad []dispatch.Refusal
	var failures []wire.AckFailure
	g.mu.Lock()
	s, given := c.shareLocked(c.settled.Handle), c.lateLocked(c.settled.Handle)
	for _, r := range c.settled.Runs {
		switch {
		case g.mu.record.Spec.Delivery == core.AtMostOnce: // it was done before it was handed out
			bad = bad[:0]
			if f.Type == wire.TypeAck {
				g.mu.settled += int(r.Count)
			}
		case given != nil && f.Type == wire.TypeAck:
			bad = given.ackLateLocked(r.Base, r.Count, r.Attempt, bad[:0])
		case given != nil:
			bad = bad[:0] // the new owner hands them out once their locks have ended
		case s == nil:
			bad = append(bad[:0], dispatch.Refusal{Base: r.Base, Count: r.Count, Code: core.CodeOf(c.lackLocked(c.settled.Handle))})
		case f.Type == wire.TypeAck:
			bad = s.rules.Ack(r.Base, r.Count, r.Attempt, now, bad[:0])
			g.mu.settled += int(r.Count)
		default:
			bad = s.rules.Return(r.Base, r.Count, r.Attempt, now, bad[:0])
		}
		c.held = max(0, c.held-int(r.Count))
		for _, b := range bad {
			for i := range min(int(b.Count), maxListed-len(failures)) {
				failures = append(failures, wire.AckFailure{Handle: c.settled.Handle, Seq: b.Base + core.Seq(i), Attempt: r.Attempt, Code: b.Code})
			}
		}
	}
	g.mu.Unlock()
	c.report(failures)
	return nil
}

func (c *consumer) nack(g *group, f wire.Frame, now time.Time) error {
	var n wire.Nack
	if err := n.Decode(f.Body); err != nil {
		return err
	}
	g.mu.Lock()
	err := c.lackLocked(n.Handle)
	if s := c.shareLocked(n.Handle); s != nil {
		err = s.nackLocked(&n, f.Type == wire.TypeReject, now)
	}
	c.held = max(0, c.held-1)
	g.mu.Unlock()
	c.answer(n.Handle, n.Seq, n.Attempt, err)
	return nil
}

// nackLocked applies a nack, or a rejection.
func (s *share) nackLocked(n *wire.Nack, reject bool, now time.Time) error {
	if len(n.Metadata) > 0 {
		if err := s.rules.Replace(n.Seq, n.Attempt, n.Metadata, now); err != nil {
			return err
		}
	}
	if reject {
		return s.rules.Reject(n.Seq, n.Attempt, n.Reason, now)
	}
	delay := time.Duration(-1)
	if n.DelayMillis >= 0 {
		delay = min(time.Duration(min(n.DelayMillis, int64(core.MaxNackDelay/time.Millisecond)))*time.Millisecond, core.MaxNackDelay)
	}
	return s.rules.Nack(n.Seq, n.Attempt, delay, n.Reason, s.group.h.deps.Random(), now)
}

// maxListed bounds how many refused settlements of one frame are listed.
const maxListed = 1000

// Why a settlement of a share that is not there is refused; made once, as they may be frequent.
var (
	errMoved     = core.Errorf(core.CodeMoved, "another output host delivers the extent now")
	errForgotten = core.Errorf(core.CodeStale, "the delivery is not known any more: the group was rewound, or has consumed the extent")
)

func (c *consumer) answer(handle uint32, seq core.Seq, attempt uint16, err error) {
	if err != nil {
		c.report([]wire.AckFailure{{Handle: handle, Seq: seq, Attempt: attempt, Code: core.CodeOf(err)}})
	}
}

func (c *consumer) report(failures []wire.AckFailure) {
	if len(failures) == 0 {
		return
	}
	r := wire.AckResult{Entries: failures}
	b, at := wire.BeginFrame(nil, wire.TypeAckResult, 0, c.stream)
	b = r.Append(b)
	wire.EndFrame(b, at)
	c.s.mux.Conn.Post(b)
}

// clipName cuts a consumer's name to the bytes that records keep of it, at the end of a character: half a one is no text for protobuf.
func clipName(s string) string {
	n := min(len(s), wire.MaxConsumerName)
	for n < len(s) && n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
