// Package quota owns the parts of limits that a controller leases to input hosts: publish rates of namespaces, and room
// in the backlogs of capped queues.
package quota

import (
	"context"
	"sync"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

// Sources are what a keeper learns backlogs from, beside the metadata and what input hosts tell it.
type Sources struct {
	Extents *catalog.Extents
	// Settled is how many messages of an extent a group has consumed, as of the last second or so.
	Settled func(ctx context.Context, g metadata.GroupRecord, id core.ExtentID) (uint64, error)
	// Alone: no other controller makes, seals or retires extents, so Extents has all of them.
	Alone  bool
	Duties Duties
	Inputs func() []core.RunID // of the input hosts that are there
}

// Keeper divides the limits of the namespaces that this controller is responsible for. It is safe for concurrent use.
type Keeper struct {
	Sources
	meta metadata.Store
	now  func() time.Time
	mu   struct {
		sync.Mutex
		namespaces map[string]*books
		queues     map[core.QueueID]*queueBook
		swept      time.Time
	}
}

// books are what is leased of one namespace.
type books struct {
	messages, bytes, room quota.Book
	handovers             uint64 // those of the tenure in which the books were begun
	used                  time.Time
	listed                []core.QueueID // its queues
	listedAt              time.Time
}

// queueBook is what is leased of one queue's cap, and what its backlog is.
type queueBook struct {
	room      quota.Book
	handovers uint64                 // those of the tenure in which the book was begun
	fills     map[core.ExtentID]fill // as input hosts told them
	pending   map[core.RunID]pending // the same
	backlog   backlog
	writers   map[core.RunID]struct{} // of the extents that had no end, when the backlog was measured
	looked    time.Time               // when the backlog was measured
	took      time.Duration           // to measure it
	used      time.Time
}

// pending is what a run said of a queue last.
type pending struct {
	bytes     uint64
	until     time.Time
	handovers uint64 // of the tenure in which it said so
}

type fill struct {
	last  core.Seq
	bytes uint64
	told  time.Time // last
}

const (
	// fresh is how old what is known of a backlog may be.
	fresh = time.Second
	// listFor is how long the list of a namespace's queues holds. One made since counts as soon as it is published to.
	listFor = 5 * time.Second
	// forgetAfter is when what nobody asks for is forgotten.
	forgetAfter = time.Minute
	// most of a request.
	mostNamespaces, mostQueues = 10_000, 10_000
	pageSize                   = 1000
)

// New makes a keeper.
func New(meta metadata.Store, now func() time.Time, sources Sources) *Keeper {
	k := &Keeper{Sources: sources, meta: meta, now: now}
	k.mu.namespaces = make(map[string]*books)
	k.mu.queues = make(map[core.QueueID]*queueBook)
	return k
}

// Lease answers a run of an input host. It reads limits first; what has none gets no lease, nor has what another controller is responsible for.
// CodeMoved: that is all of it.
func (k *Keeper) Lease(ctx context.Context, req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
	if len(req.Namespaces) > mostNamespaces || len(req.Queues) > mostQueues {
		return nil, core.Errorf(core.CodeTooLarge, "%d namespaces and %d queues in one request; at most %d and %d are allowed", len(req.Namespaces), len(req.Queues), mostNamespaces, mostQueues)
	}
	id, err := core.IDFromBytes(req.Run)
	if err != nil {
		return nil, err
	}
	run := core.RunID{ID: id}
	queues, err := k.readQueues(ctx, req.Queues)
	if err != nil {
		return nil, err
	}
	needs, queues, err := k.own(req.Namespaces, queues)
	if err != nil {
		return nil, err
	}
	limits, err := k.readLimits(ctx, needs, queues)
	if err != nil {
		return nil, err
	}
	k.takeFills(run, queues, k.Duties.Handovers())
	if err := k.measure(ctx, queues, limits); err != nil {
		return nil, err
	}
	if needs, queues, err = k.own(needs, queues); err != nil {
		return nil, err
	}
	return k.grant(run, needs, queues, limits, k.tenure()), nil
}

// asked is a queue of a request with its record.
type asked struct {
	id   core.QueueID
	spec core.QueueSpec
	fill *pb.QueueFill
}

func (k *Keeper) readQueues(ctx context.Context, fills []*pb.QueueFill) ([]asked, error) {
	keys := make([]metadata.Key, 0, len(fills))
	byKey := make(map[metadata.Key]*pb.QueueFill, len(fills))
	for _, f := range fills {
		id, err := core.IDFromBytes(f.Queue)
		if err != nil {
			return nil, err
		}
		key := metadata.QueueKey(core.QueueID{ID: id})
		keys = append(keys, key)
		byKey[key] = f
	}
	rows, err := metadata.GetRows(ctx, k.meta, metadata.Queues, keys, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "read the caps of queues: %w", err)
	}
	out := make([]asked, 0, len(rows))
	for _, row := range rows {
		q, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
		if err != nil {
			return nil, err
		}
		out = append(out, asked{q.ID, q.Spec, byKey[row.Key]})
	}
	return out, nil
}

