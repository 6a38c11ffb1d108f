package outputhost

import (
	"bytes"
	"cmp"
	"math"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// maxRetryCounts bounds the groups that one call of LimitRetries tells of.
const maxRetryCounts = 20_000

// limitRetries takes over how many retries groups have, as a controller has just counted them. Groups that it does not
// tell of have few, unless another controller counts them. First deliveries of a group go on when that allows them.
func (h *Host) limitRetries(req *pb.LimitRetriesRequest) error {
	switch run := h.deps.Members.Self().Run; {
	case !bytes.Equal(req.Run, run.ID[:]):
		return core.Errorf(core.CodeStale, "the counts are for another run of this output host")
	case len(req.Groups) > maxRetryCounts || len(req.Left) > maxRetryCounts:
		return core.Errorf(core.CodeTooLarge, "%d groups in one call; at most %d are allowed", max(len(req.Groups), len(req.Left)), maxRetryCounts)
	}
	told := make(map[core.GroupID]*pb.GroupRetries, len(req.Groups))
	for _, c := range req.Groups {
		id, err := core.IDFromBytes(c.Group)
		if err != nil {
			return err
		}
		told[core.GroupID{ID: id}] = c
	}
	left := make(map[core.GroupID]bool, len(req.Left))
	for _, b := range req.Left {
		id, err := core.IDFromBytes(b)
		if err != nil {
			return err
		}
		left[core.GroupID{ID: id}] = true
	}
	now := h.deps.Now()
	for _, g := range h.groupList() {
		c := told[g.id]
		g.mu.Lock()
		if !g.countedBy(core.HostID(req.Controller), c != nil, left[g.id], now) {
			g.mu.Unlock()
			continue
		}
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

// retryCounter is the controller that told of many retries of a group last.
type retryCounter struct {
	controller core.HostID
	until      time.Time // what it told stands so long
}

// countedBy notes what a controller tells of the group: that it has many retries; that another controller counts it from
// now on; or nothing. It reports whether that counts: nothing does not while the word of another controller stands.
func (g *group) countedBy(controller core.HostID, many, left bool, now time.Time) bool {
	r := g.mu.counter
	own := r != nil && r.controller == controller
	switch {
	case many:
		g.mu.counter = &retryCounter{controller, now.Add(dispatch.RetriesKnownFor)}
		return true
	case left && own:
		r.controller = ""
	}
	return !left && (r == nil || own || !now.Before(r.until))
}
