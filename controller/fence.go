package controller

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
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

// fence asks every replica side by side to refuse further appends, and collects what they say. It returns when all have answered or
// failed, or, once what they said suffices for a decision, after a short grace: one store that hangs holds nobody up.
func (h *Host) fence(ctx context.Context, e core.Extent, floor core.Seq) seal.Input {
	in := seal.Input{
		Replicas: e.Replicas, Floor: floor, Disks: make(map[core.HostID]core.DiskID),
		Answers: make(map[core.HostID]core.FenceAnswer), Missing: make(map[core.HostID]error),
	}
	replies := make(chan reply, len(e.Replicas))
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	for _, id := range e.Replicas {
		if disk := e.Disk(id); !disk.IsZero() {
			in.Disks[id] = disk
		}
		in.Missing[id] = core.Errorf(core.CodeDeadline, "no answer in time")
		started := h.tasks.Go(func(context.Context) {
			a, err := h.fenceOne(ctx, e, id, e.Disk(id), 0)
			replies <- reply{id, a, err}
		})
		if !started {
			replies <- reply{store: id, err: core.Errorf(core.CodeDraining, "controller is stopping")}
		}
	}
	grace := time.NewTimer(h.cfg.CallTimeout)
	defer grace.Stop()
	for patience, n := h.cfg.CallTimeout, 0; n < len(e.Replicas); n++ {
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

// fenceOne fences the replica on one disk of a store; a zero disk is any. version is of the holders when the store is to get a copy: one
// that removed it by an older version takes it back.
func (h *Host) fenceOne(ctx context.Context, e core.Extent, id core.HostID, disk core.DiskID, version uint64) (core.FenceAnswer, error) {
	store, err := h.storeAt(id)
	if err != nil {
		return core.FenceAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.patienceWith(id))
	defer cancel()
	resp, err := store.Fence(ctx, connect.NewRequest(&pb.FenceRequest{Extent: convert.ExtentToProto(e), Expected: expect(id, disk), Version: version}))
	if err != nil {
		h.stores.callFailed(id, err)
		return core.FenceAnswer{}, convert.FromRPC(err)
	}
	return convert.FenceAnswer(resp.Msg)
}

// patienceWith a store is how long a call to it may take: one that has not answered for a while gets no more than a question how it fares.
func (h *Host) patienceWith(id core.HostID) time.Duration {
	if st, known := h.stores.get(id); known && !st.answering() {
		return min(h.cfg.DescribeTimeout, h.cfg.CallTimeout)
	}
	return h.cfg.CallTimeout
}
