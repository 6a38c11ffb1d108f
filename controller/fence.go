package controller

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

// How long a decision that could be made waits for the replicas that have not answered.
const (
	// graceEnough: enough copies are sure; the others are told later, and completed by repair.
	graceEnough = 30 * time.Millisecond
	// graceMore: one more copy would let the writer acknowledge at once.
	graceMore = 300 * time.Millisecond
)

// reply is a replica's answer to its fence, or why there is none.
type reply struct {
	store  core.HostID
	answer core.FenceAnswer
	err    error
}

// fence asks every replica side by side to refuse further appends, and collects what they say. It returns when all have
// answered or failed, or, once what they said suffices for a decision, after a short grace: one store that hangs holds
// nobody up. A store that an operator declared to be gone is not asked.
func (h *Host) fence(ctx context.Context, o order, floor core.Seq) seal.Input {
	e := o.extent
	in := seal.Input{
		Replicas: e.Replicas, Floor: floor, Disks: make(map[core.HostID]core.DiskID),
		Answers: make(map[core.HostID]core.FenceAnswer), Missing: make(map[core.HostID]error),
	}
	replies := make(chan reply, len(e.Replicas))
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	asked := 0
	for _, id := range e.Replicas {
		if id == o.gone {
			continue
		}
		asked++
		if disk := e.Disk(id); !disk.IsZero() {
			in.Disks[id] = disk
		}
		in.Missing[id] = core.Errorf(core.CodeDeadline, "no answer in time")
		started := h.tasks.Go(func(context.Context) {
			a, err := h.replicas.Fence(ctx, e, core.Place{Store: id, Disk: e.Disk(id)}, 0)
			replies <- reply{id, a, err}
		})
		if !started {
			replies <- reply{store: id, err: core.Errorf(core.CodeDraining, "controller is stopping")}
		}
	}
	grace := time.NewTimer(h.cfg.CallTimeout)
	defer grace.Stop()
	for patience, n := h.cfg.CallTimeout, 0; n < asked; n++ {
		select {
		case r := <-replies:
			if r.err != nil {
				in.Missing[r.store] = r.err
			} else {
				delete(in.Missing, r.store)
				in.Answers[r.store] = r.answer
			}
		case <-grace.C:
			return in
		}
		if wait := patienceFor(in, h.cfg.CallTimeout); wait < patience {
			patience = wait
			grace.Reset(wait)
		}
	}
	return in
}

// patienceFor is how long to wait for more answers than these.
func patienceFor(in seal.Input, most time.Duration) time.Duration {
	d := seal.Decide(in)
	switch {
	case d.Verdict != seal.Decided:
		return most
	case len(d.Counting) < min(2, len(in.Replicas)):
		return min(graceMore, most)
	}
	return min(graceEnough, most)
}

const (
	// tailBytes is how much a seal copies before it answers; what lacks more is completed by repair.
	tailBytes = 4 << 20
	// tailTimeout bounds those copies.
	tailTimeout = time.Second
)

// complete brings the counting replicas that are a little short up to the end, side by side, and answers all holders
// then.
func (h *Host) complete(ctx context.Context, e core.Extent, d seal.Decision, in seal.Input) []core.Place {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	holders := make([]core.Place, 0, len(d.Counting))
	for _, id := range d.Holders {
		holders = append(holders, placeIn(in, id))
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range d.Copies {
		if in.Answers[c.From].Bytes > in.Answers[c.To].Bytes+tailBytes {
			continue
		}
		wg.Go(func() {
			to := placeIn(in, c.To)
			if _, err := h.replicas.Copy(ctx, e.ID, placeIn(in, c.From), to, c.First, c.Last, nil); err != nil {
				h.log.Warn("a replica was not completed", "extent", e.ID, "store", c.To, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			holders = append(holders, to)
		})
	}
	wg.Wait()
	return holders
}

func placeIn(in seal.Input, id core.HostID) core.Place {
	return core.Place{Store: id, Disk: in.Answers[id].Identity.Disk}
}
