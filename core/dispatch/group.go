package dispatch

import (
	"fmt"
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

// Group is a consumer group's part on this host: its rules and its shares.
//
//	inFlight == Σ shares' messages in flight;  claimed == Σ shares' messages that are unsaved or ready;  every one of them is under a live lock or timer
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
	cameBack    bool  // the last claim was of such a message, see claimReturned
	claimed     int32 // messages in a phase that isClaimed
	firsts      int32 // of those in flight, first attempts
	locksMost   int32 // void locks are swept out at this length
	timersMost  int32 // void timers are swept out at this length
	mostFailed  int32 // MaxFailed
	owed        int32 // messages that go before the next merged one
	inFlight    int32
	succeededAt int64                           // ns: when a message was acked or rejected last
	locks       queue[lock]                     // by rising due
	timers      []timer                         // heap by due
	transfers   [Destinations]queue[messageRef] // what TakeTransfers yields next, if it is transferring still
	copies      *copies                         // nil until a message comes back from the retry queue
	policies    policyStates
	given       []given           // in a group that delivers at most once
	taking      *handout          // of the Take under way; nil before the first
	unclaimed   queue[messageRef] // phase unclaimed, with bytes; others are skipped
	credit      int               // see Want
	breaker     *breaker          // nil until an attempt fails, or a checkpoint tells of one
	sessions    sessions
	throttle    throttle
	isolation   *isolation  // nil while no message is to be handed out alone
	retries     *retryLimit // nil until there is a retry
	owners      *owners     // nil until Retries told of them
	counters    Counters

	listed  []*Share // see changed.go
	staying *staying // nil until there is one
}

// NewGroup makes the group of a spec that has its defaults. Start decides what State a share begins with. A group on a dead letter queue is given ExhaustedBlock.
func NewGroup(spec core.GroupSpec) *Group {
	return &Group{spec: spec, shares: map[core.ExtentID]*Share{}, locksMost: 64, timersMost: 64, credit: math.MaxInt, mostFailed: MaxFailed}
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

// Update changes the rules from now on. Locks that run keep their deadline; messages blocked under the old rules, or
// exhausted under the new ones, are judged again.
func (g *Group) Update(spec core.GroupSpec, now time.Time) {
	g.at(now)
	redelay := spec.Delay != g.spec.Delay
	g.spec = spec
	g.updateBreaker()
	g.retries.set(&spec)
	if spec.NoNackThrottle {
		g.throttle = throttle{}
	}
	for _, s := range g.shares {
		s.table.each(func(seq core.Seq, m *message) {
			switch m.phase {
			case delayed, unclaimed, unsaved, ready:
				if s.exhausted(seq, m) {
					s.judge(seq, m, 0)
				}
			case isolated:
				if s.exhausted(seq, m) || !s.isLast(seq, m) {
					s.judge(seq, m, 0)
				}
			case blocked:
				s.judge(seq, m, 0)
			}
		})
		s.dropClaims()
		s.listNacked()
		if d, ok := s.supply.(*dueSupply); ok && redelay {
			d.requeue()
		}
		s.change()
		s.wake()
	}
}

// AddShare begins (or resumes) an extent from state; the zero State begins at seq 1. Remaining locks and delays of the
// state are honoured. The extent must not have a share yet.
func (g *Group) AddShare(extent core.ExtentID, state State, now time.Time) *Share {
	return g.addShare(extent, state, false, now)
}

func (g *Group) addShare(extent core.ExtentID, state State, timers bool, now time.Time) *Share {
	if g.shares[extent] != nil {
		panic(fmt.Sprintf("dispatch: extent %s has a share already", extent))
	}
	g.at(now)
	s := &Share{
		group: g, extent: extent, timers: timers, done: *state.done.Clone(), table: newTable(),
		squeezeAt: MaxOutstandingBytes / 2,
	}
	s.next = s.done.Frontier() + 1
	s.supply = newLogSupply(s)
	if timers {
		s.supply = newDueSupply(s)
	}
	g.shares[extent] = s
	s.restore(state)
	s.touch()
	g.resumeBreaker(state.Policy(PolicyBreaker))
	return s
}

// RemoveShare forgets the share and releases its buffers, those of TakeTransfers once they are answered. Take the final
// checkpoint before.
func (g *Group) RemoveShare(s *Share) {
	if s.gone {
		return
	}
	g.settleGiven()
	s.gone = true
	g.leaveAlone(s)
	delete(g.shares, s.extent)
	g.dropHeld(s)
	g.inFlight -= int32(s.of(inFlight))
	g.claimed -= int32(s.of(unsaved, ready))
	g.firsts -= int32(s.of(inFlight)) - s.repeats
	s.releaseAll()
	g.locks.filter(func(l *lock) bool { return !l.share.gone })
	s.turns().forget(s)
	g.unclaimed.filter(func(d *messageRef) bool { return !d.share.gone })
	for to := range g.transfers {
		g.transfers[to].filter(func(d *messageRef) bool { return !d.share.gone })
	}
	*s = Share{
		group: g, extent: s.extent, timers: s.timers, gone: true, done: s.done, next: s.next, table: newTable(),
		held: s.held, heldBytes: s.heldBytes, lent: s.lent,
	}
	s.supply = newLogSupply(s)
}

// Ready reports whether Take has something to hand out.
func (g *Group) Ready() bool {
	if g.admit(groupScope, 1) == 0 {
		return false
	}
	g.holdFirsts()
	return g.isolatedReady() || g.turns.ready() || g.mergedTurns.ready()
}

// Waiting is a lower bound of how many first deliveries there are to hand out: those of the share whose turn is next. In a
// group with a delay it is 0. It takes no walk.
func (g *Group) Waiting() int {
	if g.turns == nil || !g.turns.firstsReady() || g.spec.Delay > 0 {
		return 0
	}
	s := *g.turns.waiting[firstTurn].front()
	n := s.firsts.len()
	if s.mayBegin() {
		delayed, withheld := s.supply.late()
		n += min(s.supply.len()-delayed-withheld, s.roomForFirsts())
	}
	return n
}

// Depth sums over the shares.
func (g *Group) Depth() Depth {
	var sum Depth
	for _, s := range g.shares {
		d := s.Depth()
		sum.Ready += d.Ready
		sum.InFlight += d.InFlight
		sum.Delayed += d.Delayed
		sum.Kept += d.Kept
		sum.Failed += d.Failed
		sum.Parked += d.Parked
		sum.Dying += d.Dying
		sum.Blocked += d.Blocked
		sum.Retries += d.Retries
		if sum.OldestReady == 0 || d.OldestReady != 0 && d.OldestReady < sum.OldestReady {
			sum.OldestReady = d.OldestReady
		}
	}
	return sum
}

// Counters are those of all shares, removed ones too.
func (g *Group) Counters() Counters { return g.counters }
