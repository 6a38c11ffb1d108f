package inputhost

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/tenant"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// publisher is one stream: the records of one publisher for one queue.
type publisher struct {
	s          *session
	stream     uint32
	queue      *queue // set before HelloOK is sent, that is before the first Publish
	maxPayload int
	internal   bool         // writes to a built-in queue: no limit of a user holds it back
	greeted    bool         // a hello came; the reader's own
	throttled  time.Time    // until then; the reader's own
	hello      atomic.Bool  // answered
	inFlight   atomic.Int64 // bytes taken and not answered
	closed     atomic.Bool
	explained  atomic.Pointer[string] // why its records are refused, as it was told last
	once       sync.Once              // of the queue's release
	producer   core.ID                // of a CP queue: the publisher whose …
	number     uint64                 // … session this is
	ended      atomic.Bool            // of a CP queue: nothing more of it is appended
	home       *slot                  // the extent it uses; the queue's
	left       bool                   // it uses none any more; the queue's
}

// HandleFrame implements ws.StreamHandler.
func (p *publisher) HandleFrame(f wire.Frame, m *ws.Message) {
	switch {
	case f.Type == wire.TypePublishHello && !p.greeted:
		p.greeted = true
		var hello pb.PublishHello
		if err := convert.DecodeHello(f.Body, &hello); err != nil {
			p.fail(err)
			return
		}
		// The look-up must not hold up the other streams of the connection.
		if err := p.s.mux.Begin(func(ctx context.Context) { p.open(ctx, &hello) }); err != nil {
			p.fail(err)
		}
	case f.Type == wire.TypePublish && p.hello.Load():
		p.publish(f, m)
	case f.Type == wire.TypePublishClose:
		p.s.mux.Forget(p.stream)
		p.end()
	default:
		p.fail(core.Errorf(core.CodeBadFrame, "unexpected frame %d on a publish stream", f.Type))
	}
}

// Closed implements ws.StreamHandler.
func (p *publisher) Closed(error) { p.end() }

func (p *publisher) end() {
	p.closed.Store(true)
	if p.hello.Load() {
		p.once.Do(func() { p.queue.leave(p) })
	}
}

func (p *publisher) fail(err error) {
	p.s.refuse(p.stream, err)
	p.end()
}

// open looks the queue up and answers the hello.
func (p *publisher) open(ctx context.Context, hello *pb.PublishHello) {
	if p.closed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	changes := p.s.h.settings.changes.Load()
	record, at, err := p.s.h.lookUp(ctx, hello)
	if err != nil {
		p.fail(err)
		return
	}
	if p.internal = !record.Owner.IsZero(); !p.internal {
		if err := p.s.h.tenants.Know(ctx, core.Namespace(record.Spec.Path)); err != nil {
			p.fail(err)
			return
		}
	}
	p.queue = p.s.h.queueOf(record, at, p)
	p.s.h.settings.since(changes)
	p.maxPayload = p.queue.maxPayload()
	if p.queue.ordered {
		err := p.greet(hello)
		if err == nil {
			err = p.queue.join(ctx, p)
		}
		if err != nil {
			p.once.Do(func() { p.queue.leave(p) })
			p.fail(err)
			return
		}
	}
	body, err := proto.Marshal(&pb.PublishHelloOK{
		QueueId: record.ID.String(), MaxMessage: int64(p.maxPayload), MaxBatch: wire.MaxBatchBytes, Window: int64(p.s.h.cfg.Window),
		Ordered: p.queue.ordered,
	})
	if err != nil {
		p.fail(core.Errorf(core.CodeInternal, "encode hello: %w", err))
		return
	}
	p.hello.Store(true)
	if p.closed.Load() { // the connection ended meanwhile
		p.once.Do(func() { p.queue.leave(p) })
		return
	}
	p.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypePublishHelloOK, p.stream, body))
}

// publish takes one frame of records.
func (p *publisher) publish(f wire.Frame, m *ws.Message) {
	h := p.s.h
	if p.internal && p.s.mux.Conn.Late() { // its output host looks for what it sent, and appends that again: this must not be stored as well
		p.s.mux.Conn.Abort(core.Errorf(core.CodeUnavailable, "%s was silent for more than %s; what it sent for a built-in queue may be too old to be stored", p.s.mux.Conn.RemoteAddr(), ws.LateAfter))
		return
	}
	var pub wire.Publish
	if err := pub.Decode(f.Body); err != nil {
		p.fail(err)
		return
	}
	count, timed, err := wire.CheckPublished(pub.Records, p.maxPayload, p.internal)
	if err == nil && count > 1 && len(pub.Records) > wire.MaxBatchBytes {
		err = core.Errorf(core.CodeTooLarge, "a publish frame of %d bytes; several records may have %d, a larger one travels alone", len(pub.Records), wire.MaxBatchBytes)
	}
	if err == nil && (count == 0 || count > wire.MaxBatchRecords) {
		err = core.Errorf(core.CodeBadFrame, "a publish frame of %d records; 1 to %d are allowed", count, wire.MaxBatchRecords)
	}
	if err != nil {
		p.fail(err)
		return
	}
	bytes := int64(len(pub.Records))
	if p.inFlight.Add(bytes) > int64(h.cfg.Window)+int64(wire.MaxPayload) {
		p.inFlight.Add(-bytes)
		p.fail(core.Errorf(core.CodeTooLarge, "more than the window of %d bytes in flight", h.cfg.Window))
		return
	}
	records, hold := keep(pub.Records, m)
	c := writer.Chunk{Records: records, Hold: hold, Count: uint32(count), First: pub.First, Arrived: h.deps.now(), From: p}
	p.queue.gate.Hold(bytes)
	if cost := bytes + chunkCost; h.inFlight.Add(cost)-cost >= h.cfg.MaxInFlight {
		h.metrics.throttled.WithLabelValues(limitHost).Add(float64(c.Count))
		p.throttle(c.Arrived, throttleMin)
		p.Answer(c, writer.Refused(core.CodeThrottled))
		return
	}
	if !p.internal {
		if c = p.admit(c); c.Count == 0 {
			return
		}
	}
	h.metrics.received(int(c.Count), len(c.Records))
	if timed {
		p.publishTimed(c)
		return
	}
	p.queue.publish(p, c)
}

