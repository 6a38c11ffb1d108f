package backlog

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
)

// row is the depth of a group, or the sum over those of a queue.
type row struct {
	path, group string
	backlog.Depth
	dead    uint64
	counted uint32
	unknown uint32
	ackRate float64
	rate    float64 // of publishing to the queue
	opened  int64   // unix µs, the earliest; 0: all breakers are closed
}

// age of the oldest ready message, milliseconds.
func (r *row) age(now time.Time) int64 {
	if r.Oldest == 0 {
		return 0
	}
	return max(0, now.UnixMicro()-r.Oldest) / 1000
}

// rows are all groups whose queue's path is known, of the queues that mine selects and that were counted, as of the
// last round; zero before the first one.
func (b *book) rows(mine func(core.QueueID) bool) (out []*row, ended time.Time, unknown uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, unknown = b.rowsLocked(mine)
	return out, b.ended, unknown
}

func (b *book) rowsLocked(mine func(core.QueueID) bool) (out []*row, unknown uint32) {
	if b.ended.IsZero() {
		return nil, 0
	}
	for id, q := range b.queues {
		if !q.counted || !mine(id) {
			continue
		}
		for _, g := range q.groups {
			unknown += g.unknown
			if q.path == "" {
				continue
			}
			r := &row{
				path: q.path, group: g.Spec.Name, Depth: g.depth, dead: b.letters[g.DLQ], counted: g.counted, unknown: g.unknown, rate: q.rate.perSecond(),
			}
			for _, h := range g.hosts {
				r.ackRate += h.ackRate
				r.opened = earlier(r.opened, h.opened)
			}
			out = append(out, r)
		}
	}
	return out, unknown
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// snapshot is what lists have until the next round ends.
type snapshot struct {
	ended   time.Time
	groups  []*row
	queues  []*row // those without a group too, but for the queues of groups; without the sums over the groups
	counted map[core.QueueID]struct{}
}

func (b *book) snapshot(mine func(core.QueueID) bool) (s snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.ended, s.counted = b.ended, make(map[core.QueueID]struct{})
	s.groups, _ = b.rowsLocked(mine)
	for id, q := range b.queues {
		if !q.counted || !mine(id) {
			continue
		}
		s.counted[id] = struct{}{}
		if q.path != "" && !q.builtIn {
			s.queues = append(s.queues, &row{path: q.path, rate: q.rate.perSecond()})
		}
	}
	return s
}

// perQueue are the sums over the groups of each queue.
func (s *snapshot) perQueue() []*row {
	byPath := make(map[string]*row)
	for _, q := range s.queues {
		r := *q
		byPath[q.path] = &r
	}
	for _, g := range s.groups {
		sum := byPath[g.path]
		if sum == nil { // of a dead letter queue that has a group
			sum = &row{path: g.path, rate: g.rate}
			byPath[g.path] = sum
		}
		sum.Add(g.Depth)
		sum.dead += g.dead
		sum.counted += g.counted
		sum.unknown += g.unknown
		sum.ackRate += g.ackRate
		sum.opened = earlier(sum.opened, g.opened)
	}
	return slices.Collect(maps.Values(byPath))
}

// maxPage bounds the rows of an answer.
const maxPage = 1000

// listing keeps the sorted rows of the last list, until a round has ended: pages are lists of the same rows, as a rule.
type listing struct {
	mu     sync.Mutex
	of     snapshot
	sorted map[listed][]*row
}

// listed is what a list has: which order, and whether its rows are queues.
type listed struct {
	order   backlog.Order
	byQueue bool
}

// List answers a page of the queues that this controller is responsible for. Errors: CodeBadArgument, CodeTooLarge;
// CodeUnavailable before the first round has ended.
func (c *Collector) List(req *pb.ListDepthsRequest) (*pb.ListDepthsResponse, error) {
	order, err := backlog.ParseOrder(req.Sort)
	if err != nil {
		return nil, err
	}
	limit := int(req.Limit)
	switch {
	case limit < 0 || limit > maxPage:
		return nil, core.Errorf(core.CodeBadArgument, "limit %d is not in 0 … %d", limit, maxPage)
	case len(req.Queues) > maxPage || len(req.Ids) > maxPage:
		return nil, core.Errorf(core.CodeTooLarge, "%d queues in one request; at most %d are allowed", max(len(req.Queues), len(req.Ids)), maxPage)
	case limit == 0:
		limit = maxPage
	}
	after, err := backlog.ParsePlace(req.After)
	if err != nil {
		return nil, err
	}
	rows, ended, counted := c.sorted(listed{order, req.ByQueue})
	if ended.IsZero() {
		return nil, core.Errorf(core.CodeUnavailable, "the controller has just started and has not counted all backlogs yet; try again in some seconds")
	}
	first := 0
	if req.After != "" {
		first, _ = slices.BinarySearchFunc(rows, after, func(r *row, p backlog.Place) int { return order.Compare(r.place(order), p) })
		if first < len(rows) && rows[first].place(order) == after {
			first++
		}
	}
	wanted := make(map[string]bool, len(req.Queues))
	for _, path := range req.Queues {
		wanted[path] = true
	}
	out := &pb.ListDepthsResponse{AsOf: timestamppb.New(ended)}
	now := c.cfg.Now()
	var last *row
	for _, r := range rows[first:] {
		if !strings.HasPrefix(r.path, req.Prefix) || len(wanted) > 0 && !wanted[r.path] {
			continue
		}
		if len(out.Depths) == limit {
			out.Next = last.place(order).String()
			break
		}
		last = r
		out.Depths = append(out.Depths, r.proto(now))
		if req.Part {
			out.Places = append(out.Places, r.place(order).String())
		}
	}
	if req.Part {
		return out, c.completeness(req, out, counted)
	}
	return out, nil
}

// completeness says of which queues a part tells.
func (c *Collector) completeness(req *pb.ListDepthsRequest, out *pb.ListDepthsResponse, counted map[core.QueueID]struct{}) error {
	for _, id := range c.cfg.Extents.Queues() {
		out.Known++
		if _, ok := counted[id]; ok {
			out.Counted++
		}
	}
	for _, b := range req.Ids {
		id, err := core.IDFromBytes(b)
		if err != nil {
			return err
		}
		queue := core.QueueID{ID: id}
		if _, ok := counted[queue]; !ok && (c.cfg.Extents.Has(queue) || !c.mine(queue)) {
			out.Others = append(out.Others, b)
		}
	}
	return nil
}

// mine reports whether this controller tells of a queue.
func (c *Collector) mine(queue core.QueueID) bool { return c.cfg.Cluster.Responsible(queue.ID) }

// sorted are the rows in an order, as of when, and of which queues they are.
func (c *Collector) sorted(l listed) ([]*row, time.Time, map[core.QueueID]struct{}) {
	c.listing.mu.Lock()
	defer c.listing.mu.Unlock()
	x := &c.listing
	if x.sorted == nil || !x.of.ended.Equal(c.book.endedAt()) {
		x.of, x.sorted = c.book.snapshot(c.mine), make(map[listed][]*row)
	}
	rows, have := x.sorted[l]
	if !have {
		rows = slices.Clone(x.of.groups)
		if l.byQueue {
			rows = x.of.perQueue()
		}
		slices.SortFunc(rows, func(a, b *row) int { return l.order.Compare(a.place(l.order), b.place(l.order)) })
		x.sorted[l] = rows
	}
	return rows, x.of.ended, x.of.counted
}

func (b *book) endedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// place of a row in an order.
func (r *row) place(order backlog.Order) backlog.Place {
	p := backlog.Place{Path: r.path, Group: r.group}
	switch order {
	case backlog.ByBacklog:
		p.Value = r.Messages()
	case backlog.ByAge:
		p.Value = uint64(max(r.Oldest, 0))
	}
	return p
}

func (r *row) proto(now time.Time) *pb.Depth {
	d := &pb.Depth{
		Queue: r.path, Group: r.group, Ready: r.Ready, InFlight: r.InFlight, Delayed: r.Delayed.Sum(), Blocked: r.Blocked, Retries: r.Retries, Dead: r.dead,
		DelayedPublish: r.Delayed.Publish, DelayedRetry: r.Delayed.Retry, DelayedGroup: r.Delayed.Group,
		OldestReadyMs: r.age(now), AckRate: r.ackRate, PublishRate: r.rate, UnknownExtents: r.unknown, Extents: r.counted, Bytes: r.Bytes,
	}
	if r.opened > 0 {
		d.BreakerOpenMs = max(1, (now.UnixMicro()-r.opened)/1000)
	}
	return d
}
