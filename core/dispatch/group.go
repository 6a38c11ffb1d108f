package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// Group is a consumer group's part on this host: its rules and its shares.
//
//	inFlight == Σ shares' messages in flight, each under a live lock or timer
//	claimed == Σ shares' messages that are claimed, see isClaimed
//	a share that may claim is in line
//	a share with something to hand out is in turn
type Group struct {
	spec        core.GroupSpec
	shares      map[core.ExtentID]*Share
	turns       *turns // nil until a share has something to hand out
	mergedTurns *turns // of shares of merged messages; nil until there is one

	last        time.Time // the instant given last
	lastNs      int64     // the same in ns, as nanos has it
	now         int64     // the latest, ns
	paused      pause
	connected   int8  // 2: or more; see Connected
	firsts      int32 // of those in flight, first attempts
	locksMost   int32 // void locks are swept out at this length
	timersMost  int32 // void timers are swept out at this length
	mostFailed  int32 // MaxFailed
	owed        int32 // messages that go before the next merged one
	inFlight    int32
	tooLarge    int32       // bytes of the message that the last Take had no room for; 0: it had room
	succeededAt int64       // ns: when a message was acked or rejected last
	locks       queue[lock] // by rising due
	timers      timers
	transfers   [Destinations]queue[messageRef] // what TakeTransfers yields next, if it is transferring still
	policies    policyStates
	given       []messageRef // handed out by the call before, in a group that delivers at most once
	taking      *handout     // of the Take under way; nil before the first
	claimed     claimCount   // see isClaimed
	line        *claimLine   // nil until something waits to be claimed
	credit      Credit       // see Want
	breaker     *breaker     // nil until an attempt fails, or a checkpoint tells of one
	sessions    sessions
	throttle    throttle
	drops       *queue[dropped] // see dropLater; nil: none
	isolation   *isolation      // nil while no message is to be handed out alone
	retries     *retryLimit     // nil until there is a retry
	owners      *owners         // nil until Retries told of them
	counters    Counters

	listed  []*Share // see TakeChanged
	staying *staying // nil until there is one
}

// NewGroup makes the group of a spec that has its defaults. Start decides what State a share begins with. A group on a
// dead letter queue is given ExhaustedBlock.
func NewGroup(spec core.GroupSpec) *Group {
	return &Group{spec: spec, shares: map[core.ExtentID]*Share{}, locksMost: 64, timersMost: 64, credit: unlimited, mostFailed: MaxFailed}
}

// at is now in ns, never before an instant given earlier.
func (g *Group) at(now time.Time) int64 {
	if now == g.last { // the settlements of a frame share one
		return g.now
	}
	if g.last.IsZero() {
		g.last, g.lastNs = now, now.UnixNano()
	}
	g.last, g.lastNs = now, g.nanos(now)
	g.now = max(g.now, g.lastNs)
	return g.now
}

// nanos is t in unix ns as the wall clock would show it had nobody set it since the first instant given; instant is the
// reverse.
func (g *Group) nanos(t time.Time) int64 { return g.lastNs + int64(t.Sub(g.last)) }

func (g *Group) instant(ns int64) time.Time { return g.last.Add(time.Duration(ns - g.lastNs)) }

// Counters are those of all shares, removed ones too.
func (g *Group) Counters() Counters { return g.counters }

// A group lists the shares that changed, so that its owner looks at those and not at all of them. The answers of a
// share to Unsaved, Leaving, LeavingMany, Changed, WantsMore, ReadCredit, ReadFrom, Unread, Lacks, Begun, Held and
// Noted change only when the share is listed. Leaving and LeavingMany may fall without that, as nothing follows from
// it.

// touch lists the share, once until the list is taken.
func (s *Share) touch() {
	if !s.listed && !s.gone {
		s.listed = true
		s.group.listed = append(s.group.listed, s)
	}
}

// change notes that the last checkpoint of the share lacks something.
func (s *Share) change() {
	s.changed = true
	s.touch()
}

// lookAtStaying is between two looks at the shares whose messages stay until it is known whether their attempts count.
const lookAtStaying = 100 * time.Millisecond

// staying are the shares of which messages are leaving that may stay: they are listed again when the breaker has
// gathered fewer failures, or after a while.
type staying struct {
	shares   []*Share
	gathered int   // by the breaker, when TakeChanged was called last
	again    int64 // ns: when they are listed again, at the latest
}

// TakeChanged yields the shares that changed since it was called last, each once, in the order in which they did. Yield
// must not change any.
func (g *Group) TakeChanged(yield func(*Share)) {
	gathers := g.breaker.gathers()
	if x := g.staying; x != nil {
		if len(x.shares) > 0 && (gathers < x.gathered || g.now >= x.again) {
			for _, s := range x.shares {
				s.staying = false
				s.touch()
			}
			clear(x.shares)
			x.shares = x.shares[:0]
		}
		x.gathered = gathers
	}
	for _, s := range g.listed {
		if s.gone {
			continue
		}
		s.listed = false
		if gathers > 0 && !s.staying && s.isLeaving() {
			if g.staying == nil {
				g.staying = &staying{gathered: gathers}
			}
			x := g.staying
			if s.staying = true; len(x.shares) == 0 {
				x.again = g.now + int64(lookAtStaying)
			}
			x.shares = append(x.shares, s)
		}
		yield(s)
	}
	clear(g.listed)
	g.listed = g.listed[:0]
}

// isLeaving reports whether any message is leaving that no checkpoint tells of.
func (s *Share) isLeaving() bool {
	for to := range s.destinations() {
		if s.transfers[to].leaving > 0 {
			return true
		}
	}
	return false
}
