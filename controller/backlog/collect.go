package backlog

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// Cluster is what a collector learns backlogs from. Its methods may be called side by side.
type Cluster interface {
	// Complete reports whether the rounds have told of all groups.
	Complete() bool
	// Responsible reports whether this controller is for a key, such as the id of a queue.
	Responsible(key core.ID) bool
	// Store is a store that answers; ok is false for others.
	Store(id core.HostID) (client columbav1connect.StoreServiceClient, ok bool)
	// Outputs are the output hosts that are there.
	Outputs() []membership.Host
	Output(addr string) columbav1connect.OutputServiceClient
	// Saved is how far the owners of a share say in their checkpoints that it is, in the group's present epoch. Removed
	// records of the extent count as settled.
	Saved(ctx context.Context, g metadata.GroupRecord, e catalog.Extent) (backlog.Progress, error)
}

// Config of a Collector. All fields are needed.
type Config struct {
	Meta    metadata.Store
	Self    core.HostID
	Cluster Cluster
	Extents *catalog.Extents
	Now     func() time.Time
	Log     *slog.Logger
	Every   time.Duration // between two rounds
	Timeout time.Duration // of one call
	Series  int           // how many groups, and how many queues, have metrics of their own
}

// Collector computes backlogs, round by round. Every round looks only at what has changed: extents that grew, shares
// whose owner has news, groups that came. Safe for concurrent use.
type Collector struct {
	cfg     Config
	book    *book
	owners  map[core.HostID]*owner // the round's
	asking  asking                 // the round's
	listing listing
}

// owner is what the collector knows of the answers of an output host.
type owner struct {
	run      core.RunID
	position uint64
	whole    time.Time // when everything was asked for
	down     bool      // it did not answer last time
}

const (
	// callsAtOnce is how many calls one round has under way.
	callsAtOnce = 16
	// wholeEvery is how often owners are asked for everything, whatever they said before.
	wholeEvery = 10 * time.Minute
	// savedAtOnce bounds the shares whose checkpoints one round reads.
	savedAtOnce = 1000
	// looksAtOnce bounds the messages that one host is asked to look at in a round: each takes a read from a store.
	looksAtOnce = 128
	// looksAgain is how often an owner is asked about the same share.
	looksAgain = 30 * time.Second
	// pathsAtOnce bounds the queue records that one round reads.
	pathsAtOnce = 1000
)

// New makes a collector; it does no I/O.
func New(cfg Config) *Collector {
	return &Collector{
		cfg: cfg, book: newBook(cfg.Series, cfg.Now()), owners: make(map[core.HostID]*owner),
		asking: asking{here: make(map[core.QueueID]bool), byStore: make(map[core.HostID][]growing)},
	}
}

// SetGroups says which groups a queue with live extents has, and what they have not consumed.
func (c *Collector) SetGroups(queue core.QueueID, groups []Group) {
	c.book.setGroups(queue, groups, c.cfg.Now())
}

// DropQueue says that a queue has no live extents any more.
func (c *Collector) DropQueue(queue core.QueueID) { c.book.dropQueue(queue, false) }

// LeaveQueue says that another controller is responsible for a queue, or was in between.
func (c *Collector) LeaveQueue(queue core.QueueID) { c.book.dropQueue(queue, true) }

// TookOver says that queues may come that another controller has counted until now.
func (c *Collector) TookOver() { c.book.tookOver(c.cfg.Now()) }

// Run computes until ctx ends.
func (c *Collector) Run(ctx context.Context) { lifecycle.Every(ctx, c.cfg.Every, c.Round) }

// Round brings all backlogs up to date, once all groups are known. One at a time.
func (c *Collector) Round(ctx context.Context) {
	if !c.cfg.Cluster.Complete() {
		return
	}
	began := c.cfg.Now()
	hosts := c.cfg.Cluster.Outputs()
	c.book.setLive(hosts)
	var g errgroup.Group
	g.Go(func() error { c.askTails(ctx); return nil })
	g.Go(func() error { c.askOwners(ctx, hosts, nil); return nil })
	g.Go(func() error { c.readPaths(ctx); return nil })
	g.Wait() // no function fails
	c.book.touch(c.cfg.Extents.TakeChanged()...)
	c.readSaved(ctx, c.computeDirty())
	if looks := c.book.takeLooks(began); len(looks) > 0 {
		c.askOwners(ctx, hosts, looks)
	}
	for _, l := range c.computeDirty() { // they have their turn in the rounds to come
		c.book.touch(l.group.Queue)
	}
	c.tellRetries(ctx, hosts)
	if ctx.Err() == nil {
		c.book.endRound(c.cfg.Now())
	}
}

// computeDirty computes what has changed, and answers the shares whose checkpoints are to be read. Queues with more
// than one round reads stay dirty.
func (c *Collector) computeDirty() (out []lacking) {
	for _, id := range c.book.takeDirty() {
		some := c.book.compute(id, c.cfg.Extents.Each(id), c.cfg.Now())
		if room := savedAtOnce - len(out); len(some) > room {
			some = some[:room]
			c.book.touch(id)
		}
		out = append(out, some...)
	}
	return out
}

