package frontend

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// chainRoute is the one input host that takes the messages of a CP queue: the writer of its open head. None when there is no open head, or its
// host is not there any more; then any host may ask for the next one.
func (s *service) chainRoute(ctx context.Context, q metadata.QueueRecord) ([]membership.Host, error) {
	if q.Spec.Consistency != core.CP {
		return nil, nil
	}
	head, err := metadata.ReadHead(ctx, s.meta, q.ID, metadata.One)
	if err == nil && head.Extent.Chain > 0 {
		_, err = s.meta.Get(ctx, metadata.Seals, metadata.SealKey(head.Extent.ID), metadata.One)
		if err == nil {
			return nil, nil // it takes nothing more
		}
	}
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return nil, core.Errorf(core.CodeOf(err), "look up the head of queue %s: %w", q.Spec.Path, err)
	}
	for _, h := range s.members.Hosts(roleInput) {
		if h.ID == head.Extent.Input && h.Run == head.Extent.InputRun {
			return []membership.Host{h}, nil
		}
	}
	return nil, nil
}
