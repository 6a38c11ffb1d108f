package inputhost

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
)

// seal asks the controller for the end of an extent. However many extents end at once, a bounded number of calls is
// under way.
func (h *Host) seal(ctx context.Context, e core.Extent, end writer.End) (core.Seq, int, error) {
	leave, err := h.sealings.enter(ctx, end.Owing)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := ask(ctx, h, e.Queue.ID, anotherMay, func(ctx context.Context, at controllerClient) (*connect.Response[pb.SealExtentResponse], error) {
		return at.SealExtent(ctx, connect.NewRequest(&pb.SealExtentRequest{
			Extent: convert.ExtentToProto(e), Floor: uint64(end.Floor), Reason: end.Reason, Due: convert.Time(end.Due),
		}))
	})
	if err != nil {
		return 0, 0, convert.FromRPC(err)
	}
	return core.Seq(resp.Msg.L), len(resp.Msg.Holders), nil
}

// ended is told by a writer that takes nothing more; store is the one that ended it early, if any did.
func (q *queue) ended(w *writer.Writer, store core.HostID, cause error) {
	now := q.h.deps.now()
	if store != "" && q.h.stores.failed(now, store, cause) {
		q.h.log.Warn("a store failed; its extents are sealed", "store", store, "err", cause)
	}
	run := q.h.stores.run(store)
	q.mu.Lock()
	defer q.mu.Unlock()
	if countsAgainstPace(store, cause) {
		q.mu.pace.failed(store, run, q.mu.writers[w], now)
	}
	was := q.mu.open.drop(w)
	if needed, urgent := q.needLocked(now); needed && (urgent || was) {
		q.openLocked()
	}
}

// sealed is told by a writer whose extent is sealed and whose chunks are all answered.
func (q *queue) sealed(w *writer.Writer, reason string) {
	q.h.metrics.seals.WithLabelValues(reason).Inc()
	now := q.h.deps.now()
	q.mu.Lock()
	delete(q.mu.writers, w)
	q.forgetSealedLocked(now)
	q.mu.sealed = append(q.mu.sealed, sealedFill{fillOf(w), now})
	if q.ordered && q.neededLocked() {
		q.openLocked()
	}
	q.mu.Unlock()
}

// evict ends all extents of a store.
func (h *Host) evict(store core.HostID, reason evictReason) {
	h.metrics.evicted.WithLabelValues(string(reason)).Inc()
	why := reason.of(store, h.stores.limits)
	n := 0
	for _, q := range h.list() {
		for _, w := range q.list(nil) {
			if w.Uses(store) {
				w.Fail(store, why)
				n++
			}
		}
	}
	h.log.Warn("store evicted; its extents are sealed", "store", store, "extents", n, "err", why)
}
