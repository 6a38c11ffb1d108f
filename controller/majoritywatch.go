package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/majority"
	"github.com/columbamq/columba/membership"
)

const (
	// lackAfter is for how long no majority has answered when this controller says that it lacks one. A read every second
	// needs one.
	lackAfter = 1500 * time.Millisecond
	// otherAskedEvery is how often the other controllers are asked meanwhile, all at once.
	otherAskedEvery = time.Second
	// otherTimeout bounds one such question.
	otherTimeout = time.Second
	// saidFor is for how long the answer of a controller counts that does not answer any more: one lost call is no cut.
	saidFor = 3 * time.Second
	// otherKnownFor is for how long a controller counts that neither membership nor a session lease shows. While this
	// controller lacks a majority it forgets nobody: a cut may last.
	otherKnownFor = 5 * time.Minute
)

// majorityWatch is what this controller knows of whether it has a majority of the metadata:
//
//	majority ──no read is answered for lackAfter, and the others are asked──▶ cut or outage
//	    ▲                                                                           │
//	    └──────────────────────────── a read is answered ───────────────────────────┘
//
// The reads are those of the session leases. Times are monotonic but for since. Safe for concurrent use.
type majorityWatch struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		verdict  majority.Verdict
		since    time.Time // of the state, by the controller's clock
		answered time.Time // when a majority answered last
		heard    bool      // a read has ended since the start
		lacking  time.Time // when the first read began that none answered since; zero: the last read was answered
		others   map[core.HostID]*otherController
	}
}

// otherController is a controller that is asked.
type otherController struct {
	address string    // "" until membership shows it
	shown   time.Time // when membership or its session lease showed it last
	said    majority.Answer
	at      time.Time // when it said that; zero: never
}

// newMajorityWatch begins with a majority, which nobody is told of before a read was answered: see DescribeMajority.
func newMajorityWatch(now, at time.Time) *majorityWatch {
	w := &majorityWatch{wake: make(chan struct{}, 1)}
	w.mu.verdict.State, w.mu.since, w.mu.answered = majority.Has, now, at
	w.mu.others = make(map[core.HostID]*otherController)
	return w
}

// majorityLoop asks the other controllers while this one lacks a majority, until ctx ends.
func (h *Host) majorityLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.watch.wake:
		}
		began := time.Now()
		if !h.judgeMajority(ctx, began) {
			continue
		}
		if left := otherAskedEvery - time.Since(began); left > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
			}
		}
	}
}

// heardMajority takes in how a read ended that needs a majority.
func (h *Host) heardMajority(began time.Time, err error) {
	w, now := h.watch, time.Now()
	w.mu.Lock()
	w.mu.heard = true
	w.mu.Unlock()
	switch core.CodeOf(err) {
	case "":
		h.followControllers(now, true)
		w.mu.Lock()
		w.mu.answered, w.mu.lacking = now, time.Time{}
		w.mu.Unlock()
		h.majorityIs(majority.Verdict{State: majority.Has}, time.Time{})
	case core.CodeUnavailable, core.CodeDeadline, core.CodeUnknown:
		w.mu.Lock()
		if w.mu.lacking.IsZero() {
			w.mu.lacking = began
		}
		w.mu.Unlock()
		poke(w.wake)
	}
}

// followControllers takes over which other controllers there are; forget: those that are not shown any more are dropped
// after a while.
func (h *Host) followControllers(now time.Time, forget bool) {
	self, shown, members := h.deps.Members.Self().ID, h.deps.Members.Hosts("controller"), h.duties.Others()
	w := h.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	at := func(id core.HostID) *otherController {
		if w.mu.others[id] == nil {
			w.mu.others[id] = &otherController{}
		}
		w.mu.others[id].shown = now
		return w.mu.others[id]
	}
	for _, m := range shown {
		if m.ID != self {
			at(m.ID).address = m.Address
		}
	}
	for _, id := range members {
		if id != self { // a former run of this controller has a lease for some time
			at(id)
		}
	}
	maps.DeleteFunc(w.mu.others, func(_ core.HostID, o *otherController) bool { return forget && now.Sub(o.shown) > otherKnownFor })
}

