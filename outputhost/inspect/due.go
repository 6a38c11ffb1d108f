package inspect

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// timersAfter is a place in the listing of a queue's timers: behind the message of a receipt, due then, extent by
// extent. As a page token it is the receipt, "@", and the due time in unix ms.
type timersAfter struct {
	core.Receipt
	due int64
}

func (p timersAfter) String() string { return p.Receipt.String() + "@" + strconv.FormatInt(p.due, 10) }

func parseTimersAfter(text string) (p timersAfter, err error) {
	if text == "" {
		return p, nil
	}
	receipt, due, ok := strings.Cut(text, "@")
	if p.due, err = strconv.ParseInt(due, 10, 64); !ok || err != nil || p.due < 0 {
		return p, core.Errorf(core.CodeBadArgument, "the page token is not one of a listing of timers; begin with an empty one")
	}
	p.Receipt, err = core.ParseReceipt(receipt)
	return p, err
}

// ListTimers lists the messages of a queue that are not due yet, extent by extent, in each as they are due. A page
// reads at most peekBytes of each of a few extents.
func (x *Inspector) ListTimers(ctx context.Context, req *pb.ListTimersRequest) (*pb.PeekResponse, error) {
	after, err := parseTimersAfter(req.After)
	if err != nil {
		return nil, err
	}
	queue, _, limit, err := x.page(ctx, req.Queue, "", req.Limit)
	if err != nil {
		return nil, err
	}
	out := &pb.PeekResponse{}
	now := x.host.Now()
	for r, err := range metadata.ExtentRows(ctx, x.shown, queue, metadata.Quorum) {
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return nil, err
		}
		e := r.Value.Extent
		order := strings.Compare(e.ID.String(), after.Extent.String())
		if order < 0 {
			continue
		}
		if due, err := x.allDue(ctx, e, now); err != nil || due {
			if err != nil {
				return nil, err
			}
			continue
		}
		from := timersAfter{core.Receipt{Extent: e.ID, Seq: math.MaxUint64}, now.UnixMilli()}
		if order == 0 {
			from = after
		}
		if more, err := x.peekTimersOf(ctx, e, from, limit, out); err != nil || more {
			return out, err
		}
	}
	return out, nil
}

// peekTimersOf appends those of one extent; more: the page ends here.
func (x *Inspector) peekTimersOf(ctx context.Context, e core.Extent, from timersAfter, limit int, out *pb.PeekResponse) (more bool, err error) {
	if len(out.Messages) == limit {
		out.Next = from.String()
		return true, nil
	}
	upTo, stores, _, err := x.readable(ctx, e, core.GroupID{})
	if err != nil || upTo == 0 {
		return false, err
	}
	cancelled, err := x.host.Cancelled(ctx, e.ID)
	if err != nil {
		return false, err
	}
	req := &pb.ListDueRequest{
		Extent: e.ID.ID[:], After: from.due, AfterSeq: uint64(from.Seq), UpTo: uint64(upTo), MaxBytes: peekBytes, MaxRecords: uint32(limit - len(out.Messages)),
	}
	resp, err := untilHeard(ctx, func() (*pb.ListDueResponse, error) { return x.listDue(ctx, stores, req) })
	if err != nil {
		return false, err
	}
	for _, r := range resp.Records {
		if cancelled(core.Seq(r.Seq)) {
			continue
		}
		m, _, err := Message(r.Record)
		if err != nil {
			return false, err
		}
		m.Payload = nil
		out.Messages = append(out.Messages, &pb.StoredMessage{Receipt: core.Receipt{Extent: e.ID, Seq: core.Seq(r.Seq)}.String(), Enqueued: unixMicro(r.Enqueued), Message: m})
	}
	if resp.More {
		out.Next = timersAfter{core.Receipt{Extent: e.ID, Seq: core.Seq(resp.PassedSeq)}, resp.Passed}.String()
	}
	return resp.More, nil
}

// listDue asks the first store that answers.
func (x *Inspector) listDue(ctx context.Context, stores []membership.Host, req *pb.ListDueRequest) (*pb.ListDueResponse, error) {
	var err error
	for i, s := range stores {
		resp, rerr := peer.Call(ctx, within(ctx, rangeTimeout, len(stores)-1-i), x.host.Store(s.Address).ListDue, req)
		if rerr == nil {
			return resp, nil
		}
		err = foremost(err, rerr)
	}
	if err == nil {
		err = core.Errorf(core.CodeUnavailable, "no store of extent %x is there", req.Extent)
	}
	return nil, err
}

// dueRounds bounds the questions to one extent for what is due at one time.
const dueRounds = 16

// lookUpDue calls f for the messages of the timer extents of a queue, as far as a group reads them, that are due just
// then. One that cannot be read does not hide the others.
func (x *Inspector) lookUpDue(ctx context.Context, queue core.QueueID, group core.GroupID, due time.Time, f func(at core.Receipt, enqueued int64, record []byte) error) error {
	var failed []error
	for r, err := range metadata.ExtentRows(ctx, x.host.Meta(), queue, metadata.Quorum) {
		if err != nil {
			return err
		}
		if err := r.Err(); err != nil {
			failed = append(failed, err)
			continue
		}
		e := r.Value.Extent
		if over, err := x.allDue(ctx, e, due.Add(-time.Millisecond)); err != nil || over { // of a log, or nothing as late as that
			if err != nil {
				return err
			}
			continue
		}
		if err := x.lookUpDueIn(ctx, e, group, due.UnixMilli(), f); err != nil {
			failed = append(failed, core.Errorf(core.CodeOf(err), "look up what is due in extent %s: %w", e.ID, err))
		}
	}
	return errors.Join(failed...)
}

func (x *Inspector) lookUpDueIn(ctx context.Context, e core.Extent, group core.GroupID, due int64, f func(core.Receipt, int64, []byte) error) error {
	upTo, stores, gone, err := x.readable(ctx, e, group)
	if err != nil || upTo == 0 {
		return err
	}
	return x.dueAt(ctx, stores, e.ID, upTo, due, func(r *pb.ListDueResponse_Record) error {
		if seq := core.Seq(r.Seq); !gone.Done(seq) {
			return f(core.Receipt{Extent: e.ID, Seq: seq}, r.Enqueued, r.Record)
		}
		return nil
	})
}

// dueAt calls f for the records of a timer extent that are due just then.
func (x *Inspector) dueAt(ctx context.Context, stores []membership.Host, extent core.ExtentID, upTo core.Seq, due int64, f func(*pb.ListDueResponse_Record) error) error {
	req := &pb.ListDueRequest{Extent: extent.ID[:], After: due - 1, AfterSeq: math.MaxUint64, UpTo: uint64(upTo), MaxBytes: peekBytes, MaxRecords: maxPage}
	for range dueRounds {
		resp, err := untilHeard(ctx, func() (*pb.ListDueResponse, error) { return x.listDue(ctx, stores, req) })
		if err != nil {
			return err
		}
		for _, r := range resp.Records {
			if r.Due > due {
				return nil
			}
			if err := f(r); err != nil {
				return err
			}
		}
		if !resp.More || resp.Passed > due {
			return nil
		}
		req.After, req.AfterSeq = resp.Passed, resp.PassedSeq
	}
	return core.Errorf(core.CodeTooLarge, "more than %d messages are due at once", dueRounds*maxPage)
}
