package inputhost

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/metadata"
)

const (
	callTimeout = 5 * time.Second // of a call to the controller or the metadata
	openTimeout = 2 * time.Second // of opening an extent on its stores
	atOnce      = 64              // extents being opened, and as many being sealed
	// replacePause is the time between tries to open an extent that nobody waits for.
	replacePause = time.Second
)

// openLocked makes sure that somebody opens extents.
func (q *queue) openLocked() {
	if !q.mu.opening && !q.mu.closed {
		q.mu.opening = q.h.tasks.Go(q.open)
	}
}

// open opens what the queue needs, one after another, and gives up only what nobody waits for.
func (q *queue) open(ctx context.Context) {
	backoff := core.Backoff{Min: 10 * time.Millisecond, Factor: 2, Max: time.Second, Jitter: 0.3}
	for failures := 0; ; {
		q.mu.Lock()
		began := q.h.deps.now()
		needed, urgent := q.needLocked(began)
		if !needed {
			q.mu.opening = false
			q.mu.Unlock()
			return
		}
		pause := q.mu.pace.wait(began)
		q.mu.Unlock()
		if pause > 0 {
			if !q.rest(ctx, pause) {
				return
			}
			continue
		}
		w, news, err := q.openExtent(ctx, urgent)
		if err == nil {
			failures = 0
			q.opened(w)
			continue
		}
		if core.CodeOf(err) == core.CodeNotFound {
			err = q.gone(ctx, err)
		}
		failures++
		q.failed(began, err)
		if q.ordered {
			q.unopened(err, news)
		}
		if q.expire(err) {
			return
		}
		if news { // there is one store less to choose from: it goes otherwise now
			continue
		}
		wait := backoff.Delay(failures, rand.Float64())
		if core.CodeOf(err) == core.CodeNoMajority { // publishers wait to be told
			wait = min(wait, majorityPatience/5)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			q.abandon()
			return
		}
	}
}

// needLocked reports whether an extent is to be opened, and whether chunks wait for it.
func (q *queue) needLocked(now time.Time) (needed, urgent bool) {
	switch {
	case q.mu.closed:
		return false, false
	case q.ordered:
		needed = q.neededLocked()
		return needed, needed
	case !q.mu.record.Spec.Status.CanPublish() && len(q.mu.waiting) == 0:
		return false, false
	case q.mu.probe:
		return true, false
	case len(q.mu.open.slots) == 0:
		urgent = len(q.mu.waiting) > 0
		return urgent || q.publishingLocked(now), urgent
	case q.mu.open.replaced() != nil:
		return true, false
	}
	return q.publishingLocked(now) && q.mu.open.lasting() < q.mu.demand.want && q.mu.pace.calm(now), false
}

// opened takes an extent in, closes the one it replaces, and feeds it what waits.
func (q *queue) opened(w *writer.Writer) {
	now := q.h.deps.now()
	q.mu.Lock()
	q.mu.probe = false
	why := "" // it is not wanted any more
	switch {
	case q.mu.closed:
		why = "drain"
	case !q.mu.record.Spec.Status.CanPublish() && len(q.mu.waiting) == 0:
		why = "status"
	}
	var old *slot
	if why == "" && w.Open() { // else it has ended, and told so before it was known
		q.mu.open.add(w, now, q.mu.publishers)
		q.mu.outage = outage{}
		q.mu.chain.admitLocked()
		if old = q.mu.open.replaced(); old != nil {
			q.mu.open.drop(old.w)
		}
	}
	q.mu.Unlock()
	if why != "" {
		w.Close(why)
	}
	if old != nil {
		old.w.Close("rolled")
	}
	q.feed()
}

// failed notes a try that failed.
func (q *queue) failed(began time.Time, err error) {
	q.mu.Lock()
	q.mu.probe = false
	tell := q.mu.outage.failed(began, q.h.deps.now(), err, errors.As(err, new(refusal)))
	q.mu.Unlock()
	if tell {
		q.h.log.Warn("cannot open an extent", "queue", q.path, "err", err)
	}
}

// expire answers the chunks that have waited too long, or all when err, of the last try, is final or has been so for a
// while. It reports, and ends the opening, when nobody waits any more.
func (q *queue) expire(err error) bool {
	now := q.h.deps.now()
	q.mu.Lock()
	final := core.CodeOf(err).Class() == core.ClassFatal || errors.Is(err, errReplaced) || q.mu.outage.lasts(now)
	late := now.Add(-q.h.unsentMost())
	failed := q.takeLocked(func(c *writer.Chunk) bool { return final || c.Arrived.Before(late) || c.From.Gone() })
	done := len(q.mu.waiting) == 0 && len(q.mu.chain.claims) == 0
	if done {
		q.mu.opening = false
		q.mu.notBefore = now.Add(replacePause)
	}
	q.mu.Unlock()
	refuseFor(failed, err)
	return done
}

// unsentMost is how long a chunk that was sent to no store waits.
func (h *Host) unsentMost() time.Duration { return min(unsentMost, h.cfg.PublishDeadline) }

