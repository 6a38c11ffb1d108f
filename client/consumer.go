package client

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Consumer receives the messages of one group of a queue from all output hosts that serve it. It makes lost connections
// again without the caller noticing, and deliveries of a lost connection can still be settled. Safe for concurrent use.
type Consumer struct {
	c            *Client
	queue, group string
	opts         consumerOptions
	inbox        *inbox
	settler      *settler
	epoch        time.Time // of the consumer's clock

	ctx         context.Context // of the consumer's goroutines
	cancel      context.CancelFunc
	wg          sync.WaitGroup // of the streams' senders, and of the attempts to connect
	done        chan struct{}  // closed when every goroutine has ended
	wake        chan struct{}  // the route has to be looked at
	connected   chan struct{}  // closed with the first stream
	connectOnce sync.Once
	lockTimeout atomic.Int64

	mu struct {
		sync.Mutex
		closed   bool
		streams  map[core.HostID]*consumeStream
		reaching map[core.HostID]bool // being connected to, or waited for after a failure
		failures map[core.HostID]int  // to connect, in a row
		part     wire.Credit          // of the prefetch, for each host
		hosts    []consumeHost        // told by a host; nil: look up
		hasHosts bool
		lastErr  error
		groupID  string // as the first host told it
	}
}

const (
	defaultPrefetch      = 2000
	defaultPrefetchBytes = 8 << 20
	// closeTimeout bounds how long Close and Work try to hand in what they hold.
	closeTimeout = 10 * time.Second
	// giveUpTimeout is the same for a consumer that was not connected in time. Its caller waits no more.
	giveUpTimeout = time.Second
	// maxAsked is what a host keeps of the credit of one stream: the rest would be forgotten.
	maxAsked = 1 << 20
)

// Consumer connects to the output hosts of a group. It fails at once if queue or group does not exist. Otherwise it
// retries until ctx ends; if ctx has no deadline, until the client's timeout.
func (c *Client) Consumer(ctx context.Context, queue, group string, opts ...ConsumerOption) (*Consumer, error) {
	var o consumerOptions
	for _, opt := range opts {
		opt.applyConsumer(&o)
	}
	return c.consumer(ctx, queue, group, o)
}

func (c *Client) consumer(ctx context.Context, queue, group string, o consumerOptions) (*Consumer, error) {
	if _, err := core.ParseAnyQueuePath(queue); err != nil {
		return nil, err
	}
	if _, err := core.ParseGroupName(group); err != nil {
		return nil, err
	}
	if o.prefetch <= 0 {
		o.prefetch = defaultPrefetch
	}
	if o.prefetchBytes <= 0 {
		o.prefetchBytes = defaultPrefetchBytes
	}
	o.prefetch = min(o.prefetch, maxAsked)
	con := &Consumer{
		c: c, queue: queue, group: group, opts: o, inbox: newInbox(o.limit),
		wake: make(chan struct{}, 1), connected: make(chan struct{}), done: make(chan struct{}), epoch: time.Now(),
	}
	con.settler = newSettler(con)
	con.mu.streams = make(map[core.HostID]*consumeStream)
	con.mu.reaching, con.mu.failures = make(map[core.HostID]bool), make(map[core.HostID]int)
	con.ctx, con.cancel = context.WithCancel(c.ctx)
	if err := c.start(con.run); err != nil {
		con.cancel()
		return nil, err
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	select {
	case <-con.connected:
		return con, nil
	case <-con.inbox.ended:
		err := con.inbox.err()
		con.Close(ctx)
		return nil, err
	case <-ctx.Done():
		select {
		case <-con.connected: // at the same time
			return con, nil
		default:
		}
		con.mu.Lock()
		err := con.mu.lastErr
		con.mu.Unlock()
		if err == nil {
			err = context.Cause(ctx)
		}
		con.giveUp(ctx)
		code := core.CodeUnavailable
		if core.CodeOf(err) == core.CodeNoMajority { // it says what to do
			code = core.CodeNoMajority
		}
		return nil, core.Errorf(code, "connect to an output host of %s for group %s: %w", queue, group, err)
	}
}

// Deliveries yields messages until ctx ends, the consumer is closed or has yielded its Limit (all without an error), or
// it fails for good. Settle every delivery with Ack, Nack, Reject or Release; otherwise it is delivered again after the
// group's lock timeout. Several goroutines may range at once; each message goes to one of them.
//
// A message that waited in the prefetch for a quarter of the lock timeout (15 s of the default 60 s) is released, not
// yielded. If the loop needs longer than that for its prefetched messages, use a smaller Prefetch.
//
// While the group or its queue is disabled or send-only, no message is delivered: that is yielded once as ErrDisabled.
// A caller that keeps ranging, or ranges again, gets the messages when the group is enabled again. Earlier deliveries
// may be settled meanwhile. Every other error is the last.
func (c *Consumer) Deliveries(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		for heard := c.inbox.heard(); ; {
			d, more, err := c.inbox.next(ctx, &heard)
			if d == nil && err == nil || !yield(d, err) || !more {
				return
			}
		}
	}
}

// LockTimeout is the lock timeout of the group, as a host told it last. A change arrives within seconds (output hosts
// read settings every 2 s); earlier deliveries keep the timeout with which they were locked. 0: the group is
// at-most-once, or the timeout is not known yet.
func (c *Consumer) LockTimeout() time.Duration { return time.Duration(c.lockTimeout.Load()) }

// Connected reports whether the consumer has a connection to an output host of its group now. Without one it receives
// nothing, and tries again.
func (c *Consumer) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.streams) > 0
}

