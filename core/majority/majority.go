// Package majority owns the rule that tells a cut of the network from an outage of the metadata, for a controller that
// lacks a majority of the metadata.
package majority

import (
	"maps"
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
)

// State is what a controller knows of the metadata. The words are stable: users see them.
type State string

const (
	Has    State = "majority" // a majority of the metadata answers
	Cut    State = "cut"      // none does here, and there may be one elsewhere
	Outage State = "outage"   // none does at any controller
)

// States are all of them.
func States() []State { return []State{Has, Cut, Outage} }

// Answer is what another controller says of itself.
type Answer uint8

const (
	Silent Answer = iota // it does not answer
	Lacks                // it has no majority either
	Unsure               // it answers, and does not know yet
	Holds                // it has a majority
)

// Verdict is the state of a controller, and the others that it follows from, sorted.
type Verdict struct {
	State
	Silent []core.HostID // do not answer this controller
	Having []core.HostID // answer it, and have a majority
}

// Judge decides by the answers of all controllers that this one knew, without itself:
//
//  1. A controller with a majority is in no trouble, whatever the others say.
//  2. One that reaches a controller with a majority is cut off from the metadata.
//  3. One that does not reach all others is cut off from those: they may have a majority.
//  4. One that reaches all others, none of which has a majority, is in an outage. So is one that knew no others.
//
// sure is false while another one does not know yet what an outage depends on.
func Judge(has bool, others map[core.HostID]Answer) (v Verdict, sure bool) {
	if has {
		return Verdict{State: Has}, true
	}
	v.State, sure = Outage, true
	for _, id := range slices.Sorted(maps.Keys(others)) {
		switch others[id] {
		case Silent:
			v.Silent = append(v.Silent, id)
		case Holds:
			v.Having = append(v.Having, id)
		case Unsure:
			sure = false
		}
	}
	if len(v.Silent) > 0 || len(v.Having) > 0 {
		v.State, sure = Cut, true
	}
	return v, sure
}

// Text says what is the case, such as `cut off from a, b`; "" with a majority.
func (v Verdict) Text() string {
	switch {
	case v.State == Outage:
		return "outage of the metadata"
	case v.State != Cut:
		return ""
	case len(v.Having) == 0:
		return "cut off from " + names(v.Silent)
	case len(v.Silent) == 0:
		return "cut off from the metadata, unlike " + names(v.Having)
	}
	return "cut off from the metadata, unlike " + names(v.Having) + ", and from " + names(v.Silent)
}

func names(ids []core.HostID) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return strings.Join(out, ", ")
}
