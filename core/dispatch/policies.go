package dispatch

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// PolicyBreaker is the policy that stops deliveries while nothing succeeds. Checkpoints keep the numbers of policies.
const PolicyBreaker uint8 = 1

// scope is whom a policy is asked about.
type scope struct {
	group   bool      // the whole group
	session SessionID // else one session; 0: unary pulls
}

var groupScope = scope{group: true}

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
		s.changed = true
	}
	return nil
}

func (p *policyStates) get(id uint8) []byte {
	if id == 0 || int(id) > len(p) || p[id-1] == "" {
		return nil
	}
	return []byte(p[id-1])
}

// merge takes what is not here.
func (p *policyStates) merge(o *policyStates) {
	for i := range p {
		if p[i] == "" {
			p[i] = o[i]
		}
	}
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
