package backlog

import (
	"context"
	"maps"
	"slices"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// tail is how far an extent without an end may be read.
type tail struct {
	last  core.Seq
	bytes uint64
}

// growing is an extent without an end, as far as its tail is concerned.
type growing struct {
	id       core.ExtentID
	queue    core.QueueID
	reader   core.QueueID // whose groups read it; zero: nobody does
	replicas []core.HostID
}

// tailsPage is of how many extents one call asks a store.
const tailsPage = 1000

// asking keeps the lists of a round for the next one. They have at least an entry for each queue, and rounds come every
// few seconds.
type asking struct {
	open    []growing
	here    map[core.QueueID]bool
	byStore map[core.HostID][]growing
}

// askTails asks stores how far the extents without an end go, of each the first that tells.
func (c *Collector) askTails(ctx context.Context) {
	open := c.growing()
	c.book.keepTails(open)
	stores := make(map[core.HostID]columbav1connect.StoreServiceClient) // nil: it does not answer
	defer maps.DeleteFunc(c.asking.byStore, func(id core.HostID, _ []growing) bool { return stores[id] == nil })
	for try := 0; len(open) > 0 && ctx.Err() == nil; try++ {
		byStore, found := c.byStore(open, try, stores)
		if !found {
			return
		}
		var mu sync.Mutex
		var again []growing
		var calls errgroup.Group
		calls.SetLimit(callsAtOnce)
		for id, all := range byStore {
			for some := range slices.Chunk(all, tailsPage) {
				calls.Go(func() error {
					untold := c.askStore(ctx, id, stores[id], some)
					mu.Lock()
					defer mu.Unlock()
					again = append(again, untold...)
					return nil
				})
			}
		}
		calls.Wait() // no function fails
		open = again
	}
}

// growing are the extents without an end that are counted here: of queues that this controller is responsible for, of
// others that their groups read, and of their dead letter queues.
func (c *Collector) growing() []growing {
	out, asked := c.asking.open[:0], c.asking.here // extents are far more than queues
	clear(asked)
	here := func(q core.QueueID) bool {
		is, known := asked[q]
		if !known {
			is = c.book.isLetters(q) || c.mine(q)
			asked[q] = is
		}
		return is
	}
	for e := range c.cfg.Extents.WithoutEnd() {
		reader, ok := e.Home.Reader(e.Queue)
		if here(e.Queue) || ok && here(reader) {
			out = append(out, growing{e.ID, e.Queue, reader, e.Replicas})
		}
	}
	c.asking.open = out
	return out
}

// byStore are the extents by the store to ask in that try, among those that answer, until the next call.
func (c *Collector) byStore(open []growing, try int, stores map[core.HostID]columbav1connect.StoreServiceClient) (out map[core.HostID][]growing, found bool) {
	out = c.asking.byStore
	for id, some := range out {
		out[id] = some[:0]
	}
	for _, e := range open {
		n := 0
		for _, id := range e.replicas {
			client, known := stores[id]
			if !known {
				if answers, ok := c.cfg.Cluster.Store(id); ok {
					client = answers
				}
				stores[id] = client
			}
			if client == nil {
				continue
			}
			if n == try {
				out[id], found = append(out[id], e), true
				break
			}
			n++
		}
	}
	return out, found
}

// askStore asks one store, and answers the extents of which it does not tell how far they go.
func (c *Collector) askStore(ctx context.Context, id core.HostID, client columbav1connect.StoreServiceClient, extents []growing) (untold []growing) {
	req := &pb.GetTailsRequest{Extents: make([][]byte, len(extents))}
	for i := range extents {
		req.Extents[i] = extents[i].id.ID[:]
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := client.GetTails(ctx, connect.NewRequest(req))
	if err != nil || len(resp.Msg.Tails) != len(extents) {
		c.cfg.Log.Debug("a store does not answer with the ends of extents", "store", id, "extents", len(extents), "err", convert.FromRPC(err))
		return extents
	}
	return c.book.setTails(extents, resp.Msg.Tails)
}

// setTails notes how far extents go. Stores hear of what is committed one after another: an older answer takes nothing
// back. It answers those that the store cannot tell of.
func (b *book) setTails(extents []growing, tails []*pb.GetTailsResponse_Tail) (untold []growing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, t := range tails {
		e := extents[i]
		if t.GetDamaged() || t.GetAbsent() {
			untold = append(untold, e)
			continue
		}
		was, known := b.tails[e.id]
		now := tail{max(was.last, core.Seq(min(t.GetCommitted(), t.GetLast()))), max(was.bytes, t.GetBytes())}
		if known && now == was {
			continue
		}
		b.tails[e.id] = now
		b.dirty[e.queue] = struct{}{}
		if !e.reader.IsZero() {
			b.dirty[e.reader] = struct{}{}
		}
	}
	return untold
}

// keepTails forgets how far other extents go, if there are such: they have their end, or are gone.
func (b *book) keepTails(open []growing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tails) <= len(open) { // an old one is never used again
		return
	}
	keep := make(map[core.ExtentID]struct{}, len(open))
	for i := range open {
		keep[open[i].id] = struct{}{}
	}
	maps.DeleteFunc(b.tails, func(id core.ExtentID, _ tail) bool { _, is := keep[id]; return !is })
}

// isLetters reports whether a queue is the dead letter queue of a group that is counted here.
func (b *book) isLetters(q core.QueueID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.letters[q]
	return is
}
