package retirement

import (
	"bytes"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/retention"
	"github.com/columbamq/columba/core"
)

// calm says that a look at a queue found no extent that may go, and none that is on its way out. With other settings
// of the queue it counts no more.
type calm struct {
	edit  uint64    // of the extents, as of the look; 0: there was no look
	until time.Time // all extents stay until then; zero: none has an end that is known
}

func (c calm) holds(edit uint64, now time.Time) bool {
	return c.edit != 0 && c.edit == edit && (c.until.IsZero() || !now.After(c.until))
}

// candidates are the extents of a queue that its policy may let go, those that are marked, and those that are drained.
// Extents of a queue that was found calm are copied again when one of them was edited, when its time has come, and when
// the row of the queue was read again.
func (r *Runner) candidates(q settings, now time.Time) (due, marked, drained []catalog.Extent) {
	is := calm{edit: r.cfg.Extents.Edit(q.queue)} // before the look: an edit during it counts at the next one
	if q.calm.holds(is.edit, now) {
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
		r.foundCalm(q, is)
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

// foundCalm keeps what a look has found, unless the row of the queue was read again since.
func (r *Runner) foundCalm(q settings, is calm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, there := r.mu.settings[q.queue]; there && k.read.Equal(q.read) {
		k.calm = is
		r.mu.settings[q.queue] = k
	}
}
