package frontend

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// explainMoved makes a token stale that no output host serves because its queue was deleted: trying again would not help.
func (s *service) explainMoved(ctx context.Context, f *pb.SettleResponse_Failure) {
	if core.Code(f.GetError().GetCode()) != core.CodeMoved {
		return
	}
	t, err := s.openToken(ctx, f.GetToken())
	if err != nil {
		return
	}
	e, err := s.findExtent(ctx, t.Extent)
	if err != nil {
		return
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(e.Queue), metadata.One)
	if core.CodeOf(err) == core.CodeNotFound || err == nil && q.Spec.Status == core.StatusDeleted {
		f.Error = convert.ErrorToProto(core.Errorf(core.CodeStale, "the queue of this token was deleted; there is nothing left to settle"))
	}
}
