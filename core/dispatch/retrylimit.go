package dispatch

import (
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// RetriesKnownFor is for how long the count that Group.Retries brings is valid. If no later one comes, the host
	// begins anew with the retries that it sees itself.
	RetriesKnownFor = time.Minute
	// ownersUnknown is of how many hosts one takes itself for one while it knows of no count: others, or it in an earlier
	// run, may have used up places.
	ownersUnknown = 10
)

// retryLimit bounds the retries of a group: its messages that failed and are not settled, here, on other hosts or in
// the retry queue; see adr/0054. Each host that owns shares has an equal part, and is told every few seconds how many
// there are in all; since then it adds each first attempt that fails here for every host, and takes off each retry that
// ends. Below half of the limit it admits everything. From there on first attempts in flight take places, too, since
// each may fail; retries are never held back, for otherwise none would end. At the limit one first delivery at a time
// is a probe of an open breaker that asks for it. It is not saved: a new owner has a tenth of the limit until it hears
// of the next count.
//
// Its scope is the first deliveries of a group. A nil limit is that of a group without retries.
type retryLimit struct {
	group   *Group
	most    int64 // retries of the group
	counted int64 // retries of the group, when they were counted last
	owners  int64 // hosts that have a part
	until   int64 // ns: when the count does not stand any more
	sum     flow  // here, so far
	looked  flow  // sum when retries were counted here last
	since   flow  // sum as of the count that stands
}

// flow is how many first attempts failed, so that their messages are retries, and how many retries ended.
type flow struct{ failed, ended int64 }

// held is about how many retries the group has, if as many first attempts fail on every host as on this one.
func (r *retryLimit) held(now int64) int64 {
	if now >= r.until {
		r.counted, r.owners, r.since, r.until = 0, ownersUnknown, r.sum, now+int64(RetriesKnownFor)
	}
	return r.counted + (r.sum.failed-r.since.failed)*r.owners - (r.sum.ended - r.since.ended)
}

// admit is how many messages may be handed out for the first time now.
func (r *retryLimit) admit(sc scope, now int64) int {
	if r == nil || !sc.firsts {
		return math.MaxInt
	}
	held := r.held(now)
	if 2*held < r.most {
		return math.MaxInt
	}
	room := max((r.most-held)/r.owners, 0)
	if room == 0 && r.group.breaker.asksForFirst() {
		room = 1
	}
	return int(max(room-int64(r.group.firsts), 0))
}

// nextDeadline is when a count stands no more that holds first deliveries back.
func (r *retryLimit) nextDeadline(now int64) int64 {
	if r.admit(firstsScope, now) > 0 {
		return never
	}
	return r.until
}

// retryLimit is that of the group, made if need be: most groups never have a retry.
func (g *Group) retryLimit() *retryLimit {
	if g.retries == nil {
		g.retries = &retryLimit{group: g, most: mostRetries(&g.spec)}
		if g.owners != nil {
			g.retries.owners, g.retries.until = g.owners.count, g.owners.until
		}
	}
	return g.retries
}

// owners are the hosts that have shares of a group, as Retries told last.
type owners struct {
	count int64
	until int64 // ns: what was told stands so long
}

// retried notes that a message is a retry from now on, or not any more.
func (g *Group) retried(was, is bool) {
	switch {
	case is && !was:
		g.retryLimit().sum.failed++
	case was && !is:
		g.retryLimit().sum.ended++
	}
}

// set gives it the limit of a spec.
func (r *retryLimit) set(spec *core.GroupSpec) {
	if r != nil {
		r.most = mostRetries(spec)
	}
}

func mostRetries(spec *core.GroupSpec) int64 {
	if spec.MaxDelayedRetries > 0 {
		return int64(spec.MaxDelayedRetries)
	}
	return core.DefaultMaxDelayedRetries // a row of before the option lacks it
}

// isRetry reports whether a message failed and is not at its end.
func (m *message) isRetry() bool {
	switch m.phase {
	case inFlight:
		return m.attempts > 1
	case blocked, handed:
		return false
	}
	return m.attempts > 0
}

// retriesHere is how many retries the share holds. Exhausted messages count until they are gone, and messages
// that expired unseen count on their way to the dead letter queue.
func (s *Share) retriesHere() int {
	n := s.table.n - s.of(inFlight, handed, blocked) + int(s.repeats)
	if n == 0 || s.group.atMostOnce() {
		return 0
	}
	for _, seq := range s.firsts.all() { // returned unseen
		if m := s.table.get(seq); m != nil && m.phase == ready && m.attempts == 0 {
			n--
		}
	}
	return n
}

// CountedRetries records that the retries of the group's shares are being counted now. The next call of Retries brings
// the count of this moment.
func (g *Group) CountedRetries() {
	if g.retries != nil {
		g.retries.looked = g.retries.sum
	}
}

// Retries sets how many retries the group has in all, as of the last CountedRetries, and how many hosts deliver its
// messages for the first time.
func (g *Group) Retries(all uint64, hosts int, now time.Time) {
	g.owners = &owners{int64(min(max(hosts, 1), math.MaxInt16)), g.at(now) + int64(RetriesKnownFor)}
	if g.retries == nil && all == 0 {
		return
	}
	r := g.retryLimit()
	r.counted, r.owners = int64(min(all, math.MaxInt32)), g.owners.count
	r.since, r.until = r.looked, g.owners.until
}

// RetryLimit is what is known of a group's limit of retries.
type RetryLimit struct {
	Reached bool  // first deliveries are held back until retries end
	Retries int64 // of the group, about
	Firsts  int64 // first attempts in flight here: they take places from half of the limit on
	Most    int64
}

// RetryLimit says whether the limit of retries holds first deliveries back.
func (g *Group) RetryLimit() RetryLimit {
	r := g.retries
	if r == nil {
		return RetryLimit{Firsts: int64(g.firsts), Most: mostRetries(&g.spec)}
	}
	return RetryLimit{Reached: r.admit(firstsScope, g.now) == 0, Retries: max(r.held(g.now), 0), Firsts: int64(g.firsts), Most: r.most}
}

// holdFirsts has the turns know whether first deliveries are held back.
func (g *Group) holdFirsts() {
	held := g.retries.admit(firstsScope, g.now) == 0
	for _, t := range [...]*turns{g.turns, g.mergedTurns} {
		if t != nil {
			t.held = held
		}
	}
}
