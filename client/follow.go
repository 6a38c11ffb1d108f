package client

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

const (
	helloTimeout = 10 * time.Second
	// refresh is how often a consumer that is connected to every host looks up the route all the same.
	refresh = 30 * time.Second
	// maxHosts bounds the output hosts of a route.
	maxHosts = 4096
)

// reconnect spaces the attempts to find and reach output hosts.
var reconnect = core.Backoff{Min: 50 * time.Millisecond, Factor: 2, Max: time.Second, Jitter: 0.3}

// run keeps a stream to each output host of the group, until the consumer is closed or the group is gone.
func (c *Consumer) run() {
	defer c.end()
	timer := time.NewTimer(refresh)
	defer timer.Stop()
	stale := time.NewTicker(time.Second)
	defer stale.Stop()
	if c.opts.limit > 0 {
		c.wg.Go(c.takeTurns)
	}
	c.wg.Go(func() { c.settler.run(c.ctx) })
	for failures := 0; c.ctx.Err() == nil; {
		err := c.follow()
		last := time.Now()
		switch {
		case err == nil:
			failures = 0
			timer.Reset(refresh)
		case core.CodeOf(err).Class() == core.ClassFatal:
			c.refused(err)
			fallthrough
		default:
			failures++
			timer.Reset(reconnect.Delay(failures, rand.Float64()))
		}
		if err != nil {
			c.noteError(err)
		}
		if !c.await(timer, stale, last) {
			return
		}
	}
}

// await returns when it is time to follow again: when the timer ends, or something has changed, but not at once after
// the last time. It is false when the consumer is closed or the group is gone.
func (c *Consumer) await(timer *time.Timer, stale *time.Ticker, last time.Time) bool {
	for {
		select {
		case <-c.ctx.Done():
			return false
		case <-c.inbox.ended:
			return false
		case <-stale.C:
			c.giveBackStale()
			stale.Reset(c.staleEvery())
		case <-c.wake: // not in a circle with a host that lets everyone in and throws them out
			left := time.Until(last.Add(reconnect.Min))
			if left <= 0 {
				return true
			}
			timer.Reset(left)
		case <-timer.C:
			return true
		}
	}
}

// takeTurns asks other hosts for the messages that the asked hosts do not send.
func (c *Consumer) takeTurns() {
	turn := time.NewTicker(turnTime)
	defer turn.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.inbox.ended:
			return
		case <-turn.C:
			c.inbox.turn()
		}
	}
}

func (c *Consumer) noteError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.lastErr = err
}

// staleEvery is the interval at which the inbox is searched for deliveries that wait too long.
func (c *Consumer) staleEvery() time.Duration {
	if c.LockTimeout() <= 0 {
		return time.Second
	}
	return max(100*time.Millisecond, min(c.LockTimeout()/8, core.MinLockTimeout/8)) // it may become as short as it can meanwhile
}

// end waits for Close, of the consumer or its client, and joins the senders. Until then a failed consumer keeps its
// streams, so that yielded deliveries can be settled.
func (c *Consumer) end() {
	<-c.ctx.Done()
	c.inbox.end(core.Errorf(core.CodeUnavailable, "client is closed"))
	for _, s := range c.streams() {
		s.leave()
	}
	c.wg.Wait()
	close(c.done)
}

// giveBackStale gives deliveries back that wait so long for the application that their lock might end before they are
// done.
func (c *Consumer) giveBackStale() {
	now := time.Now()
	stale := func(s *slab) bool {
		lock, _ := s.locked()
		return lock > 0 && now.Sub(s.received) > lock/4
	}
	c.inbox.giveBack(stale)
	c.inbox.forget(stale)
}

// follow makes the streams equal to the route. It does not wait for hosts that are not reached at once: one may stand
// still.
func (c *Consumer) follow() error {
	hosts, err := c.route()
	if err != nil {
		return err
	}
	if len(hosts) == 0 {
		return core.Errorf(core.CodeUnavailable, "group %s of %s has no output host now", c.group, c.queue)
	}
	part := wire.Credit{
		Messages: uint32(max(1, c.opts.prefetch/len(hosts))),
		Bytes:    uint64(max(1, c.opts.prefetchBytes/len(hosts))),
	}
	c.mu.Lock()
	c.mu.part = part
	live := maps.Clone(c.mu.streams)
	c.mu.Unlock()
	for _, h := range hosts {
		if s := live[h.id]; s != nil {
			s.setLimit(part)
			s.goOn()
			delete(live, h.id)
			continue
		}
		c.mu.Lock()
		busy := c.mu.reaching[h.id]
		c.mu.reaching[h.id] = true
		c.mu.Unlock()
		if !busy {
			c.wg.Go(func() { c.reach(h) })
		}
	}
	for _, s := range live { // no longer in the route: it stays for the settlements of what it delivered
		s.rest()
		if !c.inbox.once() { // else it would be lost
			c.inbox.giveBack(func(b *slab) bool { return b.carrier == s })
		}
	}
	c.inbox.forget(func(b *slab) bool { // nobody will greet for their hosts
		return !slices.ContainsFunc(hosts, func(h consumeHost) bool { return h.id == b.carrier.host.id })
	})
	return nil
}

