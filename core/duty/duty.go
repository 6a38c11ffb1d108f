// Package duty owns the choice of the controller that acts for a queue, or for anything else with an id: the first by
// rendezvous hashing among those that answer. It has no clock and asks nobody.
package duty

import (
	"time"

	"github.com/columbamq/columba/core"
)

// Silence is how long a controller answers nothing before the next one by rank acts in its place.
const Silence = 2 * time.Second

// Turns is the order in which controllers act for a key.
type Turns[T any] struct {
	Live   []T // those that answer, by rank: the first one acts, the next one when that falls silent
	Silent []T // the others, by rank
	Passed int // how many of Silent, from the first, rank above all of Live: each of them would act if it answered
}

// Of ranks controllers for a key. Hosts that know the same controllers, and find the same ones silent, rank alike.
func Of[T any](key core.ID, controllers []T, id func(T) core.HostID, silent func(T) bool) Turns[T] {
	var t Turns[T]
	for _, c := range core.Rank(key.String(), controllers, id) {
		if !silent(c) {
			t.Live = append(t.Live, c)
			continue
		}
		t.Silent = append(t.Silent, c)
		if len(t.Live) == 0 {
			t.Passed++
		}
	}
	return t
}
