package backlog

import (
	"cmp"
	"slices"
	"strconv"
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

// rows are all groups whose queue's path is known, as of the last round; zero before the first one.
func (b *book) rows() (out []*row, ended time.Time, unknown uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.IsZero() {
		return nil, b.ended, 0
	}
	for _, q := range b.queues {
		for _, g := range q.groups {
			unknown += g.unknown
			if q.path == "" {
				continue
			}
			r := &row{path: q.path, group: g.Spec.Name, Depth: g.depth, counted: g.counted, unknown: g.unknown, rate: q.rate.perSecond()}
			if letters := b.queues[g.DLQ]; letters != nil {
				r.dead = letters.letters
			}
			for _, h := range g.hosts {
				r.ackRate += h.ackRate
				r.opened = earlier(r.opened, h.opened)
			}
			out = append(out, r)
		}
	}
	return out, b.ended, unknown
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// perQueue are the sums over the groups of each queue; those without a group too, but for the queues of groups.
func (b *book) perQueue(groups []*row) []*row {
	byPath := make(map[string]*row)
	b.mu.Lock()
	for _, q := range b.queues {
		if q.path != "" && !q.builtIn {
			byPath[q.path] = &row{path: q.path, rate: q.rate.perSecond()}
		}
	}
	b.mu.Unlock()
	for _, g := range groups {
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
	out := make([]*row, 0, len(byPath))
	for _, r := range byPath {
		out = append(out, r)
	}
	return out
}

// Orders of lists.
const (
	byBacklog = "backlog"
	byAge     = "age"
	byName    = "name"
)

// maxPage bounds the rows of an answer.
const maxPage = 1000

// listing keeps the sorted rows of the last list, until a round has ended: pages are lists of the same rows, as a rule.
type listing struct {
	mu     sync.Mutex
	ended  time.Time
	sorted map[string][]*row // by order, and by what a row is
}

// List answers a page. Errors: CodeBadArgument, CodeTooLarge; CodeUnavailable before the first round has ended.
func (c *Collector) List(req *pb.ListDepthsRequest) (*pb.ListDepthsResponse, error) {
	order := cmp.Or(req.Sort, byBacklog)
	if order != byBacklog && order != byAge && order != byName {
		return nil, core.Errorf(core.CodeBadArgument, "that order is not backlog, age or name")
	}
	limit := int(req.Limit)
	switch {
	case limit < 0 || limit > maxPage:
		return nil, core.Errorf(core.CodeBadArgument, "limit %d is not in 0 … %d", limit, maxPage)
	case len(req.Queues) > maxPage:
		return nil, core.Errorf(core.CodeTooLarge, "%d queues in one request; at most %d are allowed", len(req.Queues), maxPage)
	case limit == 0:
		limit = maxPage
	}
	after, err := parseToken(req.After)
	if err != nil {
		return nil, err
	}
	rows, ended := c.sorted(order, req.ByQueue)
	if ended.IsZero() {
		return nil, core.Errorf(core.CodeUnavailable, "the controller has just started and has not counted all backlogs yet; try again in some seconds")
	}
	first := 0
	if req.After != "" {
		first, _ = slices.BinarySearchFunc(rows, after, func(r *row, t token) int { return compareTokens(order, r.token(order), t) })
		if first < len(rows) && rows[first].token(order) == after {
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
			out.Next = last.token(order).String()
			break
		}
		last = r
		out.Depths = append(out.Depths, r.proto(now))
	}
	return out, nil
}

// sorted are the rows in an order.
func (c *Collector) sorted(order string, byQueue bool) ([]*row, time.Time) {
	c.listing.mu.Lock()
	defer c.listing.mu.Unlock()
	l := &c.listing
	if ended := c.book.endedAt(); l.sorted == nil || !l.ended.Equal(ended) {
		l.ended, l.sorted = ended, make(map[string][]*row)
	}
	key := order + " " + strconv.FormatBool(byQueue)
	rows, have := l.sorted[key]
	if !have {
		rows, _, _ = c.book.rows()
		if byQueue {
			rows = c.book.perQueue(rows)
		}
		slices.SortFunc(rows, func(a, b *row) int { return compareTokens(order, a.token(order), b.token(order)) })
		l.sorted[key] = rows
	}
	return rows, l.ended
}

func (b *book) endedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// token is the place of a row in an order.
type token struct {
	value       uint64
	path, group string
}

func (r *row) token(order string) token {
	t := token{path: r.path, group: r.group}
	switch order {
	case byBacklog:
		t.value = r.Messages()
	case byAge:
		t.value = uint64(max(r.Oldest, 0))
	}
	return t
}

// compareTokens is the order: the largest backlogs first, or the oldest messages, those last that have none.
func compareTokens(order string, a, b token) int {
	value := cmp.Compare(b.value, a.value)
	if order == byAge { // the values are times
		value = cmp.Compare(a.value-1, b.value-1)
	}
	return cmp.Or(value, cmp.Compare(a.path, b.path), cmp.Compare(a.group, b.group))
}

// String is the form that parseToken reads.
func (t token) String() string { return strconv.FormatUint(t.value, 10) + " " + t.path + " " + t.group }

// maxToken is the length of the longest token.
const maxToken = 4096

func parseToken(s string) (t token, err error) {
	if s == "" {
		return t, nil
	}
	parts := strings.Split(s, " ")
	if len(s) <= maxToken && len(parts) == 3 {
		if t.value, err = strconv.ParseUint(parts[0], 10, 64); err == nil {
			t.path, t.group = parts[1], parts[2]
			return t, nil
		}
	}
	return t, core.Errorf(core.CodeBadArgument, "the page token is none of this list; begin with an empty one")
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
