package convert

import (
	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// OpeningsToProto leaves out the run where it is zero.
func OpeningsToProto(all []core.BreakerOpening) []*pb.BreakerOpening {
	if len(all) == 0 {
		return nil
	}
	out := make([]*pb.BreakerOpening, len(all))
	for i, o := range all {
		out[i] = &pb.BreakerOpening{Group: o.Group.ID[:], Number: o.Number}
		if !o.Run.IsZero() {
			out[i].Run = o.Run.ID[:]
		}
	}
	return out
}

// OpeningsFromProto is the reverse; nil for none, and an error for more than core.MaxOpenings.
func OpeningsFromProto(all []*pb.BreakerOpening) ([]core.BreakerOpening, error) {
	switch n := len(all); {
	case n == 0:
		return nil, nil
	case n > core.MaxOpenings:
		return nil, core.Errorf(core.CodeTooLarge, "%d open breakers in one call; at most %d are allowed", n, core.MaxOpenings)
	}
	out := make([]core.BreakerOpening, len(all))
	for i, p := range all {
		group, err := core.IDFromBytes(p.GetGroup())
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "open breaker: its group: %w", err)
		}
		out[i] = core.BreakerOpening{Group: core.GroupID{ID: group}, Number: p.GetNumber()}
		if len(p.GetRun()) == 0 {
			continue
		}
		if out[i].Run.ID, err = core.IDFromBytes(p.Run); err != nil {
			return nil, core.Errorf(core.CodeOf(err), "open breaker: the run of its host: %w", err)
		}
	}
	return out, nil
}
