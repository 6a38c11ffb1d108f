package frontend

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/metadata"
)

// deletions finds out, for one call, which tokens no output host serves because their group or queue was deleted:
// trying again would not help. It reads each group's rows once.
type deletions struct {
	s     *service
	known map[core.GroupID]error // nil: the group is there, or that is not known
}

// explain makes the failure of such a token stale.
func (d *deletions) explain(ctx context.Context, f *pb.SettleResponse_Failure) {
	if core.Code(f.GetError().GetCode()) != core.CodeMoved {
		return
	}
	t, err := d.s.openToken(ctx, f.GetToken())
	if err != nil {
		return
	}
	why, known := d.known[t.Group]
	if !known {
		why = d.s.deleted(ctx, t)
		if d.known == nil {
			d.known = make(map[core.GroupID]error)
		}
		d.known[t.Group] = why
	}
	if why != nil {
		f.Error = convert.ErrorToProto(why)
	}
}

// deleted is why the group of a token has nothing left to settle; nil while it is there, or when that cannot be read.
func (s *service) deleted(ctx context.Context, t deliverytoken.Token) error {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(t.Queue), metadata.Quorum)
	if core.CodeOf(err) == core.CodeNotFound || err == nil && q.Spec.Status == core.StatusDeleted {
		return core.Errorf(core.CodeStale, "the queue of this token was deleted; there is nothing left to settle")
	}
	if err != nil {
		return nil
	}
	for g, err := range metadata.All[metadata.GroupRecord](ctx, s.meta, metadata.Groups, t.Queue.String(), metadata.Quorum) {
		if err != nil || g.Value.ID == t.Group && g.Value.Spec.Status != core.StatusDeleted {
			return nil
		}
	}
	return core.Errorf(core.CodeStale, "the group of this token was deleted; there is nothing left to settle")
}
