// Package skew finds wrong clocks by comparing the clocks of all hosts.
package skew

import (
	"cmp"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// Offsets from the median of all clocks.
const (
	Doubt  = 5 * time.Second  // a clock that is off by more is Doubtful
	Refuse = 30 * time.Second // a clock that is off by more is Wrong, until it is off by no more than Doubt
)

// Reading is the clock of a host as one host, the same for all readings, saw it.
type Reading struct {
	Ahead  time.Duration // of the clock of the host that reads; below zero: behind
	Within time.Duration // how far from Ahead the truth may be
}

// State is what is known of a clock.
type State uint8

const (
	Right    State = iota
	Doubtful       // it is off by more than Doubt, or clocks differ and no majority tells whose is right
	Wrong          // it is off by more than Refuse, and more than half of all hosts are not
)

// Verdict is the judgement of a clock.
type Verdict struct {
	Off    time.Duration // from the median of all; below zero: behind
	Within time.Duration // how far from Off the truth may be
	State
}

// Judge compares each clock with the median of all; silent is how many hosts did not say theirs, before is the
// judgement before, nil for the first one.
//
//  1. One clock alone is right.
//  2. Two clocks that differ are Doubtful: nobody can tell which one is wrong.
//  3. Of three or more hosts, those that differ from a majority are Wrong, so that fewer than half of all hosts ever are. A silent host agrees with nobody.
//  4. A clock that was Wrong is Wrong until it is off by Doubt or less: one that is off by about Refuse does not change its state with each reading.
//
// The error of a reading counts in favour of the clock.
func Judge(readings map[core.HostID]Reading, silent int, before map[core.HostID]Verdict) map[core.HostID]Verdict {
	middle, open := median(readings)
	agree := 0
	out := make(map[core.HostID]Verdict, len(readings))
	for id, r := range readings {
		v := Verdict{Off: r.Ahead - middle, Within: r.Within + open}
		sure := max(v.Off, -v.Off) - v.Within
		refuse := Refuse
		if before[id].State == Wrong {
			refuse = Doubt
		}
		switch {
		case sure > refuse:
			v.State = Wrong
		case sure > Doubt:
			v.State = Doubtful
			agree++
		default:
			agree++
		}
		out[id] = v
	}
	if 2*agree > len(readings)+silent {
		return out
	}
	for id, v := range out {
		if v.State == Wrong {
			v.State = Doubtful
			out[id] = v
		}
	}
	return out
}

// median is the middle of all clocks, or the mean of the two in the middle, and how far from it the truth may be.
func median(readings map[core.HostID]Reading) (middle, open time.Duration) {
	if len(readings) == 0 {
		return 0, 0
	}
	sorted := make([]Reading, 0, len(readings))
	for _, r := range readings {
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, func(a, b Reading) int { return cmp.Or(cmp.Compare(a.Ahead, b.Ahead), cmp.Compare(a.Within, b.Within)) })
	low, high := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	return low.Ahead + (high.Ahead-low.Ahead)/2, max(low.Within, high.Within)
}

// Text says of a host by how much its clock is ahead, such as `clock +1h0m0s`.
func Text(off time.Duration) string {
	off = off.Round(time.Second)
	if off < 0 {
		return "clock " + off.String()
	}
	return "clock +" + off.String()
}
