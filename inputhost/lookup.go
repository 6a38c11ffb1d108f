package inputhost

import (
	"bytes"
	"context"
	"sync"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// lookUp finds the queue of a hello that may publish to it. One copy of the metadata is enough to let a publisher in;
// that one may be behind, so nobody is turned away for what it alone says, nor let in to a queue that is known to be
// gone.
func (h *Host) lookUp(ctx context.Context, hello *pb.PublishHello) (metadata.QueueRecord, metadata.Reading, error) {
	record, at, err := h.lookUpAt(ctx, hello, metadata.One)
	switch code := core.CodeOf(err); {
	case code == core.CodeNotFound, code == core.CodeDisabled, err == nil && h.replaced.has(record.ID):
		return h.lookUpAt(ctx, hello, metadata.Quorum)
	}
	return record, at, err
}

// lookUpAt is lookUp by reads of one consistency.
func (h *Host) lookUpAt(ctx context.Context, hello *pb.PublishHello, c metadata.Consistency) (metadata.QueueRecord, metadata.Reading, error) {
	var none metadata.QueueRecord
	run := membership.MetadataRun(h.deps.Members) // before the rows are read: see metadata.Reading
	path, err := core.ParseAnyQueuePath(hello.Queue)
	if err != nil {
		return none, metadata.Reading{}, err
	}
	name, _, err := metadata.Read[metadata.NameRecord](ctx, h.deps.Meta, metadata.Names, metadata.NameKey(path), c)
	if core.CodeOf(err) == core.CodeNotFound || err == nil && name.Queue.IsZero() { // a free name may have a row
		return none, metadata.Reading{}, core.Errorf(core.CodeNotFound, "queue %s is not there; create it with: columba create queue %s", path, path)
	}
	if err != nil {
		return none, metadata.Reading{}, core.Errorf(core.CodeOf(err), "look up queue %s: %w", path, err)
	}
	record, version, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(name.Queue), c)
	if err != nil {
		return none, metadata.Reading{}, core.Errorf(core.CodeOf(err), "look up queue %s: %w", path, err)
	}
	switch {
	case len(hello.Owner) > 0 && !bytes.Equal(hello.Owner, record.Owner.ID[:]): // a group that was deleted must not write into one of its name
		return none, metadata.Reading{}, core.Errorf(core.CodeNotFound, "queue %s belongs to another group by now", path)
	case !record.Owner.IsZero() && !hello.Internal:
		return none, metadata.Reading{}, core.Errorf(core.CodeUnsupported, "queue %s belongs to its group: only the group writes to it", path)
	case !record.Spec.Status.CanPublish():
		return none, metadata.Reading{}, record.Spec.Status.PublishError(path)
	}
	return record, metadata.Reading{Run: run, Version: version}, nil
}

// replaced are queues that were deleted, and whose paths are other queues' by now. One copy of the metadata may not say
// so yet. Safe for concurrent use.
type replaced struct {
	mu  sync.Mutex
	ids map[core.QueueID]struct{}
}

// maxReplaced bounds them. One that was dropped is found again by the next publisher.
const maxReplaced = 1024

func (r *replaced) add(id core.QueueID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil || len(r.ids) >= maxReplaced {
		r.ids = make(map[core.QueueID]struct{})
	}
	r.ids[id] = struct{}{}
}

func (r *replaced) has(id core.QueueID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.ids[id]
	return ok
}

// errReplaced has publishers come again: they are let in to the queue that has the path now.
var errReplaced = core.Errorf(core.CodeMoved, "the queue was deleted, and another one has its path")

// gone is what publishers are told when the controller says that the queue does not exist. The copy of the metadata
// that let them in may be behind, so a majority says whether another queue has the path.
func (q *queue) gone(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name, _, rerr := metadata.Read[metadata.NameRecord](ctx, q.h.deps.Meta, metadata.Names, metadata.NameKey(q.path), metadata.Quorum)
	if rerr != nil || name.Queue.IsZero() || name.Queue == q.id {
		return err
	}
	q.h.replaced.add(q.id)
	return core.Errorf(core.CodeMoved, "queue %s: %w", q.path, errReplaced)
}
