// Package quota owns the parts of limits that a controller leases to input hosts: publish rates of namespaces, and room
// in the backlogs of capped queues.
package quota

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
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
	Log *slog.Logger
	// Wait blocks until work may start that nobody waits for.
	Wait    func(context.Context) error
	Extents *catalog.Extents
	// Settled is how many messages of an extent a group has consumed, as of the last second or so.
	Settled func(ctx context.Context, g metadata.GroupRecord, id core.ExtentID) (uint64, error)
	// Alone: no other controller makes, seals or retires extents, so Extents has all of them.
	Alone  bool
	Duties Duties
	Inputs func() []core.RunID // of the input hosts that are there
}

// Keeper divides the limits of the namespaces that this controller is responsible for. Run measures their backlogs, and
// Lease answers from the last results. It is safe for concurrent use.
type Keeper struct {
	Sources
	meta  metadata.Store
	now   func() time.Time
	specs *records[metadata.QueueRecord]
	rules *records[metadata.NamespaceRecord]
	wake  chan struct{} // capacity 1: a survey may be due
	slots chan struct{} // of the queues that are measured side by side
	mu    struct {
		sync.Mutex
		namespaces map[string]*books
		queues     map[core.QueueID]*queueBook
		swept      time.Time
		failures   core.Recurring // of surveys
	}
}

// books are what is leased of one namespace, and what is known of its backlog.
type books struct {
	messages, bytes, room quota.Book
	handovers             uint64 // those of the tenure in which the books were begun
	used                  time.Time
	limited               bool                       // all of its queues have one limit
	active                map[core.QueueID]time.Time // when hosts asked about queues whose backlogs have limits
	listed                map[core.QueueID]struct{}  // its queues, unless they are new
	listedAt              time.Time
	asked, others         survey // of the active queues, and of the other listed ones
}

// queueBook is what is leased of one queue's cap, and what its backlog is.
type queueBook struct {
	room      quota.Book
	handovers uint64                 // those of the tenure in which the book was begun
	fills     map[core.ExtentID]fill // as input hosts told them
	pending   map[core.RunID]pending // the same
	backlog   backlog
	ended     map[core.ExtentID]struct{} // the extents with an end that the backlog has
	writers   map[core.RunID]struct{}    // of the extents that had no end, when the backlog was measured
	tried     time.Time                  // to measure it, last
	looked    time.Time                  // when the measurement of backlog began; zero: there was none
	lookedIn  uint64                     // the handovers of the tenure in which that was
	namespace string
	used      time.Time
}

// pending is what a run said of a queue last.
type pending struct {
	bytes     uint64
	until     time.Time
	handovers uint64 // of the tenure in which it said so
}

const (
	// rulesFor and specsFor are how old the records of namespaces and queues may be.
	rulesFor, specsFor = time.Second, 3 * time.Second
	// forgetAfter is when what nobody asks for is forgotten.
	forgetAfter = time.Minute
	// most of a request.
	mostNamespaces, mostQueues = 10_000, 10_000
	// mostFills bounds the extents of a queue that hosts tell of and this controller does not know: they are new.
	mostFills = 1000
)

// New makes a keeper.
func New(meta metadata.Store, now func() time.Time, sources Sources) *Keeper {
	k := &Keeper{
		Sources: sources, meta: meta, now: now, wake: make(chan struct{}, 1), slots: make(chan struct{}, allAtOnce),
		specs: newRecords[metadata.QueueRecord](metadata.Queues, specsFor), rules: newRecords[metadata.NamespaceRecord](metadata.Namespaces, rulesFor),
	}
	k.mu.namespaces = make(map[string]*books)
	k.mu.queues = make(map[core.QueueID]*queueBook)
	return k
}

