package dispatch

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// A policy keeps messages back that could be handed out. Take asks all policies, in the order of Group.inOrder, and hands
// out as many messages as all of them admit:
//
//	policy     scope    keeps back                                            file
//	pause      group    everything, while nobody takes messages               pause.go
//	breaker    group    all but a few probes, while nothing succeeds          breaker.go
//	throttle   session  most, of a session that nacks all that it gets        throttle.go
//	isolation  session  everything, of one that holds an isolated message     isolation.go
//	retries    firsts   first deliveries, while the group has many retries    retrylimit.go
//	claim      share    first deliveries, while others are claimed            claim.go
//
// The methods of policies have the same names, and each policy has those that it needs: admit; outcome, which learns what
// became of deliveries; nextDeadline; save and restore, if its state is to survive the owner. No policy looks at messages
// or shares that it was not told of. See adr/0053.
type policy interface {
	// admit is how many messages may be handed out in a scope now.
	admit(sc scope, now int64) int
	// nextDeadline is when admit may answer more, or Tick has something to do, though no event comes before (ns).
	nextDeadline(now int64) (at int64, ok bool)
}

// scope is whom a policy is asked about.
type scope struct {
	group   bool      // the whole group
	firsts  bool      // what nobody was handed yet of a group
	session SessionID // else one session; 0: unary pulls
}

var (
	groupScope  = scope{group: true}
	firstsScope = scope{group: true, firsts: true}
)

// inOrder are the policies of the group and its sessions. That of shares, claim, is asked last: see Share.canBegin.
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
	sc := scope{session: session}
	return g.throttle.admit(sc, g.now) > 0 && g.isolation.admit(sc, g.now) > 0
}

// EachRefused calls f for every session for which Admits does not hold. It looks at sessions that nacked, or hold an isolated message, only.
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
func (g *Group) nextPolicy() (next int64, ok bool) {
	for _, p := range g.inOrder() {
		if at, waits := p.nextDeadline(g.now); waits && (!ok || at < next) {
			next, ok = at, true
		}
	}
	return next, ok
}

// gave tells the policies that a session was handed n messages.
func (g *Group) gave(session SessionID, n int) {
	if n == 0 {
		return
	}
	g.sessions.gave(session)
	g.throttle.handed(scope{session: session}, n, g.now)
	if g.breaker.isOpen() {
		g.breaker.handed(n, g.now)
		g.keepBreaker()
	}
}

// PolicyBreaker is the policy that stops deliveries while nothing succeeds. Checkpoints keep the numbers of policies.
const PolicyBreaker uint8 = 1

// MaxPolicies bounds the bytes that the states of all policies take in a checkpoint.
const MaxPolicies = 1024

// policyStates are the states of a group's policies, that of id 1 first, in their own encodings; empty: none.
type policyStates [PolicyBreaker]string

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

func (p *policyStates) get(id uint8) []byte {
	if id == 0 || int(id) > len(p) || p[id-1] == "" {
		return nil
	}
	return []byte(p[id-1])
}

func (p *policyStates) append(b []byte) []byte {
	n := 0
	for _, state := range p {
		if state != "" {
			n++
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	for i, state := range p {
		if state != "" {
			b = append(b, byte(i+1))
			b = binary.AppendUvarint(b, uint64(len(state)))
			b = append(b, state...)
		}
	}
	return b
}

// decode reads what append wrote, without the policies that are not known here: a later build may have them.
func (p *policyStates) decode(b []byte) (rest []byte, ok bool) {
	whole := len(b)
	n, b, ok := uvarint(b, MaxPolicies)
	if !ok {
		return nil, false
	}
	before := byte(0)
	for range n {
		if len(b) == 0 || b[0] <= before { // they rise
			return nil, false
		}
		id := b[0]
		size, after, ok := uvarint(b[1:], MaxPolicies)
		if !ok || size > uint64(len(after)) {
			return nil, false
		}
		if int(id) <= len(p) {
			p[id-1] = string(after[:size])
		}
		b, before = after[size:], id
	}
	return b, whole-len(b) <= MaxPolicies
}