// judgeMajority asks the other controllers, and judges by their answers, if no majority has answered for long enough.
func (h *Host) judgeMajority(ctx context.Context, now time.Time) (asked bool) {
	w := h.watch
	w.mu.Lock()
	lacking := w.mu.lacking
	lacks := !lacking.IsZero() && now.Sub(w.mu.answered) >= lackAfter
	w.mu.Unlock()
	if !lacks {
		return false
	}
	h.followControllers(now, false)
	v, sure := majority.Judge(false, h.askOthers(ctx, now, lacking))
	if sure && ctx.Err() == nil {
		h.majorityIs(v, lacking)
	}
	return true
}

// askOthers asks all other controllers side by side. A controller that left in good order does not count. Nor does one
// at whose machine nobody listens: the machine is reached.
func (h *Host) askOthers(ctx context.Context, now, lacking time.Time) map[core.HostID]majority.Answer {
	left := make(map[core.HostID]bool)
	for _, g := range h.deps.Members.Gone() {
		left[g.ID] = g.Left
	}
	w := h.watch
	w.mu.Lock()
	maps.DeleteFunc(w.mu.others, func(id core.HostID, _ *otherController) bool { return left[id] })
	hosts := make([]membership.Host, 0, len(w.mu.others))
	for id, o := range w.mu.others {
		hosts = append(hosts, membership.Host{ID: id, Address: o.address})
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, otherTimeout)
	defer cancel()
	said, refused := make([]majority.Answer, len(hosts)), make([]bool, len(hosts))
	var calls sync.WaitGroup
	for i, to := range hosts {
		if to.Address != "" {
			calls.Go(func() { said[i], refused[i] = h.askOther(ctx, to.Address, lacking) })
		}
	}
	calls.Wait()
	out := make(map[core.HostID]majority.Answer, len(hosts))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, to := range hosts {
		o := w.mu.others[to.ID]
		switch {
		case refused[i] || o == nil:
			continue
		case said[i] != majority.Silent:
			o.said, o.at = said[i], now
		case !o.at.IsZero() && now.Sub(o.at) < saidFor:
			said[i] = o.said
		}
		out[to.ID] = said[i]
	}
	return out
}

// majorityIs takes in a verdict, and tells operators of another state. One of others counts while no majority has
// answered since they were asked.
func (h *Host) majorityIs(v majority.Verdict, lacking time.Time) {
	w := h.watch
	w.mu.Lock()
	before, since := w.mu.verdict.State, w.mu.since
	if !w.mu.lacking.Equal(lacking) {
		w.mu.Unlock()
		return
	}
	w.mu.verdict = v
	if v.State != before {
		w.mu.since = h.deps.now()
		if before == majority.Has {
			w.mu.since = w.mu.since.Add(-time.Since(lacking))
		}
		h.metrics.showMajority(v.State)
	}
	w.mu.Unlock()
	switch {
	case v.State == before:
	case v.State == majority.Has:
		h.log.Info("a majority of the metadata answers again", "was", before, "took", h.deps.now().Sub(since).Round(time.Second))
	case v.State == majority.Cut:
		h.log.Warn("no majority of the metadata answers, and the network is cut: on this side groups of AP queues get what is published here, and CP queues wait; check the network to these controllers, or to the Cassandra nodes if these answer", "silent", v.Silent, "have_majority", v.Having)
	default:
		h.log.Warn("no majority of the metadata answers any controller: this is an outage. Output hosts go on with their shares, and nothing moves; start the Cassandra nodes that are away, which `columba schema show` names")
	}
}

// lacksMajority is the verdict while this controller lacks a majority.
func (h *Host) lacksMajority() (v majority.Verdict, lacks bool) {
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	return h.watch.mu.verdict, h.watch.mu.verdict.State != majority.Has
}