// Lease answers a run of an input host from what is known. It reads the records of queues and namespaces, within
// readFor. The answer lacks what has no limit, what another controller is responsible for, and what has a record that
// cannot be read. CodeMoved: another controller is responsible for all of it. CodeUnavailable: no record can be read.
func (k *Keeper) Lease(ctx context.Context, req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
	if len(req.Namespaces) > mostNamespaces || len(req.Queues) > mostQueues {
		return nil, core.Errorf(core.CodeTooLarge, "%d namespaces and %d queues in one request; at most %d and %d are allowed", len(req.Namespaces), len(req.Queues), mostNamespaces, mostQueues)
	}
	id, err := core.IDFromBytes(req.Run)
	if err != nil {
		return nil, err
	}
	run := core.RunID{ID: id}
	queues, unread, err := k.readQueues(ctx, req.Queues)
	if err != nil {
		return nil, err
	}
	needs, queues, err := k.own(req.Namespaces, queues)
	if err != nil {
		return nil, err
	}
	limits, needs, queues, err := k.readLimits(ctx, needs, queues, unread)
	if err != nil {
		return nil, err
	}
	k.takeFills(run, queues, limits, k.Duties.Handovers())
	k.want(queues, limits, k.tenure())
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

// readQueues are the queues of a request whose records are known; unread is why one is not.
func (k *Keeper) readQueues(ctx context.Context, fills []*pb.QueueFill) (out []asked, unread, err error) {
	keys := make([]metadata.Key, 0, len(fills))
	told := make(map[metadata.Key]*pb.QueueFill, len(fills)) // each queue once
	for _, f := range fills {
		id, err := core.IDFromBytes(f.Queue)
		if err != nil {
			return nil, nil, err
		}
		key := metadata.QueueKey(core.QueueID{ID: id})
		if told[key] == nil {
			keys, told[key] = append(keys, key), f
		}
	}
	there, unknown := k.specs.read(ctx, k.meta, keys, k.now())
	for _, key := range keys {
		if q, ok := there[key]; ok {
			out = append(out, asked{q.ID, q.Spec, told[key]})
		}
		if why := unknown[key]; why != nil {
			unread = core.Errorf(core.CodeOf(why), "read the caps of queues: %w", why)
		}
	}
	return out, unread, nil
}

// readLimits reads the limits of the namespaces that are asked for, and of those that the queues belong to. It leaves
// out what cannot be read; if that is all, it answers why, or unread.
func (k *Keeper) readLimits(ctx context.Context, needs []*pb.NamespaceNeed, queues []asked, unread error) (map[string]core.NamespaceSpec, []*pb.NamespaceNeed, []asked, error) {
	names := make(map[string]metadata.Key, len(needs))
	for _, n := range needs {
		names[n.Namespace] = metadata.NamespaceKey(n.Namespace)
	}
	for _, q := range queues {
		name := core.Namespace(q.spec.Path)
		names[name] = metadata.NamespaceKey(name)
	}
	keys := make([]metadata.Key, 0, len(names))
	for name, key := range names {
		if _, err := core.ParseNamespace(name); err != nil {
			return nil, nil, nil, err
		}
		keys = append(keys, key)
	}
	there, unknown := k.rules.read(ctx, k.meta, keys, k.now())
	limits := make(map[string]core.NamespaceSpec, len(there))
	for name, key := range names {
		if r, ok := there[key]; ok {
			limits[name] = r.Spec
		}
		if why := unknown[key]; why != nil {
			unread = core.Errorf(core.CodeOf(why), "read the limits of namespaces: %w", why)
		}
	}
	needs = slices.DeleteFunc(slices.Clone(needs), func(n *pb.NamespaceNeed) bool { return unknown[names[n.Namespace]] != nil })
	queues = slices.DeleteFunc(queues, func(q asked) bool { return unknown[names[core.Namespace(q.spec.Path)]] != nil })
	if len(needs)+len(queues) == 0 && unread != nil {
		return nil, nil, nil, unread
	}
	return limits, needs, queues, nil
}

// takeFills notes how far the extents of a host are, of the queues whose backlogs have limits. It leaves out those that
// were measured with their ends, and those that another run writes. An extent that is not known counts when another
// controller may have made it; the run that tells of it first is its writer then.
func (k *Keeper) takeFills(run core.RunID, queues []asked, limits map[string]core.NamespaceSpec, handovers uint64) {
	now := k.now()
	queues = slices.Concat(slices.Collect(maps.Values(limited(queues, limits)))...)
	others := make(map[core.ExtentID]bool) // its messages are for another queue's groups, or another run writes it
	for _, q := range queues {
		for _, e := range k.Extents.Of(q.id) {
			others[e.ID] = e.Home.Kind != core.HomeOwn || e.InputRun != run
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, q := range queues {
		b := k.queueLocked(q.id)
		b.used, b.namespace = now, core.Namespace(q.spec.Path)
		b.pending[run] = pending{q.fill.Pending, now.Add(quota.LeaseFor), handovers}
		for _, e := range q.fill.Extents {
			raw, err := core.IDFromBytes(e.Extent)
			id := core.ExtentID{ID: raw}
			if is, known := others[id]; err != nil || is || !known && k.Alone {
				continue
			}
			if _, over := b.ended[id]; over {
				continue
			}
			f, told := b.fills[id]
			if _, known := others[id]; !known && (told && f.run != run || !told && len(b.fills) >= mostFills) {
				continue
			}
			if f.run != run { // of before this controller knew the extent
				f = fill{run: run}
			}
			b.fills[id] = fill{run, max(f.last, core.Seq(e.Last)), max(f.bytes, min(e.Bytes, mostBytes)), now}
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
		b = &books{active: make(map[core.QueueID]time.Time)}
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

// spreadLocked gives a host room in the queues of one namespace: in each as much as its cap has, and in all of them
// what the namespace has. While the backlog is not known whole, the host keeps the room that it has.
func (k *Keeper) spreadLocked(run core.RunID, name string, queues []asked, limits core.NamespaceSpec, now time.Time, t tenure, out *pb.LeaseQuotaResponse) {
	ns := k.namespaceLocked(name, now).during(t)
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
			rooms[i], _ = b.room.Grant(t.askRoom(run, needs[i], float64(q.fill.Held), !b.holds(now, t, ns.asked.hold())), free, now)
		}
	}
	if limits.BacklogBytes > 0 {
		used, known := k.sizeLocked(ns, now, t)
		all, _ := ns.room.Grant(t.askRoom(run, total, held, !known), float64(limits.BacklogBytes)-float64(used), now)
		for i, share := range quota.Split(all, needs) {
			if rooms[i] < 0 || share < rooms[i] {
				rooms[i] = share
			}
		}
	}
	for i, q := range queues {
		out.Queues = append(out.Queues, &pb.QueueLease{Queue: q.fill.Queue, Room: wholeBytes(rooms[i])})
	}
}

// wholeBytes is a room as a number on the wire. The largest limit becomes a float64 that is no int64: converted as it
// is, it would be no room at all.
func wholeBytes(room float64) int64 {
	if room >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(room)
}

// sizeLocked is the backlog of all queues of a namespace, and whether that is known. A queue without a result counts
// with what hosts say of it: if it is not among the listed ones, it is so new that it has no extents with ends. A
// listed one makes the sum unknown.
func (k *Keeper) sizeLocked(ns *books, now time.Time, t tenure) (bytes uint64, known bool) {
	known = ns.asked.holds(now, t) && ns.others.holds(now, t)
	add := func(id core.QueueID, listed bool) {
		q := k.mu.queues[id]
		if q == nil {
			known = known && !listed
			return
		}
		bytes += q.size(now)
		known = known && !q.untold(t) && (q.measured(t) || !listed)
	}
	for id := range ns.listed {
		add(id, true)
	}
	for id := range ns.active {
		if _, listed := ns.listed[id]; !listed {
			add(id, false)
		}
	}
	return bytes, known
}

// sweepLocked forgets what nobody has asked for in a while. The queues of a namespace that is asked for stay.
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
		if ns := k.mu.namespaces[b.namespace]; ns != nil {
			if _, listed := ns.listed[id]; listed {
				continue
			}
		}
		if now.Sub(b.used) > forgetAfter {
			delete(k.mu.queues, id)
		}
	}
	k.specs.forget(now)
	k.rules.forget(now)
}
