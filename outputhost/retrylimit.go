package outputhost

import (
	"bytes"
	"cmp"
	"math"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// maxRetryCounts bounds the groups that one call of LimitRetries tells of.
const maxRetryCounts = 20_000

// limitRetries takes over how many retries groups have, as a controller has just counted them. Groups that it does not
// tell of have few. First deliveries of a group go on when that allows them.
func (h *Host) limitRetries(req *pb.LimitRetriesRequest) error {
	switch run := h.deps.Members.Self().Run; {
	case !bytes.Equal(req.Run, run.ID[:]):
		return core.Errorf(core.CodeStale, "the counts are for another run of this output host")
	case len(req.Groups) > maxRetryCounts:
		return core.Errorf(core.CodeTooLarge, "%d groups in one call; at most %d are allowed", len(req.Groups), maxRetryCounts)
	}
	told := make(map[core.GroupID]*pb.GroupRetries, len(req.Groups))
	for _, c := range req.Groups {
		id, err := core.IDFromBytes(c.Group)
		if err != nil {
			return err
		}
		told[core.GroupID{ID: id}] = c
	}
	now := h.deps.Now()
	for _, g := range h.groupList() {
		c := told[g.id]
		g.mu.Lock()
		before := g.mu.rules.RetryLimit().Reached
		g.mu.rules.Retries(c.GetRetries(), int(min(cmp.Or(c.GetOwners(), req.Hosts), math.MaxInt16)), now)
		goesOn := before && !g.mu.rules.RetryLimit().Reached
		g.mu.Unlock()
		if goesOn {
			g.pump()
		}
	}
	return nil
}
