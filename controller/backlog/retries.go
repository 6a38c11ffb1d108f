package backlog

import (
	"cmp"
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
)

const (
	// worthTelling is the part of its limit from which on hosts are told how many retries a group has. A host
	// lacks fewer than that.
	worthTelling = 1000
	// toldAtOnce bounds the groups that one host is told of: those nearest to their limits.
	toldAtOnce = 10_000
)

// leftFor is for how long hosts are told that this controller does not count a group any more: a host goes that long by
// what it was told last.
const leftFor = dispatch.RetriesKnownFor

// tellRetries tells output hosts how many retries the groups have whose shares they own, as they have just been
// counted. A host that is told nothing for long goes by what it sees itself.
func (c *Collector) tellRetries(ctx context.Context, hosts []membership.Host) {
	told, left := c.book.retries(c.mine, c.cfg.Now())
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	for _, h := range hosts {
		calls.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
			defer cancel()
			req := &pb.LimitRetriesRequest{Run: h.Run.ID[:], Groups: told[h.ID], Hosts: uint32(len(hosts)), Controller: string(c.cfg.Self), Left: left}
			if _, err := c.cfg.Cluster.Output(h.Address).LimitRetries(ctx, connect.NewRequest(req)); err != nil {
				c.cfg.Log.Debug("an output host was not told how many retries its groups have", "host", h.ID, "err", convert.FromRPC(err))
			}
			return nil
		})
	}
	calls.Wait() // no function fails
}

// retries are how many retries groups have, for each host that owns shares of them: those of queues that mine selects.
// left are groups that hosts were told of, and that are not counted here any more.
func (b *book) retries(mine func(core.QueueID) bool, now time.Time) (out map[core.HostID][]*pb.GroupRetries, left [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out = make(map[core.HostID][]*pb.GroupRetries)
	most := make(map[*pb.GroupRetries]uint64)
	before := b.told
	b.told = make(map[core.GroupID]struct{}, len(before))
	for id, g := range b.groups {
		limit := uint64(cmp.Or(g.Spec.MaxDelayedRetries, core.DefaultMaxDelayedRetries))
		if g.depth.Retries == 0 || g.depth.Retries < limit/worthTelling || !mine(g.Queue) {
			continue
		}
		told := &pb.GroupRetries{Group: id.ID[:], Retries: g.depth.Retries, Owners: uint32(max(len(g.owners), 1))}
		most[told] = limit
		b.told[id] = struct{}{}
		for _, host := range g.owners {
			out[host] = append(out[host], told)
		}
	}
	for host, all := range out {
		if len(all) > toldAtOnce {
			slices.SortFunc(all, func(a, b *pb.GroupRetries) int { return cmp.Compare(b.Retries*most[a], a.Retries*most[b]) })
			out[host] = all[:toldAtOnce]
		}
	}
	for id := range before {
		if g := b.groups[id]; g == nil || g.ID.IsZero() || !mine(g.Queue) {
			b.left[id] = now
		}
	}
	for id, since := range b.left {
		if _, again := b.told[id]; again || now.Sub(since) > leftFor {
			delete(b.left, id)
		} else if len(left) < toldAtOnce {
			left = append(left, slices.Clone(id.ID[:]))
		}
	}
	return out, left
}
