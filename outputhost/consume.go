package outputhost

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

const (
	// consumeReadLimit bounds a message from a consumer: the largest frame is a settlement of wire.MaxSettledRuns runs,
	// which has just over 1 MiB.
	consumeReadLimit = ws.MaxMessage + 64<<10
	// maxUnread is how many bytes of deliveries may wait to be written to a connection. Above it the streams of the
	// connection get no more: what is ready stays in its group, for other consumers. A group may go over it by what it
	// takes at once.
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

// Closed implements ws.StreamHandler. The consumer's messages stay locked until their timeout: tokens may live in
// another process.
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
		i, _ := g.placeLocked(c.id) // mostly it is the last one
		g.mu.consumers = slices.Insert(g.mu.consumers, i, c)
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

// close stops the deliveries and answers so, after those that are on their way. The consumer then returns what it will
// not hand out, and closes again: that ends the stream. A stream that has joined no group holds nothing, and ends at
// once.
func (c *consumer) close() {
	if c.closed.Load() {
		c.s.mux.Forget(c.stream)
		return
	}
	c.end()
	g := c.group.Load()
	if g == nil {
		c.s.mux.Forget(c.stream)
		c.answerClose()
		return
	}
	// Another goroutine may be sending what it chose for the consumer before end. The answer is left to the pump, which
	// goes on when that is sent.
	g.mu.Lock()
	x := g.creditsLocked()
	x.closing = append(x.closing, c)
	g.mu.Unlock()
	g.pump()
}

// answerClose says that nothing is delivered any more.
func (c *consumer) answerClose() {
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
	g.forgetCreditLocked(c)
	if i, there := g.placeLocked(c.id); there {
		g.mu.consumers = slices.Delete(g.mu.consumers, i, i+1)
	}
	g.mu.rules.Leave(c.id)
	idle := g.idleReadersLocked()
	g.mu.Unlock()
	stopAll(idle)
	g.pump()
}

// clipName cuts a consumer's name to the bytes that records keep of it, at the end of a character: half a one is no
// text for protobuf.
func clipName(s string) string {
	n := min(len(s), wire.MaxConsumerName)
	for n < len(s) && n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// tellRoutes tells the consumers of all groups, once hosts came or went. It gives up those that it does not come to
// within Config.CallTimeout: refresh tells them.
func (h *Host) tellRoutes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	for _, g := range h.groupList() {
		g.tellRoute(ctx)
	}
}

// tellRoute sends the group's consumers the complete list of the hosts that they shall be connected to, when it is not
// the one they were sent last. A host that drains names the others.
func (g *group) tellRoute(ctx context.Context) {
	g.mu.Lock()
	wanted := len(g.mu.consumers) > 0
	g.mu.Unlock()
	if !wanted {
		return
	}
	hosts, err := g.route(ctx)
	if err != nil {
		g.h.log.Debug("cannot read the owners of a group; its consumers keep their connections", "group", g.name, "err", err)
		return
	}
	self := g.h.deps.Members.Self().ID
	if g.h.draining.Load() {
		hosts = slices.DeleteFunc(hosts, func(m membership.Host) bool { return m.ID == self })
	}
	if len(hosts) == 0 {
		return
	}
	m := &pb.Reconfigure{Version: uint64(g.h.deps.Now().UnixMicro())}
	var key strings.Builder
	for _, o := range hosts {
		m.Hosts = append(m.Hosts, &pb.HostAddress{Id: string(o.ID), Address: o.Address})
		key.WriteString(string(o.ID) + " " + o.Address + " " + o.Run.String() + "\n") // a new run has to be connected to again
	}
	body, err := proto.Marshal(m)
	if err != nil {
		g.h.log.Error("cannot encode a list of hosts for consumers", "group", g.name, "err", err)
		return
	}
	var tell []*consumer
	g.mu.Lock()
	for _, c := range g.mu.consumers {
		if c.told != key.String() {
			c.told = key.String()
			tell = append(tell, c)
		}
	}
	g.mu.Unlock()
	for _, c := range tell {
		c.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeReconfigure, c.stream, body))
	}
}

// route are the hosts that consumers of the group shall be connected to.
func (g *group) route(ctx context.Context) ([]membership.Host, error) {
	outputs := g.h.deps.Members.Hosts("outputhost")
	owners := make(map[core.HostID]bool)
	if len(outputs) > membership.ConsumeHosts {
		all, err := metadata.Assigned(ctx, g.h.deps.Meta, g.id, metadata.One)
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			owners[a.Owner] = true
		}
	}
	return membership.Consume(outputs, g.id, owners), nil
}
