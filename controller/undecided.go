package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/metadata"
)

const (
	// undecidedAfter is for how long an extent stays sealing before an operator is told: a store that starts again is back
	// sooner.
	undecidedAfter = 30 * time.Second
	// undecidedEvery is how often the log names such extents.
	undecidedEvery = time.Minute
	// mostNamed bounds the extents that one line of the log, or one answer, names.
	mostNamed = 8
	// sealPage bounds the extents of one page of SealAllOfStore, sealsAtOnce those of them that are sealed side by side.
	sealPage    = 100
	sealsAtOnce = 16
)

// stays is why a seal was not decided.
type stays struct {
	error
	decision seal.Decision
}

func (s stays) Unwrap() error { return s.error }

// undecidedExtent is an extent whose seal could not be decided.
type undecidedExtent struct {
	core.Extent
	since  time.Time     // of the first try that failed
	reason string        // of the last one
	away   []core.HostID // stores that did not answer
	long   bool          // it has been so for undecidedAfter
}

// undecided are the extents whose seals could not be decided. There are at most as many as the controller knows
// extents. Safe for concurrent use.
type undecided struct {
	mu     sync.Mutex
	byID   map[core.ExtentID]*undecidedExtent
	young  []undecidedSince // that were not long, oldest first; some of them are not undecided any more
	long   int              // of byID
	logged time.Time
}

type undecidedSince struct {
	id    core.ExtentID
	since time.Time
}

func newUndecided() *undecided { return &undecided{byID: make(map[core.ExtentID]*undecidedExtent)} }

// failed records a try that ended with err.
func (u *undecided) failed(e core.Extent, err error, away []core.HostID, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	x := u.byID[e.ID]
	if x == nil {
		x = &undecidedExtent{Extent: e, since: now}
		u.byID[e.ID] = x
		u.young = append(u.young, undecidedSince{e.ID, now})
	}
	x.reason, x.away = err.Error(), away
}

func (u *undecided) forget(id core.ExtentID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	x := u.byID[id]
	if x != nil && x.long {
		u.long--
	}
	delete(u.byID, id)
}

// countLong is how many have been undecided for undecidedAfter. Each of them costs once.
func (u *undecided) countLong(now time.Time) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.young) > 0 && now.Sub(u.young[0].since) >= undecidedAfter {
		first := u.young[0]
		u.young = u.young[1:]
		if x := u.byID[first.id]; x != nil && !x.long && x.since.Equal(first.since) {
			x.long = true
			u.long++
		}
	}
	return u.long
}