// reach connects to a host. After a failure the consumer checks its route again after a pause.
func (c *Consumer) reach(h consumeHost) {
	err := c.connect(h)
	c.mu.Lock()
	if err == nil {
		delete(c.mu.failures, h.id)
	} else {
		c.mu.failures[h.id]++
	}
	n := c.mu.failures[h.id]
	c.mu.Unlock()
	switch {
	case err == nil:
	case core.CodeOf(err).Class() == core.ClassFatal:
		c.refused(err)
		fallthrough
	default:
		c.noteError(err)
		pause(c.ctx, reconnect.Delay(n, rand.Float64()))
	}
	c.mu.Lock()
	delete(c.mu.reaching, h.id)
	lost := c.mu.streams[h.id] == nil // perhaps while it counted as being reached
	c.mu.Unlock()
	if lost {
		signal(c.wake)
	}
}

// route returns the route that a host sent last; without one it asks a frontend.
func (c *Consumer) route() ([]consumeHost, error) {
	c.mu.Lock()
	told, hosts := c.mu.hasHosts, c.mu.hosts
	c.mu.hasHosts, c.mu.hosts = false, nil
	c.mu.Unlock()
	if told {
		return hosts, nil
	}
	res, err := read(c.ctx, c.c, c.c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: c.queue, Group: c.group})
	if err != nil {
		return nil, err
	}
	return hostsOf(res.Hosts)
}

// hostsOf is a route. Each of its hosts is connected to, by a goroutine of its own: CodeUnavailable for more than
// maxHosts.
func hostsOf(in []*pb.HostAddress) ([]consumeHost, error) {
	if len(in) > maxHosts {
		return nil, core.Errorf(core.CodeUnavailable, "a route names %d output hosts; at most %d are connected to", len(in), maxHosts)
	}
	out := make([]consumeHost, 0, len(in))
	for _, h := range in {
		out = append(out, consumeHost{id: core.HostID(h.Id), addr: h.Address})
	}
	return out, nil
}

// reconfigure accepts a route that a host sent.
func (c *Consumer) reconfigure(in []*pb.HostAddress) error {
	hosts, err := hostsOf(in)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.mu.hosts, c.mu.hasHosts = hosts, true
	c.mu.Unlock()
	signal(c.wake)
	return nil
}

func (c *Consumer) lookAgain() { signal(c.wake) }

// streamEnded removes a stream; if it was in use the consumer checks its route again.
func (c *Consumer) streamEnded(s *consumeStream, err error) {
	c.mu.Lock()
	known := c.mu.streams[s.host.id] == s
	if known {
		delete(c.mu.streams, s.host.id)
	}
	c.mu.Unlock()
	if known {
		c.c.opts.log.Info("output host lost", "queue", c.queue, "group", c.group, "host", s.host.id, "err", err)
		signal(c.wake)
	}
}

// connect opens a stream to a host and grants it the first credit.
func (c *Consumer) connect(h consumeHost) error {
	ctx, cancel := context.WithTimeout(c.ctx, helloTimeout)
	defer cancel()
	mux, err := c.c.links.get(ctx, h.addr, "/v1/consume")
	if err != nil {
		return err
	}
	s := &consumeStream{
		con: c, host: h, mux: mux, out: newOutbox(), hello: make(chan error, 2), ended: make(chan struct{}),
		quiet: make(chan struct{}),
	}
	s.extents.byHandle = make(map[uint32]*extentRef)
	if s.number, err = mux.Open(s); err != nil {
		return err
	}
	s.out.stream, s.out.budget = s.number, c.opts.limit > 0
	body, err := proto.Marshal(&pb.ConsumeHello{Queue: c.queue, Group: c.group, Client: c.c.opts.name, Tokens: c.opts.tokens, Resume: true})
	if err == nil {
		err = mux.Conn.Send(ctx, wire.AppendFrame(nil, wire.TypeConsumeHello, s.number, body))
	}
	if err == nil {
		select {
		case err = <-s.hello:
		case <-ctx.Done():
			err = core.Errorf(core.CodeUnavailable, "greet output host %s: %w", h.id, context.Cause(ctx))
		}
	}
	if err != nil {
		s.leave()
		return err
	}
	c.mu.Lock()
	part := c.mu.part
	c.mu.Unlock()
	c.inbox.resumed(s, int(part.Messages))
	c.mu.Lock()
	closed := c.mu.closed
	if !closed {
		c.mu.streams[h.id] = s
		s.setLimit(c.mu.part) // under the mutex: once the stream is known it may be given another
		c.wg.Go(func() { s.send(c.ctx) })
	}
	c.mu.Unlock()
	if closed || s.lost.Load() {
		s.leave()
		c.streamEnded(s, nil)
		return core.Errorf(core.CodeUnavailable, "output host %s went away", h.id)
	}
	c.resume()
	c.connectOnce.Do(func() { close(c.connected) })
	return nil
}