// askOwners asks output hosts for what has changed; with looks those of them only that are to look at messages.
func (c *Collector) askOwners(ctx context.Context, hosts []membership.Host, looks map[core.HostID][]*pb.CountSharesRequest_Look) {
	there := make(map[core.HostID]bool, len(hosts))
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	for _, h := range hosts {
		there[h.ID] = true
		if looks != nil && len(looks[h.ID]) == 0 {
			continue
		}
		o := c.owners[h.ID]
		if o == nil {
			o = &owner{}
			c.owners[h.ID] = o
		}
		calls.Go(func() error {
			err := c.askOwner(ctx, h, o, looks[h.ID])
			if err != nil && !o.down && ctx.Err() == nil {
				c.cfg.Log.Info("an output host does not count its shares: its earlier counts are used", "host", h.ID, "err", err)
			}
			o.down = err != nil
			return nil
		})
	}
	calls.Wait() // no function fails
	for id := range c.owners {
		if !there[id] {
			delete(c.owners, id)
		}
	}
}

// askOwner asks one output host, page by page.
func (c *Collector) askOwner(ctx context.Context, h membership.Host, o *owner, looks []*pb.CountSharesRequest_Look) error {
	now := c.cfg.Now()
	whole := o.run != h.Run || now.Sub(o.whole) >= wholeEvery
	req := &pb.CountSharesRequest{Run: h.Run.ID[:], Since: o.position, Look: looks}
	if whole {
		req.Since = 0
	}
	position := uint64(0)
	for {
		cctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		resp, err := c.cfg.Cluster.Output(h.Address).CountShares(cctx, connect.NewRequest(req))
		cancel()
		if err != nil {
			return convert.FromRPC(err)
		}
		m := resp.Msg
		if !slices.Equal(m.Run, h.Run.ID[:]) {
			return core.Errorf(core.CodeConflict, "another run of output host %s answers", h.ID)
		}
		c.book.report(h.ID, h.Run, m.Groups, now)
		if position == 0 {
			position = m.Position
		}
		if len(m.More) == 0 || slices.Compare(m.More, req.After) <= 0 {
			break
		}
		req.After, req.Look = m.More, nil
	}
	if o.run, o.position = h.Run, position; whole {
		o.whole = now
	}
	return nil
}

// readSaved reads the checkpoints of shares of which no owner tells.
func (c *Collector) readSaved(ctx context.Context, all []lacking) {
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	for _, l := range all {
		calls.Go(func() error {
			p, err := c.cfg.Cluster.Saved(ctx, l.group, l.extent)
			if err != nil {
				c.cfg.Log.Debug("cannot read how far a group is", "group", l.group.Spec.Name, "extent", l.extent.ID, "err", err)
				c.book.touch(l.group.Queue)
				return nil
			}
			c.book.setSaved(share{l.group.ID, l.extent.ID}, p, c.cfg.Now())
			return nil
		})
	}
	calls.Wait() // no function fails
}

// readPaths reads the paths of queues that are new.
func (c *Collector) readPaths(ctx context.Context) {
	keys := c.book.withoutPath(pathsAtOnce)
	if len(keys) == 0 {
		return
	}
	rows, err := metadata.GetRows(ctx, c.cfg.Meta, metadata.Queues, keys, metadata.One)
	if err != nil {
		c.cfg.Log.Debug("cannot read the paths of queues", "err", err)
		return
	}
	for _, row := range rows {
		if q, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row); err == nil {
			c.book.setPath(q)
		}
	}
}

// takeLooks answers what owners are to look at now: of each host those that were asked about longest ago.
func (b *book) takeLooks(now time.Time) map[core.HostID][]*pb.CountSharesRequest_Look {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.looks) == 0 {
		return nil
	}
	type due struct {
		share
		look
	}
	byHost := make(map[core.HostID][]due)
	for s, l := range b.looks {
		g := b.groups[s.group]
		if g == nil || g.parts[s.extent] == nil {
			delete(b.looks, s)
			continue
		}
		if p := g.parts[s.extent]; p.host != "" && !p.orphan && now.Sub(l.asked) >= looksAgain {
			byHost[p.host] = append(byHost[p.host], due{s, l})
		}
	}
	out := make(map[core.HostID][]*pb.CountSharesRequest_Look, len(byHost))
	for host, all := range byHost {
		slices.SortFunc(all, func(a, b due) int {
			return cmp.Or(a.asked.Compare(b.asked), compareExtents(a.extent, b.extent), slices.Compare(a.group.ID[:], b.group.ID[:]))
		})
		for _, d := range all[:min(len(all), looksAtOnce)] {
			b.looks[d.share] = look{now, d.last}
			group, extent := d.group, d.extent
			out[host] = append(out[host], &pb.CountSharesRequest_Look{Group: group.ID[:], Extent: extent.ID[:], Last: uint64(d.last)})
		}
	}
	return out
}

// withoutPath are the keys of queues whose path is not known.
func (b *book) withoutPath(most int) (out []metadata.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, q := range b.queues {
		if q.path == "" && len(out) < most {
			out = append(out, metadata.QueueKey(id))
		}
	}
	return out
}

func (b *book) setPath(r metadata.QueueRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[r.ID]; q != nil {
		q.path, q.builtIn = r.Spec.Path, !r.Owner.IsZero()
		b.series.named(q)
	}
}

// endRound notes the rates, and that everything is as of now.
func (b *book) endRound(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.moving {
		if q := b.queues[id]; !q.rate.note(q.grown.messages, now) {
			delete(b.moving, id)
		}
	}
	b.sweepLocked(now)
	b.ended = now
	b.rounds++
}
