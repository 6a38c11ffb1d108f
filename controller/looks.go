package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

const (
	// queuesAtOnce bounds the queues that a round looks at side by side. A look is a few reads in series, and a controller
	// that takes over looks at all of its queues.
	queuesAtOnce = 16
	// roundPatience is for how long one round waits for metadata that refuse calls, in all. The next round looks at the
	// queues that this one has not come to.
	roundPatience = maxGatePause
)

// looks are what one round gets by looking at queues.
type looks struct {
	mu struct {
		sync.Mutex
		dropped []catalog.Decision // shares that nobody needs any more
		failed  int                // queues whose shares stay as they are
		some    core.QueueID       // the first of them …
		err     error              // … and why
		unknown bool               // one of them was never looked at
	}
}

// failed notes that the shares of a queue stay as they are.
func (l *looks) failed(h *Host, queue core.QueueID, err error) {
	h.shares.later(queue)
	unknown := h.shares.of(queue) == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failed++; l.mu.err == nil {
		l.mu.some, l.mu.err = queue, err
	}
	// Otherwise this controller would take shares that it does not know yet from their owner. A queue that cannot be read
	// is the exception.
	l.mu.unknown = l.mu.unknown || unknown && core.CodeOf(err) != core.CodeCorrupt
}

// lookAtAll looks at queues side by side, each of them once: first at those that were touched, then at those that are
// due. Queues of other controllers are left out. While the metadata refuse calls, one look after each pause of the gate
// finds out whether they answer again. A queue that is touched meanwhile, and hosts that come or go, wait for the last
// look. So once shares are complete, no look at a queue that is due begins after ReconcileEvery: it is left to the next
// rounds.
func (h *Host) lookAtAll(ctx context.Context, touched, due []core.QueueID, consumed bool) *looks {
	l, patience, began := &looks{}, roundPatience, time.Now()
	var g errgroup.Group
	g.SetLimit(queuesAtOnce)
	begun := make(map[core.QueueID]struct{}, len(touched))
	for i, queue := range slices.Concat(touched, due) {
		if i >= len(touched) && time.Since(began) >= h.cfg.ReconcileEvery && h.shares.isComplete() {
			break
		}
		if _, twice := begun[queue]; twice || !h.duties.Responsible(queue.ID) {
			continue
		}
		begun[queue] = struct{}{}
		if err := h.passGate(ctx, &patience); err != nil {
			l.failed(h, queue, err)
			continue
		}
		g.Go(func() error {
			h.acting(queue, func() {
				h.leaveYielded(queue)
				gone, err := h.lookAt(ctx, queue, consumed)
				l.mu.Lock()
				l.mu.dropped = append(l.mu.dropped, gone...)
				l.mu.Unlock()
				if err != nil {
					l.failed(h, queue, err)
				}
			})
			return nil
		})
	}
	g.Wait()
	return l
}

// passGate waits until a look may start, or patience is over, which becomes less by the wait.
func (h *Host) passGate(ctx context.Context, patience *time.Duration) error {
	if h.gate.pass() {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, *patience, core.Errorf(core.CodeUnavailable, "the metadata refuse calls"))
	defer cancel()
	err := h.gate.wait(ctx)
	*patience -= time.Since(began)
	return err
}

// logLooks tells of looks that failed: at once, and then once a minute while some do.
func (h *Host) logLooks(l *looks, looked int) {
	switch failed := l.mu.failed; {
	case failed > 0 && h.looksFail.Failed(time.Now()):
		h.log.Warn("shares of queues stay as they are: their groups cannot be read; later rounds try again", "queues", failed, "some", l.mu.some, "err", l.mu.err)
	case failed == 0 && looked > 0:
		h.looksFail.Succeeded()
	}
}