// list answers those that which selects, by id.
func (u *undecided) list(which func(undecidedExtent) bool) []undecidedExtent {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []undecidedExtent
	for _, x := range u.byID {
		if which(*x) {
			out = append(out, *x)
		}
	}
	slices.SortFunc(out, func(a, b undecidedExtent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
}

// dueLog reports whether the log is to name them now.
func (u *undecided) dueLog(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.logged.IsZero() && now.Sub(u.logged) < undecidedEvery {
		return false
	}
	u.logged = now
	return true
}

// alarmUndecided tells an operator of extents that stay sealing: by a metric, and by one line of the log a minute.
func (h *Host) alarmUndecided(now time.Time) {
	n := h.undecided.countLong(now)
	h.metrics.undecided.Set(float64(n))
	if n == 0 || !h.undecided.dueLog(now) {
		return
	}
	long := h.undecided.list(func(x undecidedExtent) bool { return x.long })
	if len(long) == 0 {
		return
	}
	oldest := slices.MinFunc(long, func(a, b undecidedExtent) int { return a.since.Compare(b.since) })
	away := h.awayOf(long)
	h.log.Error("extents stay sealing: their ends cannot be decided, and their cp queues accept no messages", "extents", len(long), "for", now.Sub(oldest.since).Round(time.Second),
		"some", named(long), "away", away, "reason", oldest.reason, "do", whatToDo(away))
}

func named(all []undecidedExtent) (out []core.ExtentID) {
	for _, x := range all[:min(len(all), mostNamed)] {
		out = append(out, x.ID)
	}
	return out
}

// awayOf are the stores that do not answer, of which extents wait for a replica; those of most extents come first.
func (h *Host) awayOf(all []undecidedExtent) []core.HostID {
	count := make(map[core.HostID]int)
	for _, x := range all {
		for _, id := range x.away {
			if !h.stores.Answers(id) {
				count[id]++
			}
		}
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b core.HostID) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}

// whatToDo tells an operator what helps.
func whatToDo(away []core.HostID) string {
	if len(away) == 0 {
		return "look at the reason; `columba seal --force PATH EXTENT` ends one extent with what is left"
	}
	commands := make([]string, 0, 2)
	for _, id := range away[:min(len(away), cap(commands))] {
		commands = append(commands, fmt.Sprintf("`columba seal --force --all-of-store %s`", id))
	}
	return "start the stores that are away; of one whose disk is lost for good: " + strings.Join(commands, ", ")
}

// outcome of SealAllOfStore for one extent.
type outcome struct {
	undecidedExtent
	what string // sealed, would_seal, undecided
	l    core.Seq
	lost core.Seq
}

// sealAllOfStore seals a page of the undecided extents of a store that an operator declares to be gone for good, those
// after an id. Each ends by the rules of the seal, where the store counts like one that came back with another disk;
// when all other replicas have answered and the rules find no end, it is forced. One of which another replica does not
// answer stays undecided. CodeConflict: the store is there.
func (h *Host) sealAllOfStore(ctx context.Context, store core.HostID, after core.ExtentID, dryRun bool) (out []outcome, more bool, err error) {
	if st, ok := h.stores.Get(store); ok && (st.Member || st.Answering()) {
		return nil, false, core.Errorf(core.CodeConflict, "store %s is there: it is not gone; see `columba list hosts`", store)
	}
	page, err := h.waitingFor(ctx, store, after)
	if err != nil {
		return nil, false, err
	}
	if more = len(page) > sealPage; more {
		page = page[:sealPage]
	}
	out = make([]outcome, len(page))
	var g errgroup.Group
	g.SetLimit(sealsAtOnce)
	for i, x := range page {
		g.Go(func() error {
			out[i] = h.sealWithout(ctx, x, store, dryRun)
			return nil
		})
	}
	g.Wait()
	return out, more, ctx.Err()
}

// sealWithout seals one extent without a store that is gone, or says what would come of it.
func (h *Host) sealWithout(ctx context.Context, x undecidedExtent, store core.HostID, dryRun bool) outcome {
	o := order{extent: x.Extent, reason: "operator", force: true, gone: store}
	out := outcome{undecidedExtent: x, what: "undecided"}
	if dryRun {
		d, err := h.foresee(ctx, o)
		switch {
		case err != nil:
			out.reason = err.Error()
		case d.Verdict != seal.Decided:
			out.reason = d.Reason
		default:
			out.what, out.l, out.lost, out.reason = "would_seal", d.L, d.Lost, d.Reason
		}
		return out
	}
	row, err := h.seal(ctx, o)
	if e, known := h.extents.Get(x.ID); err != nil && known && e.State.HasEnd() { // another seal was faster
		row.L, err = e.L, nil
	}
	if err != nil {
		out.reason = err.Error()
		return out
	}
	out.what, out.l, out.lost, out.reason = "sealed", row.L, row.Lost, ""
	return out
}

// foresee is what a seal would decide now. It fences the replicas, which is done already of an extent that is sealing,
// and changes nothing else.
func (h *Host) foresee(ctx context.Context, o order) (seal.Decision, error) {
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(o.extent.ID), metadata.Serial)
	if err != nil {
		return seal.Decision{}, err
	}
	if row.State.HasEnd() {
		return seal.Decision{Verdict: seal.Decided, L: row.L, Lost: row.Lost, Reason: "it has an end by now"}, nil
	}
	return seal.Decide(o.input(h.fence(ctx, o, row.Floor), row)), nil
}
