package controller

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// moveWithin is for how long a share waits for an owner that is well, but does not confirm that it has given the share away. Then the new owner
// resumes from the last checkpoint: what was handed out since may come twice.
const moveWithin = 5 * time.Second

// move is a share on its way from an owner that is well. The new owner is not told of the share before the old one has confirmed a list without it,
// and with that has saved how far it came.
type move struct {
	from    core.HostID
	run     core.RunID
	version uint64 // of the first list without the share
	until   time.Time
}

// moveLocked has a share wait for its old owner; not if that one has it again.
func (s *shares) moveLocked(r metadata.AssignmentRecord, m move) {
	if r.Owner != m.from || r.Run != m.run {
		s.mu.moving[share{r.Group, r.Extent.ID}] = m
	}
}

// movingLocked says which of an owner's shares it is not to be told of yet. Of a chain it is told all at once.
func (s *shares) movingLocked(owner core.HostID) func(r metadata.AssignmentRecord) bool {
	chains := make(map[core.GroupID]bool)
	for k := range s.mu.moving {
		if r := s.mu.owned[k]; r.Owner == owner && r.Extent.Chain > 0 {
			chains[k.group] = true
		}
	}
	return func(r metadata.AssignmentRecord) bool {
		_, moving := s.mu.moving[share{r.Group, r.Extent.ID}]
		return moving || r.Extent.Chain > 0 && chains[r.Group]
	}
}

// endMoves has the new owners told of the shares whose old owners have given them away, or do not answer. It reports whether there were any.
func (s *shares) endMoves(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	some := false
	for k, m := range s.mu.moving {
		p := s.mu.pushed[m.from]
		if given := p.run == m.run && p.version >= m.version; given || now.After(m.until) {
			delete(s.mu.moving, k)
			s.raiseLocked(s.mu.owned[k].Owner)
			some = true
		}
	}
	return some
}
