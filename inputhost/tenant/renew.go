package tenant

import (
	"context"
	"sync"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
)

// round is one round of questions to the controllers.
type round struct {
	now   time.Time // before they were put
	since float64   // seconds since those of the round before
	parts map[string]*part
	// limited are the namespaces with rates, and gates the queues whose backlogs have limits.
	limited map[string]*tenant
	gates   map[core.QueueID]*Gate
	marks   map[*Gate]int64
}

// part is the question to the controllers of one order.
type part struct {
	key  core.ID
	req  *pb.LeaseQuotaRequest
	resp *pb.LeaseQuotaResponse
	err  error
}

// renew asks the controllers for the shares of all that is limited; busy: there is such. Without an answer leases end
// in their time.
func (t *Tenants) renew(ctx context.Context) (busy bool) {
	r := t.round(t.deps.Now())
	if len(r.parts) == 0 {
		return false
	}
	t.asked = r.now
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range r.parts {
		wg.Go(func() { p.resp, p.err = t.deps.Lease(cctx, p.key, p.req) })
	}
	wg.Wait()
	var failed error
	for _, p := range r.parts {
		if p.err != nil {
			failed = p.err
		} else {
			t.take(r, p.resp)
		}
	}
	if ctx.Err() == nil {
		t.said(failed)
	}
	t.notAnswered(r.limited)
	return true
}

// round makes the questions: one for each order of controllers.
func (t *Tenants) round(now time.Time) *round {
	r := &round{
		now: now, since: min(max(now.Sub(t.asked), 100*time.Millisecond), 10*time.Second).Seconds(), parts: make(map[string]*part),
		limited: make(map[string]*tenant), gates: make(map[core.QueueID]*Gate), marks: make(map[*Gate]int64),
	}
	orders := make(map[core.ID]string)
	of := func(n *tenant) *pb.LeaseQuotaRequest {
		key := quota.Key(n.name)
		order, known := orders[key]
		if !known {
			order = t.deps.Order(key)
			orders[key] = order
		}
		p := r.parts[order]
		if p == nil {
			p = &part{key: key, req: &pb.LeaseQuotaRequest{}}
			r.parts[order] = p
		}
		return p.req
	}
	tenants, gates := t.list()
	used := make(map[*tenant]bool)
	for _, g := range gates {
		used[g.tenant] = true
		if g.backlogged() {
			r.gates[g.queue], r.marks[g] = g, g.room.Mark()
			req := of(g.tenant)
			req.Queues = append(req.Queues, g.fill(r.since))
		}
	}
	for _, n := range tenants {
		if limits := n.limits.Load(); limits != nil && used[n] && (limits.MessagesPerSecond > 0 || limits.BytesPerSecond > 0) {
			r.limited[n.name] = n
			req := of(n)
			req.Namespaces = append(req.Namespaces, n.need(r.since, now))
		}
	}
	return r
}

// take takes over what was leased.
func (t *Tenants) take(r *round, resp *pb.LeaseQuotaResponse) {
	for _, l := range resp.Namespaces {
		if n := r.limited[l.Namespace]; n != nil {
			n.lease(l, r.now.Add(quota.LeaseFor), t.deps.Now())
		}
	}
	for _, l := range resp.Queues {
		if id, err := core.IDFromBytes(l.Queue); err == nil {
			if g := r.gates[core.QueueID{ID: id}]; g != nil {
				g.room.Set(l.Room, r.marks[g])
			}
		}
	}
}

// said tells the log when questions fail, and when none does any more.
func (t *Tenants) said(err error) {
	switch {
	case err != nil && !t.failed:
		t.deps.Log.Warn("no controller divides the limits of some namespaces: when its quota ends, this host lets a tenth of an equal part pass; check the controllers", "err", err)
	case err == nil && t.failed:
		t.deps.Log.Info("controllers divide the limits of all namespaces again")
	}
	t.failed = err != nil
}

// notAnswered keeps those whose lease is over to a small part.
func (t *Tenants) notAnswered(limited map[string]*tenant) {
	now := t.deps.Now()
	for _, n := range limited {
		if limits := n.limits.Load(); limits != nil && !n.until.IsZero() && !now.Before(n.until) {
			n.alone(*limits, max(n.hosts, t.look()), now)
		}
	}
}

// need is what the tenant would publish each second: what it tried to, and more if it was held back.
func (n *tenant) need(since float64, now time.Time) *pb.NamespaceNeed {
	messages, bytes := float64(n.wanted.messages.Swap(0))/since, float64(n.wanted.bytes.Swap(0))/since
	if n.wanted.refused.Swap(false) {
		messages, bytes = max(messages, 2*n.granted.messages), max(bytes, 2*n.granted.bytes)
	}
	out := &pb.NamespaceNeed{Namespace: n.name, Messages: messages, Bytes: bytes}
	if now.Before(n.until) {
		out.HeldMessages, out.HeldBytes = n.granted.messages, n.granted.bytes
	}
	return out
}

func (n *tenant) lease(l *pb.NamespaceLease, until, now time.Time) {
	n.granted.messages, n.granted.bytes, n.hosts, n.until = l.Messages, l.Bytes, int(l.Hosts), until
	n.messages.Set(l.Messages, now)
	n.bytes.Set(l.Bytes, now)
}

// fill is what the queue has here that is not sealed.
func (g *Gate) fill(since float64) *pb.QueueFill {
	f := &pb.QueueFill{
		Queue: g.queue.ID[:], Need: float64(g.wanted.Swap(0)) / since, Pending: uint64(max(0, g.pending.Load())), Held: uint64(g.room.Left()),
	}
	for _, e := range g.fills() {
		f.Extents = append(f.Extents, &pb.ExtentFill{Extent: e.Extent.ID[:], Last: uint64(e.Last), Bytes: e.Bytes})
	}
	return f
}
