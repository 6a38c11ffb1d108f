package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
)

// A policy keeps messages back that could be handed out. Take asks all policies, in the order of Group.inOrder, and
// hands out as many messages as all of them admit:
//
//	policy     scope    keeps back                                            file
//	pause      group    everything, while nobody takes messages               policies.go
//	breaker    group    all but a few probes, while nothing succeeds          breaker.go
//	throttle   session  most, of a session that nacks all that it gets        throttle.go
//	isolation  session  everything, of one that holds an isolated message     isolation.go
//	retries    firsts   first deliveries, while the group has many retries    retrylimit.go
//	claim      share    first deliveries and retries, until they are claimed  claim.go
//
// The methods of policies have the same names, and each policy has those that it needs: admit; outcome, which learns
// what became of deliveries; nextDeadline; save and restore, if its state is to survive the owner. No policy looks at
// messages or shares that it was not told of. See adr/0053.
type policy interface {
	// admit is how many messages may be handed out in a scope now.
	admit(sc scope, now int64) int
	// nextDeadline is when admit may answer more, or Tick has something to do, though no event comes before (ns, or
	// never).
	nextDeadline(now int64) int64
}

// never is after every deadline, ns.
const never int64 = math.MaxInt64

// scope is whom a policy is asked about.
type scope struct {
	group   bool      // the whole group
	firsts  bool      // what nobody was handed yet of a group
	session SessionID // else one session; 0: unary pulls
}

// scopeOf is that of a session.
func scopeOf(session SessionID) scope { return scope{session: session.known()} }

// outcome is what policies learn of settlements: successes, or one attempt that failed.
type outcome struct {
	successes int          // acks and rejects: a reject is a verdict on the message, by a worker that does its work
	id        core.Receipt // which message failed: where it was before it went to the retry queue
	of        messageRef   // where it is
	first     bool         // it was its first attempt
	others    bool         // its lock timed out, while others succeeded: that tells of its consumer, and not of the group
}

var (
	groupScope  = scope{group: true}
	firstsScope = scope{group: true, firsts: true}
)

// inOrder are the policies of the group and its sessions. That of shares, claim, is asked before: see claimRetries.
func (g *Group) inOrder() [5]policy {
	return [...]policy{g.paused, g.breaker, &g.throttle, g.isolation, g.retries}
}

// admit is how many of most messages all policies let go in a scope now.
func (g *Group) admit(sc scope, most int) int {
	for _, p := range g.inOrder() {
		most = min(most, p.admit(sc, g.now))
	}
	return most
}

// Admits reports whether the policies of a session let it have a message now. Those of the group are not asked.
func (g *Group) Admits(session SessionID) bool {
	sc := scopeOf(session)
	return g.throttle.admit(sc, g.now) > 0 && g.isolation.admit(sc, g.now) > 0
}

// EachRefused calls f for every session for which Admits does not hold. It looks at few: those that nacked, or were
// isolated.
func (g *Group) EachRefused(f func(SessionID)) {
	for id := range g.throttle.paces {
		if !g.Admits(id) {
			f(id)
		}
	}
	if g.isolation == nil {
		return
	}
	for id := range g.isolation.given {
		if _, twice := g.throttle.paces[id]; !twice && !g.Admits(id) {
			f(id)
		}
	}
}

// nextPolicy is the next deadline of the policies.
func (g *Group) nextPolicy() int64 {
	next := never
	for _, p := range g.inOrder() {
		next = min(next, p.nextDeadline(g.now))
	}
	return next
}

// gave tells the policies that a session was handed n messages.
func (g *Group) gave(session SessionID, n int) {
	if n == 0 {
		return
	}
	g.sessions.gave(session)
	g.throttle.handed(scopeOf(session), n, g.now)
	if g.breaker.isOpen() {
		g.breaker.handed(n, g.now)
		g.keepBreaker()
	}
}

// PolicyBreaker is the policy that stops deliveries while nothing succeeds. Checkpoints keep the numbers of policies.
const PolicyBreaker uint8 = 1

// MaxPolicies bounds the bytes that the states of all policies take in a checkpoint.
const MaxPolicies = 1024

// SetPolicy has further checkpoints of all shares of the group keep the state of a policy, for the next owner; an empty
// state is left out. It is copied. CodeBadArgument for a policy that is not known, CodeTooLarge when the states of all
// policies together exceed MaxPolicies; nothing is changed then.
func (g *Group) SetPolicy(id uint8, state []byte) error {
	if id == 0 || int(id) > len(g.policies) {
		return core.Errorf(core.CodeBadArgument, "policy %d is not known", id)
	}
	if g.policies[id-1] == string(state) {
		return nil
	}
	changed := g.policies
	changed[id-1] = string(state)
	if n := len(changed.append(nil)); n > MaxPolicies {
		return core.Errorf(core.CodeTooLarge, "the states of policies take %d bytes of a checkpoint; at most %d may be kept", n, MaxPolicies)
	}
	g.policies = changed
	for _, s := range g.shares {
		s.change()
	}
	return nil
}

// pause stops the deliveries of a group while nobody takes its messages. It is on from the call of Want(false) to the
// next Want(true). While it is on nothing is handed out, and retries wait. Checkpoints do not count their next attempt
// then, so a crash of the owner costs no message an attempt. It learns nothing from outcomes, has no deadline, and is
// not saved: whoever owns the group says anew whether somebody takes messages.
//
// Its scope is the group.
type pause bool

func (p pause) admit(scope, int64) int {
	if p {
		return 0
	}
	return math.MaxInt
}

func (p pause) nextDeadline(int64) int64 { return never }

// Want says how much all consumers together would take now, and whether there are consumers at all: at first there are,
// and they take any number. A Take spends of that, until the next call. Without consumers the group is paused: Take
// hands out nothing, retries wait, and checkpoints count no attempt that was not made, so a crash of the owner costs
// them none. Retries that were claimed before are claimed again later.
func (g *Group) Want(credit Credit, anyone bool) {
	g.credit = credit
	if bool(g.paused) == anyone {
		g.paused = pause(!anyone)
		for _, s := range g.shares {
			if s.count[ready]+s.count[unsaved] > 0 {
				s.change()
			}
		}
		g.chooseNext()
	}
	g.claimRetries()
}
