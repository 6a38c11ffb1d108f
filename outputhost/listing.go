package outputhost

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/outputhost/cancels"
)

// stored is a message that a listing comes by.
type stored struct {
	at       core.Receipt
	enqueued int64
	record   []byte // valid until the listing goes on
	taken    bool   // singly, by a selection
}

// listing is one call's way through the messages of a queue: it ends with a full page, or when enough was read.
type listing struct {
	limit, most int
	bytes       int
	looked      uint64
	last        core.Receipt
}

// newListing goes on after a receipt; with an id it looks for one message, and has more to read.
func (h *Host) newListing(after core.Receipt, limit int, id string) listing {
	l := listing{limit: limit, most: maxPullBytes, last: after}
	if id != "" {
		l.most = h.cfg.SearchBytes
	}
	return l
}

// take comes by the next message with so many on the page, or says where the next page goes on.
func (l *listing) take(s stored, page int) (next string, more bool) {
	if page == l.limit || l.bytes > l.most {
		return l.last.String(), false
	}
	l.looked++
	l.bytes, l.last = l.bytes+len(s.record), s.at
	return "", true
}

// peek lists stored messages of a queue.
func (h *Host) peek(ctx context.Context, req *pb.PeekRequest) (*pb.PeekResponse, error) {
	queue, after, limit, err := h.page(ctx, req.Queue, req.After, req.Limit)
	if err != nil {
		return nil, err
	}
	reader, err := h.readerOf(ctx, req.Queue)
	if err != nil {
		return nil, err
	}
	out, l := &pb.PeekResponse{}, listing{limit: limit, most: maxPullBytes, last: after}
	err = h.scan(ctx, queue, reader, after, nil, func(s stored) (more bool, err error) {
		if out.Next, more = l.take(s, len(out.Messages)); !more || s.taken {
			return more, nil
		}
		m, _, err := messageOf(s.record)
		if err != nil {
			return false, err
		}
		out.Messages = append(out.Messages, &pb.StoredMessage{Receipt: s.at.String(), Enqueued: unixMicro(s.enqueued), Message: m})
		return true, nil
	})
	return out, err
}

// listLetters lists a group's dead letters.
func (h *Host) listLetters(ctx context.Context, req *pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error) {
	queue, after, limit, err := h.page(ctx, core.DLQPath(req.Queue, req.Group), req.After, req.Limit)
	if err != nil {
		return nil, err
	}
	out, l := &pb.ListDeadLettersResponse{}, h.newListing(after, limit, req.Id)
	err = h.scan(ctx, queue, core.GroupID{}, after, nil, func(s stored) (more bool, err error) {
		if out.Next, more = l.take(s, len(out.DeadLetters)); !more || s.taken && !req.Taken {
			return more, nil
		}
		d, err := letterOf(s.record, s.at, s.enqueued)
		if err == nil && (req.Id == "" || d.Id == req.Id) {
			d.Taken = s.taken
			out.DeadLetters = append(out.DeadLetters, d)
		}
		return true, err
	})
	out.Scanned = l.looked
	return out, err
}

// listParked lists what waits in a group's retry queue. There is none before a message is parked first.
func (h *Host) listParked(ctx context.Context, req *pb.ListParkedRequest) (*pb.ListParkedResponse, error) {
	g, err := h.lookUp(ctx, req.Queue, req.Group)
	if err != nil {
		return nil, err
	}
	defer g.release()
	out := &pb.ListParkedResponse{}
	queue, after, limit, err := h.page(ctx, core.RetryPath(req.Queue, req.Group), req.After, req.Limit)
	if core.CodeOf(err) == core.CodeNotFound {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if req.Until != nil {
		return out, h.lookUpDue(ctx, queue, g.id, req.Until.AsTime(), func(at core.Receipt, enqueued int64, record []byte) error {
			out.Looked++
			m, err := parkedOf(record, at, enqueued)
			if err == nil && (req.Id == "" || m.Id == req.Id) && len(out.Messages) < limit {
				out.Messages = append(out.Messages, m)
			}
			return err
		})
	}
	now, l := h.deps.Now(), h.newListing(after, limit, req.Id)
	var decided cancels.Decided // of the extent that is looked through
	var of core.ExtentID
	skip := func(e core.Extent) (bool, error) { return h.allDue(ctx, e, now) }
	if req.Due {
		skip = nil
	}
	err = h.scan(ctx, queue, g.id, after, skip, func(s stored) (more bool, err error) {
		if out.Next, more = l.take(s, len(out.Messages)); !more || s.taken {
			return more, nil
		}
		if of != s.at.Extent {
			if decided, err = h.cancels.Read(ctx, s.at.Extent); err != nil {
				return false, err
			}
			of = s.at.Extent
		}
		if !req.Due && decided.ForAll(s.at.Seq) {
			return true, nil
		}
		m, err := parkedOf(s.record, s.at, s.enqueued)
		if err != nil || !req.Due && !m.GetUntil().AsTime().After(now) || req.Id != "" && m.Id != req.Id {
			return true, err
		}
		out.Messages = append(out.Messages, m)
		return true, nil
	})
	out.Looked = l.looked
	return out, err
}

// page reads the common parts of a listing.
func (h *Host) page(ctx context.Context, path, after string, limit int32) (core.QueueID, core.Receipt, int, error) {
	var at core.Receipt
	id, err := h.queueID(ctx, path)
	if err == nil && after != "" {
		at, err = core.ParseReceipt(after)
	}
	if limit <= 0 || limit > maxPull {
		limit = maxPull
	}
	return id, at, int(limit), err
}
