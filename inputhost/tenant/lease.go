package tenant

import (
	"context"
	"slices"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

const (
	// readAnyway is when the limits are read also though nothing is said to have changed.
	readAnyway = 30 * time.Second
	// retryAfter is the pause after a call that failed; roundPause is between two rounds at least.
	retryAfter = 500 * time.Millisecond
	roundPause = 5 * time.Millisecond
	// callTimeout bounds one call.
	callTimeout = 2 * time.Second
)

// Watch has the limits read again when one changes, until ctx ends. A watch that was lost begins with a change.
func (t *Tenants) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.deps.Meta.Watch(ctx, metadata.Namespaces, metadata.PartitionID, func() {
			t.changed.Store(true)
			t.again()
		})
		if ctx.Err() != nil {
			return
		}
		t.deps.Log.Info("cannot watch the limits of namespaces", "err", err)
		sleep(ctx, callTimeout)
	}
}

// Run reads limits and renews leases until ctx ends. While nothing is limited it waits.
func (t *Tenants) Run(ctx context.Context) {
	timer := time.NewTimer(readAnyway)
	defer timer.Stop()
	var read time.Time
	for {
		select {
		case <-t.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := readAnyway
		now := t.deps.Now()
		all := t.changed.Swap(false) || now.Sub(read) >= readAnyway
		if err := t.read(ctx, all); err == nil && all {
			read = now
		} else if err != nil && ctx.Err() == nil {
			t.deps.Log.Info("cannot read the limits of namespaces", "err", err)
			if all {
				t.changed.Store(true)
			}
			next = retryAfter
		}
		if t.renew(ctx) {
			next = min(next, quota.RenewEvery)
		}
		t.forget(t.deps.Now())
		timer.Reset(next)
		sleep(ctx, roundPause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// read reads the records of the namespaces that are new here, or of all. A copy that is behind must not make a limit appear late: so it is no
// single one.
func (t *Tenants) read(ctx context.Context, all bool) error {
	tenants, _ := t.list()
	if !all {
		tenants = slices.DeleteFunc(tenants, func(n *tenant) bool { return isClosed(n.known) })
	}
	if len(tenants) == 0 {
		return nil
	}
	keys := make([]metadata.Key, len(tenants))
	for i, n := range tenants {
		keys[i] = metadata.NamespaceKey(n.name)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := metadata.GetRows(ctx, t.deps.Meta, metadata.Namespaces, keys, metadata.Quorum)
	if err != nil {
		return err
	}
	found := make(map[metadata.Key]metadata.Row, len(rows))
	for _, row := range rows {
		found[row.Key] = row
	}
	for i, n := range tenants {
		spec := core.NamespaceSpec{Name: n.name}
		if row, there := found[keys[i]]; there {
			record, derr := metadata.Decode[metadata.NamespaceRecord](metadata.Namespaces, row)
			if derr != nil {
				err = derr
				continue
			}
			spec = record.Spec
		}
		t.apply(n, spec)
	}
	return err
}

// apply takes over limits that were read. New ones count in part until the controller has shared them out, which is asked for at once.
func (t *Tenants) apply(n *tenant, spec core.NamespaceSpec) {
	before := n.limits.Load()
	if before == nil {
		before = &core.NamespaceSpec{Name: n.name}
	}
	if *before == spec && isClosed(n.known) {
		return
	}
	hosts := max(n.hosts, t.look())
	if spec.MessagesPerSecond != before.MessagesPerSecond || spec.BytesPerSecond != before.BytesPerSecond {
		n.alone(spec, hosts, t.deps.Now())
	}
	if spec == (core.NamespaceSpec{Name: spec.Name}) {
		n.limits.Store(nil)
	} else {
		n.limits.Store(&spec)
	}
	if spec.BacklogBytes > 0 && before.BacklogBytes == 0 {
		_, gates := t.list()
		for _, g := range gates {
			if g.tenant == n && g.cap.Load() == 0 {
				g.room.Set(t.alone(spec.BacklogBytes), g.room.Mark())
			}
		}
	}
	if !isClosed(n.known) {
		close(n.known)
	}
}

// alone keeps a tenant to a small part of its limits: nobody says what its share is.
func (n *tenant) alone(spec core.NamespaceSpec, hosts int, now time.Time) {
	n.until = time.Time{}
	n.granted.messages = quota.Alone(float64(spec.MessagesPerSecond), hosts)
	n.granted.bytes = quota.Alone(float64(spec.BytesPerSecond), hosts)
	n.messages.Set(n.granted.messages, now)
	n.bytes.Set(n.granted.bytes, now)
}

// renew asks the controller for the shares of all that is limited; busy: there is such. Without an answer leases end in their time.
func (t *Tenants) renew(ctx context.Context) (busy bool) {
	now := t.deps.Now()
	tenants, gates := t.list()
	req := &pb.LeaseQuotaRequest{}
	since := min(max(now.Sub(t.asked), 100*time.Millisecond), 10*time.Second).Seconds()
	byName, used := make(map[string]*tenant), make(map[*tenant]bool)
	for _, g := range gates {
		used[g.tenant] = true
	}
	for _, n := range tenants {
		if limits := n.limits.Load(); limits != nil && used[n] && limits.MessagesPerSecond+limits.BytesPerSecond > 0 {
			byName[n.name] = n
			req.Namespaces = append(req.Namespaces, n.need(since))
		}
	}
	byQueue := make(map[core.QueueID]*Gate)
	marks := make(map[*Gate]int64)
	for _, g := range gates {
		if g.backlogged() {
			byQueue[g.queue] = g
			marks[g] = g.room.Mark()
			req.Queues = append(req.Queues, g.fill(since))
		}
	}
	if len(byName)+len(byQueue) == 0 {
		return false
	}
	t.asked = now
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := t.deps.Lease(cctx, req)
	if err != nil {
		t.notAnswered(ctx, err, byName)
		return true
	}
	if t.failed {
		t.failed = false
		t.deps.Log.Info("the controller divides the limits of namespaces again")
	}
	for _, l := range resp.Namespaces {
		if n := byName[l.Namespace]; n != nil {
			n.lease(l, now.Add(quota.LeaseFor), t.deps.Now())
		}
	}
	for _, l := range resp.Queues {
		if id, err := core.IDFromBytes(l.Queue); err == nil {
			if g := byQueue[core.QueueID{ID: id}]; g != nil {
				g.room.Set(l.Room, marks[g])
			}
		}
	}
	return true
}

// notAnswered keeps those whose lease is over to a small part.
func (t *Tenants) notAnswered(ctx context.Context, err error, limited map[string]*tenant) {
	now := t.deps.Now()
	if !t.failed && ctx.Err() == nil {
		t.failed = true
		t.deps.Log.Warn("no controller divides the limits of namespaces: when its quota ends, this host lets a tenth of an equal part pass; check the controller", "err", err)
	}
	for _, n := range limited {
		if limits := n.limits.Load(); limits != nil && !n.until.IsZero() && !now.Before(n.until) {
			n.alone(*limits, max(n.hosts, t.look()), now)
		}
	}
}

// need is what the tenant would publish each second: what it tried to, and more if it was held back.
func (n *tenant) need(since float64) *pb.NamespaceNeed {
	messages, bytes := float64(n.wanted.messages.Swap(0))/since, float64(n.wanted.bytes.Swap(0))/since
	if n.wanted.refused.Swap(false) {
		messages, bytes = max(messages, 2*n.granted.messages), max(bytes, 2*n.granted.bytes)
	}
	return &pb.NamespaceNeed{Namespace: n.name, Messages: messages, Bytes: bytes}
}

func (n *tenant) lease(l *pb.NamespaceLease, until, now time.Time) {
	n.granted.messages, n.granted.bytes, n.hosts, n.until = l.Messages, l.Bytes, int(l.Hosts), until
	n.messages.Set(l.Messages, now)
	n.bytes.Set(l.Bytes, now)
}

// fill is what the queue has here that is not sealed.
func (g *Gate) fill(since float64) *pb.QueueFill {
	f := &pb.QueueFill{Queue: g.queue.ID[:], Need: float64(g.wanted.Swap(0)) / since, Pending: uint64(max(0, g.pending.Load()))}
	for _, e := range g.fills() {
		f.Extents = append(f.Extents, &pb.ExtentFill{Extent: e.Extent.ID[:], Last: uint64(e.Last), Bytes: e.Bytes})
	}
	return f
}
