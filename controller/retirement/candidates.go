package retirement

import (
	"bytes"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/retention"
	"github.com/columbamq/columba/core"
)

// calm is what is known of a queue none of whose extents is on its way out.
type calm struct {
	edit   uint64 // of the catalog, as of the look
	policy retention.Policy
	until  time.Time // all extents stay at least so long; zero: until there is an edit
}

func (c calm) holds(edit uint64, policy retention.Policy, now time.Time) bool {
	return c.edit == edit && c.policy == policy && (c.until.IsZero() || !now.After(c.until))
}

// candidates are the extents of a queue that its policy may let go, those that are marked, and those that are drained.
// A queue that keeps what it has is looked at again when it no longer does.
func (r *Runner) candidates(q settings, now time.Time) (due, marked, drained []catalog.Extent) {
	is := calm{edit: r.cfg.Extents.Edit(q.queue), policy: q.policy} // before the look: an edit after it counts next time
	r.mu.Lock()
	was, known := r.mu.calm[q.queue]
	r.mu.Unlock()
	if known && was.holds(is.edit, is.policy, now) {
		return nil, nil, nil
	}
	var ids []core.ExtentID
	for e := range r.cfg.Extents.EachBrief(q.queue) {
		if e.Queue != q.queue { // it was merged into this one
			continue
		}
		switch e.State {
		case core.ExtentSealed:
			if q.policy.MayGoSealed(retention.Sealed{Home: e.Home, Ended: e.Kept}, now) {
				ids = append(ids, e.ID)
			} else if until := q.policy.StaysUntil(e.Kept); !e.Kept.IsZero() && (is.until.IsZero() || until.Before(is.until)) {
				is.until = until
			}
		case core.ExtentRetiring, core.ExtentRetired:
			ids = append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.calm[q.queue] = is
		return nil, nil, nil
	}
	slices.SortFunc(ids, func(a, b core.ExtentID) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, id := range ids {
		e, lives := r.cfg.Extents.Get(id)
		if !lives {
			continue
		}
		switch {
		case e.State == core.ExtentSealed:
			due = append(due, e)
		case e.State == core.ExtentRetiring && r.since(e, now) >= markedFor:
			marked = append(marked, e)
		case e.State == core.ExtentRetired && r.since(e, now) >= drainedFor:
			drained = append(drained, e)
		}
	}
	return due, marked, drained
}