// Flush waits until the hosts of the group have applied every settlement made before it, or refused it (see OnRefused).
// A host saves applied settlements within about a second. It fails with ErrUnavailable when ctx ends first.
func (c *Consumer) Flush(ctx context.Context) error {
	for _, s := range c.streams() {
		if err := s.out.flush(ctx); err != nil {
			return core.Errorf(core.CodeUnavailable, "flush consumer of %s: %w", c.queue, err)
		}
	}
	if err := c.settler.flush(ctx); err != nil { // after the streams: it has what those that were lost left behind
		return core.Errorf(core.CodeUnavailable, "flush consumer of %s: %w", c.queue, err)
	}
	return nil
}

// now is on the consumer's clock, which nobody sets: ns since the consumer began. Never 0.
func (c *Consumer) now() int64 { return c.at(time.Now()) }

func (c *Consumer) at(t time.Time) int64 { return int64(t.Sub(c.epoch)) + 1 }

// resettle has settlements sent again that a stream could not bring to an end, for as long as their locks last from
// now, at most. repeated: the host may have applied them.
func (c *Consumer) resettle(all []settlement, lasts time.Duration, repeated bool) {
	if len(all) == 0 || c.inbox.once() {
		return
	}
	now := c.now()
	for i := range all {
		all[i].asked, all[i].until, all[i].repeated = now, now+int64(lasts), repeated
	}
	c.settler.add(all...)
}

// refusedSettlement tells the application, and Work if the lock is lost with it. Of a return nobody is told: the
// application has not seen the message, or has done with it.
func (c *Consumer) refusedSettlement(verb wire.FrameType, at core.Receipt, attempt int, err error) {
	c.c.opts.log.Debug("settlement refused", "queue", c.queue, "group", c.group, "receipt", at, "err", err)
	if verb == wire.TypeReturn {
		return
	}
	if verb == wire.TypeExtend && c.opts.watch != nil {
		c.opts.watch.lost(at, attempt, err)
	}
	if c.opts.refused != nil {
		c.opts.refused(Refusal{Receipt: at, Attempt: attempt, Err: err})
	}
}

// refusal is the error of a settlement that an output host refused.
func refusal(host core.HostID, code core.Code) error {
	if code != core.CodeStale {
		return core.Errorf(code, "output host %s refused the settlement (%s)", host, code)
	}
	return core.Errorf(code, "output host %s refused the settlement (%s): the lock has ended, the message was settled, or a seek moved the group; "+
		"stop the work on this delivery: a message that is not settled comes again", host, code)
}

// extended notes a lock that was extended by a call.
func (c *Consumer) extended(at core.Receipt, attempt int, until int64) {
	if c.opts.watch != nil {
		c.opts.watch.extended(at, attempt, until)
	}
}

// notExtended notes a lock that a host refused to extend.
func (c *Consumer) notExtended(x settlement) {
	if c.opts.watch != nil && x.verb == wire.TypeExtend {
		c.opts.watch.notExtended(core.Receipt{Extent: x.extent.id, Seq: x.run.Base}, int(x.run.Attempt))
	}
}

// Close stops receiving, sends the settlements made so far and releases the messages that were never yielded: their
// attempts do not count. Deliveries not settled by then come again after the lock timeout. It stops trying when ctx
// ends, at the latest after 10 s.
func (c *Consumer) Close(ctx context.Context) error {
	c.mu.Lock()
	again := c.mu.closed
	c.mu.closed = true
	c.mu.Unlock()
	if again {
		<-c.done
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	c.inbox.end(nil)
	for _, s := range c.streams() {
		s.out.stopCredit()
	}
	c.inbox.giveBack(func(*slab) bool { return true })
	c.inbox.forget(func(*slab) bool { return true })
	var wg sync.WaitGroup
	for _, s := range c.streams() {
		wg.Go(func() { s.silence(ctx) }) // what arrives until then goes back at once
	}
	wg.Wait()
	err := c.Flush(ctx)
	for _, s := range c.streams() {
		s.leave()
	}
	c.cancel()
	<-c.done
	return err
}

// giveUp closes a consumer that nobody gets, since ctx has ended. A host that was connected to just then may have
// delivered messages already: they go back, or they would stay locked for the lock timeout.
func (c *Consumer) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	c.Close(ctx)
}

func (c *Consumer) streams() []*consumeStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*consumeStream, 0, len(c.mu.streams))
	for _, s := range c.mu.streams {
		out = append(out, s)
	}
	return out
}

// fail ends the consumer for good.
func (c *Consumer) fail(err error) { c.inbox.end(err) }

// refused takes an error that trying again does not mend: it ends the consumer, unless it has been delivered to and may
// be again.
func (c *Consumer) refused(err error) {
	select {
	case <-c.connected:
		if core.CodeOf(err) == core.CodeDisabled {
			c.pause(err)
			return
		}
	default:
	}
	c.fail(err)
}

// pause gives back what the application has not seen: the group may not be consumed for now. In a group that delivers
// at most once it would be lost: there it is yielded first.
func (c *Consumer) pause(why error) {
	if c.inbox.pause(why) {
		c.c.opts.log.Info("consuming pauses", "queue", c.queue, "group", c.group, "err", why)
	}
	if !c.inbox.once() {
		c.inbox.giveBack(func(*slab) bool { return true })
	}
}

// resume: the group may be consumed again.
func (c *Consumer) resume() {
	if c.inbox.resume() {
		c.c.opts.log.Info("consuming goes on", "queue", c.queue, "group", c.group)
	}
}

// isGroup reports whether a host speaks of the group that the others did. One that was made under the same names since
// is another: it begins with a consumer of its own.
func (c *Consumer) isGroup(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.groupID == "" {
		c.mu.groupID = id
	}
	return c.mu.groupID == id
}