// chunkCost is what a chunk takes beside its records, about, in bytes.
const chunkCost = 256

// overdraft is for how long the publishers of a CP queue may owe their rate before they are refused instead of told to
// wait.
const overdraft = 5 * time.Second

// admit charges a chunk to the limits of its namespace and its queue, and refuses what is over them: the rest of it,
// perhaps all.
func (p *publisher) admit(c writer.Chunk) writer.Chunk {
	gate := p.queue.gate
	messages, bytes, over := gate.Ask(int(c.Count), len(c.Records), c.Arrived)
	if over == nil {
		gate.Charge(messages, bytes, c.Arrived)
		return c
	}
	if p.queue.ordered && over.Limit != tenant.LimitBacklog && over.Why.RetryAfter < overdraft { // a refusal would end its session
		gate.Charge(int(c.Count), len(c.Records), c.Arrived)
		p.throttle(c.Arrived, over.Why.RetryAfter)
		return c
	}
	head, n := 0, 0
	for ; n < messages && head < bytes; n++ {
		record, _, err := wire.NextRecord(c.Records[head:])
		if err != nil || n > 0 && head+len(record) > bytes {
			break
		}
		head += len(record)
	}
	rest := c
	if n > 0 {
		gate.Charge(n, head, c.Arrived)
		c.Hold.Retain()
		p.s.h.inFlight.Add(chunkCost)
		rest.Records, rest.First, rest.Count = c.Records[head:], c.First+uint64(n), c.Count-uint32(n)
	}
	c.Records, c.Count = c.Records[:head], uint32(n)
	if rest.Count > 0 {
		p.s.h.metrics.throttled.WithLabelValues(string(over.Limit)).Add(float64(rest.Count))
		p.explain(over.Why)
		p.throttle(c.Arrived, over.Why.RetryAfter)
		p.Answer(rest, writer.Refused(core.CodeThrottled))
	}
	return c
}

// keep holds the message that records are a part of, or a copy of them when they are a small part of its buffer: a
// queue that cannot be written must not keep what other queues sent along, which nobody counts.
func keep(records []byte, m *ws.Message) ([]byte, *ws.Message) {
	if 4*len(records) < cap(m.Bytes) {
		m = ws.Copy(records)
		return m.Bytes, m
	}
	m.Retain()
	return records, m
}

// Publishers that are over a limit are told to come back after it has room, or throttleMin, and up to throttleSpread,
// so that not all come at once; and they are not told again before.
const (
	throttleMin    = 100 * time.Millisecond
	throttleMax    = 10 * time.Second
	throttleSpread = 100 * time.Millisecond
)

func (p *publisher) throttle(now time.Time, wait time.Duration) {
	if now.Before(p.throttled) {
		return
	}
	wait = min(max(wait, throttleMin), throttleMax) + rand.N(throttleSpread)
	p.throttled = now.Add(wait)
	body, err := proto.Marshal(&pb.Throttled{RetryAfter: durationpb.New(wait)})
	if err == nil {
		p.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeThrottled, p.stream, body))
	}
}

// Gone implements writer.Publisher.
func (p *publisher) Gone() bool { return p.ended.Load() || p.away() }

// away: nobody is there to be answered.
func (p *publisher) away() bool { return p.closed.Load() || p.s.gone.Load() }

// Answer implements writer.Publisher. A publisher that does not read its answers is cut off.
func (p *publisher) Answer(c writer.Chunk, o writer.Outcome) {
	if p.queue.ordered && o.Status != wire.AckOK {
		p.ended.Store(true) // what came after it must not be stored before it
	}
	bytes := int64(len(c.Records))
	p.inFlight.Add(-bytes)
	p.s.h.inFlight.Add(-bytes - chunkCost)
	p.queue.gate.Settle(bytes)
	c.Hold.Release()
	p.s.h.metrics.answered(o, c, p.s.h.deps.now())
	if p.away() {
		return
	}
	if c.Part != nil {
		p.answerRuns(c.Part.Runs, o)
		return
	}
	p.ack(wire.PublishAck{Runs: []wire.AckRun{{First: c.First, Count: c.Count, Status: o.Status, Extent: o.Extent, Base: o.Base, Code: o.Code}}})
}

// maxAckRuns bounds the runs of one frame.
const maxAckRuns = 4096

// answerRuns tells what became of records that are not numbered one after another.
func (p *publisher) answerRuns(runs []writer.Run, o writer.Outcome) {
	base := o.Base
	for some := range slices.Chunk(runs, maxAckRuns) {
		ack := wire.PublishAck{Runs: make([]wire.AckRun, len(some))}
		for i, r := range some {
			ack.Runs[i] = wire.AckRun{First: r.First, Count: r.Count, Status: o.Status, Extent: o.Extent, Base: base, Code: o.Code}
			base += core.Seq(r.Count)
		}
		p.ack(ack)
	}
}

func (p *publisher) ack(ack wire.PublishAck) {
	b, at := wire.BeginFrame(make([]byte, 0, 64), wire.TypePublishAck, 0, p.stream)
	b = ack.Append(b)
	wire.EndFrame(b, at)
	p.s.mux.Conn.Post(b)
}
