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
	Rate         int    // messages per second; 0: no limit
	State        string // "running", "done", "cancelled" or "failed"
	Done, Total  uint64 // messages; a Total of 0 is not known yet
	Error        string // why it failed, why a running one waits, or what an operation that is done did not remove
	Who          string // asked for it
	Created      time.Time
	Changed      time.Time

	Selection         core.Selection // of the dead letters; zero: all
	Scanned, Selected uint64         // of a selection: how many of Total were compared with it, and how many of those it takes
}

// Ended reports whether the operation has ended: done, cancelled or failed.
func (o Operation) Ended() bool { return o.State != "running" }

// MergeDeadLetters delivers the dead letters that a group has now once more. They are delivered to that group only, and
// their attempts begin anew. rate is the most messages per second; 0 means no limit. It starts the operation and
// returns; use WaitOperation. ErrConflict: another operation on them is running.
func (a *Admin) MergeDeadLetters(ctx context.Context, queue, group string, rate int) (Operation, error) {
	return a.startOperation(ctx, "merge", queue, group, rate, core.Selection{})
}

// MergeSelected merges the dead letters that s selects. It first finds all of them and then merges them together.
// Cancelling before that changes nothing; afterwards the operation cannot be cancelled. Otherwise as MergeDeadLetters.
func (a *Admin) MergeSelected(ctx context.Context, queue, group string, s core.Selection, rate int) (Operation, error) {
	return a.startOperation(ctx, "merge", queue, group, rate, s)
}

// PurgeDeadLetters removes the dead letters that a group has now. It starts the operation and returns; use
// WaitOperation. ErrConflict: another operation on them is running.
func (a *Admin) PurgeDeadLetters(ctx context.Context, queue, group string) (Operation, error) {
	return a.startOperation(ctx, "purge", queue, group, 0, core.Selection{})
}

// PurgeSelected removes the dead letters that s selects, all of them together. ErrBadArgument: s has no condition, as
// if the caller forgot to set one. Otherwise as PurgeDeadLetters.
func (a *Admin) PurgeSelected(ctx context.Context, queue, group string, s core.Selection) (Operation, error) {
	if s.IsAll() {
		return Operation{}, core.Errorf(core.CodeBadArgument, "the selection has no condition; use PurgeDeadLetters to purge all dead letters")
	}
	return a.startOperation(ctx, "purge", queue, group, 0, s)
}

// PurgeQueue removes the messages that the queue has now, for all of its groups. It starts the operation and returns;
// use WaitOperation.
//
// Messages published before the purge starts are removed. Messages published while it runs may be removed. Messages
// whose publish is acknowledged after it has ended stay. After it has ended, no removed message is delivered.
//
// If the ended operation has an Error, it did not remove everything, or an output host that did not answer may still
// deliver removed messages. Error says which. Run another purge for the rest. ErrConflict: another purge of the queue
// is running.
func (a *Admin) PurgeQueue(ctx context.Context, queue string) (Operation, error) {
	return a.startOperation(ctx, "purge", queue, "", 0, core.Selection{})
}

func (a *Admin) startOperation(ctx context.Context, kind, queue, group string, rate int, s core.Selection) (Operation, error) {
	if err := s.Validate(); err != nil {
		return Operation{}, err
	}
	if rate < 0 {
		return Operation{}, core.Errorf(core.CodeBadArgument, "rate %d is negative; use 0 for no limit", rate)
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

// CancelOperation stops an operation. Messages that it has merged or purged stay so. If the operation has ended, or its
// selection has been applied, CancelOperation changes nothing and returns it.
func (a *Admin) CancelOperation(ctx context.Context, id core.ID) (Operation, error) {
	return operationOf(read(ctx, a.c, a.c.admin.CancelOperation, &pb.CancelOperationRequest{Id: id.String()}))
}

// ListOperations returns the running operations, and with ended also those that ended within the last seven days; the
// newest first.
func (a *Admin) ListOperations(ctx context.Context, ended bool) ([]Operation, error) {
	res, err := read(ctx, a.c, a.c.admin.ListOperations, &pb.ListOperationsRequest{Ended: ended})
	if err != nil {
		return nil, err
	}
	return all(res.Operations, func(p *pb.Operation) (Operation, error) { return operationOf(p, nil) })
}

// Seek sends a group to another place in its queue: to messages published from now on, to the earliest message that is
// kept, or to a time. The group forgets which messages it had consumed. Messages that its consumers hold are delivered
// again if they lie after the new place; settling them is refused with ErrStale. Connected consumers go on at the new
// place. Merged messages and messages in the retry queue stay as they are.
func (a *Admin) Seek(ctx context.Context, queue, group string, to core.Start) (Group, error) {
	return groupOf(change(ctx, a.c, a.c.admin.SeekGroup, &pb.SeekGroupRequest{Queue: queue, Group: group, To: to.String()}))
}

// SeekPreview is the effect that a seek would have.
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