// takeLocked takes out of what waits the chunks that which is true for.
func (q *queue) takeLocked(which func(*writer.Chunk) bool) (out []writer.Chunk) {
	var kept []writer.Chunk
	for i := range q.mu.waiting {
		if c := &q.mu.waiting[i]; which(c) {
			out = append(out, *c)
		} else {
			kept = append(kept, *c)
		}
	}
	q.mu.waiting = kept
	return out
}

// abandon refuses everything that waits: the host is stopping.
func (q *queue) abandon() {
	q.mu.Lock()
	left := q.mu.waiting
	q.mu.waiting = nil
	q.mu.opening = false
	q.mu.chain.refuseLocked(core.Errorf(core.CodeDraining, "input host is stopping"))
	q.mu.Unlock()
	refuse(left, core.CodeDraining)
}

// openExtent asks the controller for an extent it does not know of yet and opens it on all its stores. When a store
// fails, the extent is sealed; news: that store was not avoided before.
func (q *queue) openExtent(ctx context.Context, urgent bool) (w *writer.Writer, news bool, err error) {
	leave, err := q.h.openings.enter(ctx, urgent)
	if err != nil {
		return nil, false, core.Errorf(core.CodeOf(err), "open an extent: %w", err)
	}
	defer leave()
	extent, addresses, err := q.ensure(ctx)
	if err != nil {
		return nil, false, err
	}
	if q.ordered {
		q.link(extent.Chain)
	}
	w = writer.New(extent, q.h.limits(q.kind()), q.env())
	q.mu.Lock()
	q.mu.writers[w] = q.h.deps.now()
	q.mu.Unlock()
	replicas, news, err := q.openReplicas(ctx, w, addresses)
	if err != nil {
		w.Fail("", err)
		return nil, news, core.Errorf(core.CodeUnavailable, "open extent %s: %w", extent.ID, err)
	}
	w.Start(replicas)
	return w, false, nil
}

// ensure is the controller's answer: an extent and the addresses of its stores, in their order.
func (q *queue) ensure(ctx context.Context) (core.Extent, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	self := q.h.deps.Members.Self()
	req := &pb.EnsureExtentRequest{Queue: q.id.ID[:], Input: string(self.ID), InputRun: self.Run.ID[:], Kind: string(q.kind()), Horizon: string(q.horizon)}
	for _, id := range q.h.stores.avoid(q.h.deps.now()) {
		req.Avoid = append(req.Avoid, string(id))
	}
	q.mu.Lock()
	record := q.mu.record
	for w := range q.mu.writers {
		req.Have = append(req.Have, w.Extent.ID.ID[:])
	}
	q.mu.Unlock()
	if row, err := metadata.NewRow(metadata.Queues, metadata.QueueKey(q.id), record, time.Time{}); err == nil {
		req.QueueRow = row.Value
	}
	resp, err := ask(ctx, q.h, q.id.ID, anotherMay, func(ctx context.Context, at controllerClient) (*connect.Response[pb.EnsureExtentResponse], error) {
		return at.EnsureExtent(ctx, connect.NewRequest(req))
	})
	if err != nil {
		return core.Extent{}, nil, answered(err)
	}
	extent, err := convert.Extent(resp.Msg.Extent)
	if err != nil {
		return core.Extent{}, nil, err
	}
	if len(resp.Msg.Stores) != len(extent.Replicas) {
		return core.Extent{}, nil, core.Errorf(core.CodeInternal, "extent %s has %d replicas but %d addresses", extent.ID, len(extent.Replicas), len(resp.Msg.Stores))
	}
	addresses := make([]string, len(resp.Msg.Stores))
	for i, s := range resp.Msg.Stores {
		addresses[i] = s.Address
	}
	return extent, addresses, nil
}

var errOtherFailed = errors.New("another store failed")

// openReplicas opens the extent on all its stores at once, and on none when one fails.
func (q *queue) openReplicas(ctx context.Context, w *writer.Writer, addresses []string) (_ []writer.Replica, news bool, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	began := q.h.deps.now()
	replicas := make([]writer.Replica, len(addresses))
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, address := range addresses {
		wg.Go(func() {
			r, oerr := q.h.openReplica(ctx, address, w, i)
			store := w.Extent.Replicas[i]
			mu.Lock()
			defer mu.Unlock()
			if oerr == nil {
				replicas[i] = r
				q.h.stores.opened(began, store)
				return
			}
			if context.Cause(ctx) == errOtherFailed {
				return
			}
			news = q.h.stores.failed(q.h.deps.now(), store, oerr) || news
			if err == nil {
				err = oerr
			}
			if ctx.Err() == nil { // those that are out of time as well count as failed
				stop(errOtherFailed)
			}
		})
	}
	wg.Wait()
	if err == nil {
		return replicas, false, nil
	}
	for _, r := range replicas {
		if r != nil {
			r.Close()
		}
	}
	return nil, news, err
}

func (h *Host) openReplica(ctx context.Context, address string, w *writer.Writer, i int) (writer.Replica, error) {
	link, err := h.storeLink(ctx, address)
	if err != nil {
		return nil, err
	}
	r, err := writer.OpenReplica(ctx, link, w, i)
	if err == nil {
		h.links.used(w.Extent.Replicas[i], link)
	}
	return r, err
}
