package client

import (
	"context"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// Operation is a long change: a merge of a group's dead letters back into it, a purge of them, or of a queue (Group is
// empty then).
type Operation struct {
	ID           core.ID
	Kind         string // "merge" or "purge"
	Queue, Group string
	Rate         int    // messages per second; 0: no bound
	State        string // "running", "done", "cancelled" or "failed"
	Done, Total  uint64 // messages; a Total of 0 is not known yet
	Error        string // why it failed, what a running one waits for, or what one that is done has left
	Who          string // asked for it
	Created      time.Time
	Changed      time.Time

	Selection         core.Selection // of the dead letters; zero: all
	Scanned, Selected uint64         // of a selection: how many of Total were compared with it, and how many of those it takes
}

// Ended reports whether nothing more is done about it.
func (o Operation) Ended() bool { return o.State != "running" }

// MergeDeadLetters gives the dead letters that a group has now back to it: they are delivered to that group only, and
// their attempts begin anew. rate bounds how many per second, 0 does not. It answers at once, see WaitOperation;
// ErrConflict while another operation on them runs.
func (a *Admin) MergeDeadLetters(ctx context.Context, queue, group string, rate int) (Operation, error) {
	return a.startOperation(ctx, "merge", queue, group, rate, core.Selection{})
}

// MergeSelected is MergeDeadLetters for some of them. They are looked for first, and then come back all at once: one
// that is cancelled before has changed nothing, one that is decided goes on to its end.
func (a *Admin) MergeSelected(ctx context.Context, queue, group string, s core.Selection, rate int) (Operation, error) {
	return a.startOperation(ctx, "merge", queue, group, rate, s)
}

// PurgeDeadLetters removes the dead letters that a group has now. It answers at once, see WaitOperation; ErrConflict
// while another operation on them runs.
func (a *Admin) PurgeDeadLetters(ctx context.Context, queue, group string) (Operation, error) {
	return a.startOperation(ctx, "purge", queue, group, 0, core.Selection{})
}

// PurgeSelected is PurgeDeadLetters for some of them, which go all at once.
func (a *Admin) PurgeSelected(ctx context.Context, queue, group string, s core.Selection) (Operation, error) {
	return a.startOperation(ctx, "purge", queue, group, 0, s)
}

// PurgeQueue takes every message that a queue has now from all of its groups. It answers at once, see WaitOperation.
// Messages published after the operation is done stay; messages published while it runs may be deleted as well. When it
// is done, no deleted message is delivered any more. ErrConflict while another purge of the queue runs. An operation
// that is done and has an Error left some messages, which another one takes, or an output host that did not answer may
// still deliver some: the error says which.
func (a *Admin) PurgeQueue(ctx context.Context, queue string) (Operation, error) {
	return a.startOperation(ctx, "purge", queue, "", 0, core.Selection{})
}

func (a *Admin) startOperation(ctx context.Context, kind, queue, group string, rate int, s core.Selection) (Operation, error) {
	if err := s.Validate(); err != nil {
		return Operation{}, err
	}
	if rate < 0 {
		return Operation{}, core.Errorf(core.CodeBadArgument, "rate %d is negative; use 0 for no bound", rate)
	}
	req := &pb.StartOperationRequest{
		Id: core.NewID(time.Now()).String(), Kind: kind, Queue: queue, Group: group, Rate: uint32(rate), Selection: convert.SelectionToProto(s),
	}
	return operationOf(read(ctx, a.c, a.c.admin.StartOperation, req)) // by its id it is started once
}

// GetOperation looks an operation up by its id.
func (a *Admin) GetOperation(ctx context.Context, id core.ID) (Operation, error) {
	return operationOf(read(ctx, a.c, a.c.admin.GetOperation, &pb.GetOperationRequest{Id: id.String()}))
}

// operationPoll is how often WaitOperation looks.
const operationPoll = 500 * time.Millisecond

// WaitOperation waits until an operation has ended, or ctx has.
func (a *Admin) WaitOperation(ctx context.Context, id core.ID) (Operation, error) {
	tick := time.NewTicker(operationPoll)
	defer tick.Stop()
	for {
		o, err := a.GetOperation(ctx, id)
		if err == nil && o.Ended() || err != nil && core.CodeOf(err).Class() == core.ClassFatal {
			return o, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return o, core.Errorf(core.CodeDeadline, "wait for operation %s: %w", id, context.Cause(ctx))
		}
	}
}

// CancelOperation stops an operation where it is: what it has done stays done. One that has ended, or a selection that
// is decided, is answered as it is.
func (a *Admin) CancelOperation(ctx context.Context, id core.ID) (Operation, error) {
	return operationOf(read(ctx, a.c, a.c.admin.CancelOperation, &pb.CancelOperationRequest{Id: id.String()}))
}

// ListOperations is every operation that runs, and with ended also those that ended within the last days; the newest
// first.
func (a *Admin) ListOperations(ctx context.Context, ended bool) ([]Operation, error) {
	res, err := read(ctx, a.c, a.c.admin.ListOperations, &pb.ListOperationsRequest{Ended: ended})
	if err != nil {
		return nil, err
	}
	return all(res.Operations, func(p *pb.Operation) (Operation, error) { return operationOf(p, nil) })
}

// Seek sends a group to another place in its queue: to what is published from now on, to the earliest message that is
// kept, or to a time. What it had consumed does not count any more; what it holds is delivered again if it lies behind
// that place, and settling it is refused as stale. Consumers that are connected go on. What was merged into the group
// stays as it is.
func (a *Admin) Seek(ctx context.Context, queue, group string, to core.Start) (Group, error) {
	return groupOf(change(ctx, a.c, a.c.admin.SeekGroup, &pb.SeekGroupRequest{Queue: queue, Group: group, To: to.String()}))
}

// SeekPreview is what a seek would do.
type SeekPreview struct {
	Messages     uint64 // of the queue that the group would get; those merged into it, and those in its retry queue, stay as they are and are not counted
	Extents      int    // that these messages are in
	Waiting      uint64 // messages that the group has not settled now
	WaitingKnown bool   // whether Waiting could be counted
}

// PreviewSeek says what Seek would do, and changes nothing.
func (a *Admin) PreviewSeek(ctx context.Context, queue, group string, to core.Start) (SeekPreview, error) {
	p, err := read(ctx, a.c, a.c.admin.PreviewSeek, &pb.SeekGroupRequest{Queue: queue, Group: group, To: to.String()})
	if err != nil {
		return SeekPreview{}, err
	}
	return SeekPreview{Messages: p.GetMessages(), Extents: int(p.GetExtents()), Waiting: p.GetWaiting(), WaitingKnown: p.Waiting != nil}, nil
}

func operationOf(p *pb.Operation, err error) (Operation, error) {
	if err != nil {
		return Operation{}, err
	}
	id, err := parseID(p.GetId())
	return Operation{
		ID: id, Kind: p.GetKind(), Queue: p.GetQueue(), Group: p.GetGroup(), Rate: int(p.GetRate()), State: p.GetState(), Done: p.GetDone(), Total: p.GetTotal(),
		Error: p.GetError(), Who: p.GetWho(), Created: timeFromProto(p.GetCreated()), Changed: timeFromProto(p.GetChanged()),
		Selection: convert.Selection(p.GetSelection()), Scanned: p.GetScanned(), Selected: p.GetSelected(),
	}, err
}
