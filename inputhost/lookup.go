package inputhost

import (
	"bytes"
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// lookUp finds the queue of a hello that may publish to it. One copy of the metadata is enough to let a publisher in; that one may be behind, so
// nobody is turned away for what it alone says.
func (h *Host) lookUp(ctx context.Context, hello *pb.PublishHello) (metadata.QueueRecord, metadata.Reading, error) {
	record, at, err := h.lookUpAt(ctx, hello, metadata.One)
	switch core.CodeOf(err) {
	case core.CodeNotFound, core.CodeDisabled:
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
