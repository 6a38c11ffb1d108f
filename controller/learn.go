package controller

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/internal/retell"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// tellOfGroup has the controller that is responsible for a queue look at the queue's groups. One that is not reached is
// told again and again. If this process ends meanwhile, it looks at them by itself within idleEvery.
func (h *Host) tellOfGroup(queue core.QueueID) {
	if h.duties.Responsible(queue.ID) {
		h.shares.touch(queue)
		return
	}
	h.tasks.Go(func(ctx context.Context) {
		if !h.toldOfGroup(ctx, queue) {
			h.retell.Add(queue)
		}
	})
}

// toldOfGroup is one try of tellOfGroup.
func (h *Host) toldOfGroup(ctx context.Context, queue core.QueueID) bool {
	if h.duties.Responsible(queue.ID) {
		h.shares.touch(queue)
		return true
	}
	for _, m := range h.otherControllers(queue) {
		if _, err := h.heardThere(ctx, m, queue, nil); err == nil {
			return true
		}
	}
	return false
}

func (h *Host) retellLoop(ctx context.Context) { lifecycle.Every(ctx, retell.Every, h.retell.Round) }

// tellOthers has the controller that is responsible for the queue whose groups read a new extent take the extent in.
// When this call fails, the other one learns of the extent up to reloadOften later: this one names it, or the other
// reads all.
func (h *Host) tellOthers(e catalog.Extent) {
	queue := e.Reader()
	if h.duties.Responsible(queue.ID) {
		return
	}
	h.tasks.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
		defer cancel()
		req := &pb.LearnExtentRequest{Reader: queue.ID[:], Queue: e.Queue.ID[:], Extent: e.ID.ID[:]}
		var err error
		for _, m := range h.otherControllers(queue) {
			if _, err = h.deps.Peers.Controller(m.Address).LearnExtent(ctx, connect.NewRequest(req)); err == nil {
				return
			}
		}
		h.log.Debug("the controller of a queue was not told of a new extent", "queue", queue, "extent", e.ID, "err", err)
	})
}

// otherControllers are those but this one, in the order in which they are likely to be responsible for a queue.
func (h *Host) otherControllers(queue core.QueueID) (out []membership.Host) {
	self := h.deps.Members.Self().ID
	for _, m := range core.Rank(queue.String(), h.deps.Members.Hosts("controller"), func(m membership.Host) core.HostID { return m.ID }) {
		if m.ID != self {
			out = append(out, m)
		}
	}
	return out
}

func (s *service) LearnExtent(ctx context.Context, req *connect.Request[pb.LearnExtentRequest]) (*connect.Response[pb.LearnExtentResponse], error) {
	var reader, queue core.QueueID
	var id core.ExtentID
	for _, x := range []struct {
		to   *core.ID
		from []byte
	}{{&reader.ID, req.Msg.Reader}, {&queue.ID, req.Msg.Queue}, {&id.ID, req.Msg.Extent}} {
		var err error
		if *x.to, err = core.IDFromBytes(x.from); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	if err := s.h.learnExtent(ctx, reader, queue, id); err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.LearnExtentResponse{}), nil
}

// learnExtent takes in an extent by its create row, and its seal row if there is one.
func (h *Host) learnExtent(ctx context.Context, reader, queue core.QueueID, id core.ExtentID) error {
	if !h.duties.Responsible(reader.ID) {
		return core.Errorf(core.CodeMoved, "this controller is not responsible for queue %s; ask another one", reader)
	}
	e, known := h.extents.Get(id)
	if known && e.Minority == (metadata.Maker{}) {
		return nil
	}
	r, err := metadata.ReadExtentRow(ctx, h.deps.Meta, queue, id, metadata.Quorum)
	if err == nil {
		h.tellDamage(r)
		err = r.Err()
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "read the row of a new extent: %w", err)
	}
	_, err = h.takeIn(ctx, []metadata.ExtentRecord{r.Value}, map[core.ExtentID]bool{id: true})
	return err
}

// learn brings what is known of extents up to their seal rows, and takes in those that are not known.
func (h *Host) learn(ctx context.Context, ids []core.ExtentID) error {
	for some := range slices.Chunk(ids, sealRowsAtOnce) {
		rows, err := h.sealRows(ctx, some)
		if err != nil {
			return err
		}
		for id, row := range rows {
			if _, known := h.extents.Get(id); known {
				h.took(row)
				continue
			}
			if row.State == core.ExtentRetired {
				continue
			}
			r, err := h.registration(ctx, row.Extent)
			if err != nil {
				return err
			}
			h.meet(catalog.Extent{ExtentRecord: r, State: core.ExtentOpen, Home: r.Home}.Took(row))
		}
	}
	return nil
}

// learnQueue is learn for what is known of the extents that the groups of a queue read: another controller may have
// told output hosts of changes that this one would take back.
func (h *Host) learnQueue(ctx context.Context, queue core.QueueID) error {
	if h.cfg.Alone {
		return nil
	}
	var ids []core.ExtentID
	for e := range h.extents.Each(queue) {
		ids = append(ids, e.ID)
	}
	return h.learn(ctx, ids)
}