// readLimits reads the limits of the namespaces that are asked for, and of those that the queues belong to.
func (k *Keeper) readLimits(ctx context.Context, needs []*pb.NamespaceNeed, queues []asked) (map[string]core.NamespaceSpec, error) {
	names := make(map[string]struct{}, len(needs))
	for _, n := range needs {
		names[n.Namespace] = struct{}{}
	}
	for _, q := range queues {
		names[core.Namespace(q.spec.Path)] = struct{}{}
	}
	keys := make([]metadata.Key, 0, len(names))
	for name := range names {
		if _, err := core.ParseNamespace(name); err != nil {
			return nil, err
		}
		keys = append(keys, metadata.NamespaceKey(name))
	}
	rows, err := metadata.GetRows(ctx, k.meta, metadata.Namespaces, keys, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "read the limits of namespaces: %w", err)
	}
	out := make(map[string]core.NamespaceSpec, len(rows))
	for _, row := range rows {
		r, err := metadata.Decode[metadata.NamespaceRecord](metadata.Namespaces, row)
		if err != nil {
			return nil, err
		}
		out[row.Key.Row] = r.Spec
	}
	return out, nil
}

// takeFills notes what a host has of queues that is not sealed. An extent with its end is counted by its row. One that is
// not known counts when another controller may have made it.
func (k *Keeper) takeFills(run core.RunID, queues []asked, handovers uint64) {
	now := k.now()
	ended := make(map[core.ExtentID]bool)
	for _, q := range queues {
		for _, e := range k.Extents.Of(q.id) {
			ended[e.ID] = e.State.HasEnd() || e.Home.Kind != core.HomeOwn
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, q := range queues {
		b := k.queueLocked(q.id)
		b.used = now
		b.pending[run] = pending{q.fill.Pending, now.Add(quota.LeaseFor), handovers}
		for _, e := range q.fill.Extents {
			raw, err := core.IDFromBytes(e.Extent)
			id := core.ExtentID{ID: raw}
			if over, known := ended[id]; err != nil || over || !known && k.Alone {
				continue
			}
			f := b.fills[id]
			b.fills[id] = fill{max(f.last, core.Seq(e.Last)), max(f.bytes, e.Bytes), now}
		}
	}
}

func (k *Keeper) queueLocked(id core.QueueID) *queueBook {
	b := k.mu.queues[id]
	if b == nil {
		b = &queueBook{fills: make(map[core.ExtentID]fill), pending: make(map[core.RunID]pending)}
		k.mu.queues[id] = b
	}
	return b
}

func (k *Keeper) namespaceLocked(name string, now time.Time) *books {
	b := k.mu.namespaces[name]
	if b == nil {
		b = &books{}
		k.mu.namespaces[name] = b
	}
	b.used = now
	return b
}

// grant writes the leases. It only computes.
func (k *Keeper) grant(run core.RunID, needs []*pb.NamespaceNeed, queues []asked, limits map[string]core.NamespaceSpec, t tenure) *pb.LeaseQuotaResponse {
	now := k.now()
	out := &pb.LeaseQuotaResponse{}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweepLocked(now)
	for _, n := range needs {
		spec, there := limits[n.Namespace]
		if !there {
			continue
		}
		b := k.namespaceLocked(n.Namespace, now).during(t)
		l := &pb.NamespaceLease{Namespace: n.Namespace}
		messages, hosts := b.messages.Grant(t.ask(run, n.Messages, n.HeldMessages), float64(spec.MessagesPerSecond), now)
		l.Messages, l.Hosts = messages, int32(hosts)
		l.Bytes, _ = b.bytes.Grant(t.ask(run, n.Bytes, n.HeldBytes), float64(spec.BytesPerSecond), now)
		out.Namespaces = append(out.Namespaces, l)
	}
	for name, part := range limited(queues, limits) {
		k.spreadLocked(run, name, part, limits[name], now, t, out)
	}
	return out
}

// limited sorts the queues whose backlog has a limit by namespace.
func limited(queues []asked, limits map[string]core.NamespaceSpec) map[string][]asked {
	byName := make(map[string][]asked)
	for _, q := range queues {
		name := core.Namespace(q.spec.Path)
		if q.spec.MaxBacklog > 0 || limits[name].BacklogBytes > 0 {
			byName[name] = append(byName[name], q)
		}
	}
	return byName
}

// spreadLocked gives a host room in the queues of one namespace: in each as much as its cap has, and in all of them what the namespace has.
// While the backlog is not known whole, the host keeps the room that it has.
func (k *Keeper) spreadLocked(run core.RunID, name string, queues []asked, limits core.NamespaceSpec, now time.Time, t tenure, out *pb.LeaseQuotaResponse) {
	rooms, needs := make([]float64, len(queues)), make([]float64, len(queues))
	total, held := 0.0, 0.0
	for i, q := range queues {
		needs[i] = max(q.fill.Need, 1)
		total += needs[i]
		held += float64(q.fill.Held)
		rooms[i] = -1
		if q.spec.MaxBacklog > 0 {
			b := k.queueLocked(q.id).during(t)
			free := float64(q.spec.MaxBacklog) - float64(b.size(now))
			rooms[i], _ = b.room.Grant(t.askRoom(run, needs[i], float64(q.fill.Held), b.untold(t)), free, now)
		}
	}
	if limits.BacklogBytes > 0 {
		b := k.namespaceLocked(name, now).during(t)
		used, untold := uint64(0), false
		for _, id := range b.listed {
			if q := k.mu.queues[id]; q != nil {
				used += q.size(now)
				untold = untold || q.untold(t)
			}
		}
		all, _ := b.room.Grant(t.askRoom(run, total, held, untold), float64(limits.BacklogBytes)-float64(used), now)
		for i, share := range quota.Split(all, needs) {
			if rooms[i] < 0 || share < rooms[i] {
				rooms[i] = share
			}
		}
	}
	for i, q := range queues {
		out.Queues = append(out.Queues, &pb.QueueLease{Queue: q.fill.Queue, Room: int64(rooms[i])})
	}
}

// sweepLocked forgets what nobody has asked for in a while.
func (k *Keeper) sweepLocked(now time.Time) {
	if now.Sub(k.mu.swept) < forgetAfter {
		return
	}
	k.mu.swept = now
	for name, b := range k.mu.namespaces {
		if now.Sub(b.used) > forgetAfter {
			delete(k.mu.namespaces, name)
		}
	}
	for id, b := range k.mu.queues {
		if now.Sub(b.used) > forgetAfter {
			delete(k.mu.queues, id)
		}
	}
}
