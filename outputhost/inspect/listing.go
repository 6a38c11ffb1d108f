package inspect

import (
	"context"
	"math"
	"slices"
	"strings"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/words"
	"github.com/columbamq/columba/wire"
)

// Limits of a page of messages.
const (
	maxPage      = 1000
	maxPageBytes = 8 << 20
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
func (x *Inspector) newListing(after core.Receipt, limit int, id string) listing {
	l := listing{limit: limit, most: maxPageBytes, last: after}
	if id != "" {
		l.most = x.cfg.SearchBytes
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

// Peek lists stored messages of a queue.
func (x *Inspector) Peek(ctx context.Context, req *pb.PeekRequest) (*pb.PeekResponse, error) {
	queue, after, limit, err := x.page(ctx, req.Queue, req.After, req.Limit)
	if err != nil {
		return nil, err
	}
	reader, err := x.readerOf(ctx, req.Queue)
	if err != nil {
		return nil, err
	}
	out, l := &pb.PeekResponse{}, listing{limit: limit, most: maxPageBytes, last: after}
	err = x.scan(ctx, queue, reader, after, nil, func(s stored) (more bool, err error) {
		if out.Next, more = l.take(s, len(out.Messages)); !more || s.taken {
			return more, nil
		}
		m, _, err := Message(s.record)
		if err != nil {
			return false, err
		}
		out.Messages = append(out.Messages, &pb.StoredMessage{Receipt: s.at.String(), Enqueued: unixMicro(s.enqueued), Message: m})
		return true, nil
	})
	return out, err
}

// ListDeadLetters lists a group's dead letters.
func (x *Inspector) ListDeadLetters(ctx context.Context, req *pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error) {
	queue, after, limit, err := x.page(ctx, core.DLQPath(req.Queue, req.Group), req.After, req.Limit)
	if err != nil {
		return nil, err
	}
	out, l := &pb.ListDeadLettersResponse{}, x.newListing(after, limit, req.Id)
	err = x.scan(ctx, queue, core.GroupID{}, after, nil, func(s stored) (more bool, err error) {
		if out.Next, more = l.take(s, len(out.DeadLetters)); !more || s.taken && !req.Taken {
			return more, nil
		}
		d, err := deadLetterOf(s.record, s.at, s.enqueued)
		if err == nil && (req.Id == "" || d.Id == req.Id) {
			d.Taken = s.taken
			out.DeadLetters = append(out.DeadLetters, d)
		}
		return true, err
	})
	out.Scanned = l.looked
	return out, err
}

// ListRetryQueue lists the messages that wait in a group's retry queue. The queue is not there before the first one.
func (x *Inspector) ListRetryQueue(ctx context.Context, req *pb.ListRetryQueueRequest) (*pb.ListRetryQueueResponse, error) {
	g, release, err := x.host.Group(ctx, req.Queue, req.Group)
	if err != nil {
		return nil, err
	}
	defer release()
	out := &pb.ListRetryQueueResponse{}
	queue, after, limit, err := x.page(ctx, core.RetryPath(req.Queue, req.Group), req.After, req.Limit)
	if core.CodeOf(err) == core.CodeNotFound {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if req.Until != nil {
		return out, x.lookUpDue(ctx, queue, g.ID(), req.Until.AsTime(), func(at core.Receipt, enqueued int64, record []byte) error {
			out.Looked++
			m, err := retryQueueMessage(record, at, enqueued)
			if err == nil && (req.Id == "" || m.Id == req.Id) && len(out.Messages) < limit {
				out.Messages = append(out.Messages, m)
			}
			return err
		})
	}
	now, l := x.host.Now(), x.newListing(after, limit, req.Id)
	var cancelled func(core.Seq) bool // in the extent that is looked through
	var of core.ExtentID
	skip := func(e core.Extent) (bool, error) { return x.allDue(ctx, e, now) }
	if req.Due {
		skip = nil
	}
	err = x.scan(ctx, queue, g.ID(), after, skip, func(s stored) (more bool, err error) {
		if out.Next, more = l.take(s, len(out.Messages)); !more || s.taken {
			return more, nil
		}
		if of != s.at.Extent {
			if cancelled, err = x.host.Cancelled(ctx, s.at.Extent); err != nil {
				return false, err
			}
			of = s.at.Extent
		}
		if !req.Due && cancelled(s.at.Seq) {
			return true, nil
		}
		m, err := retryQueueMessage(s.record, s.at, s.enqueued)
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
func (x *Inspector) page(ctx context.Context, path, after string, limit int32) (core.QueueID, core.Receipt, int, error) {
	var at core.Receipt
	id, err := x.host.QueueID(ctx, path)
	if err == nil && after != "" {
		at, err = core.ParseReceipt(after)
	}
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	return id, at, int(limit), err
}

// Limits of one ListWaiting, since the group is locked meanwhile.
const (
	waitingScan  = 20_000  // messages that are looked at
	waitingBytes = 1 << 20 // attributes of the messages that are answered, but for those of the last one
)

// ListWaiting lists the delayed messages that the group's shares on this host hold, in the order of their receipts:
// those that wait in memory after a failed attempt, those on their way to the retry queue, and those that were read and
// wait for the group's delay.
func (x *Inspector) ListWaiting(ctx context.Context, req *pb.ListWaitingRequest) (*pb.ListWaitingResponse, error) {
	g, release, err := x.host.Group(ctx, req.Queue, req.Group)
	if err != nil {
		return nil, err
	}
	defer release()
	_, after, limit, err := x.page(ctx, req.Queue, req.After, req.Limit)
	if err != nil {
		return nil, err
	}
	g.Lock()
	defer g.Unlock()
	out, scanned, bytes := &pb.ListWaitingResponse{}, 0, 0
	byID := func(a, b Share) int { return strings.Compare(a.Extent().ID.String(), b.Extent().ID.String()) }
	for _, s := range slices.SortedFunc(slices.Values(g.Shares()), byID) {
		order := strings.Compare(s.Extent().ID.String(), after.Extent.String())
		if order < 0 || order == 0 && after.Seq == math.MaxUint64 || s.Reading().Retired {
			continue
		}
		first := s.Rules().Blocking().Seq
		if order == 0 {
			first = max(first, after.Seq+1)
		}
		for seq := first; seq <= lastHeld(s); seq++ {
			if scanned == waitingScan || bytes >= waitingBytes || len(out.Messages) == limit {
				out.Next = core.Receipt{Extent: s.Extent().ID, Seq: seq - 1}.String()
				return out, nil
			}
			scanned++
			if m, size := x.waiting(g, s, seq); m != nil {
				out.Messages = append(out.Messages, m)
				bytes += size
			}
		}
	}
	return out, nil
}

// lastHeld is the last message that the share may hold. Those of a timer extent were not read in the order of
// seqs; of a log, what was restored lies at most a full share beyond what was read.
func lastHeld(s Share) core.Seq {
	if timers(s) {
		return s.Last()
	}
	return min(s.Last(), s.Rules().ReadFrom()+dispatch.MaxOutstanding)
}

// waiting is a message that waits for its time after it was read, and how many bytes its attributes have; nil for any
// other.
func (x *Inspector) waiting(g Group, s Share, seq core.Seq) (m *pb.DelayedMessage, size int) {
	st := s.Rules().Standing(seq)
	if words.StateOf(st.Place) != words.Delayed || st.Until.IsZero() {
		return nil, 0
	}
	status := x.status(g, s, st)
	m = &pb.DelayedMessage{
		Id: status.Id, Receipt: status.Receipt, Source: words.SourceRetry, Due: status.Until, Enqueued: status.Enqueued,
		Attempts: status.Attempts, Reason: status.LastFailure, Error: status.LastError,
	}
	if status.Attempts == 0 {
		m.Source = words.SourceGroup
	}
	var r wire.Record
	if st.Record == nil {
		return m, 0
	}
	if _, err := wire.DecodeRecord(st.Record, &r); err != nil {
		return m, 0
	}
	r.Payload = nil // it is not answered, and may be large
	message, err := recordMessage(&r)
	if err != nil {
		return m, 0
	}
	if s.Rules().IsReturning() {
		m.Origin = r.Origin.String()
	}
	message.Payload, message.DeliverAt = nil, nil
	m.Message = message
	return m, r.AttributesLen()
}
