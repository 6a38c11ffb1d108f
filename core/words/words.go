// Package words owns the words that users read for the states of a message, for the sources of a delay and for the
// reasons of failures. Each is an entry of the glossary, docs/concepts.md, under the same word.
package words

import "github.com/columbamq/columba/core/dispatch"

// States of a message in a group. Depths, lists and metrics use the same words.
const (
	Unread        = "unread"         // no output host has read it yet
	Ready         = "ready"          // can be delivered now
	InFlight      = "in_flight"      // delivered and locked
	Delayed       = "delayed"        // waits for its time
	Blocked       = "blocked"        // exhausted, in a group that blocks
	DeadLettering = "dead_lettering" // on its way to the dead letter queue
	Dead          = "dead"           // in the dead letter queue
	Settled       = "settled"        // the group is done with it
	BeforeStart   = "before_start"   // published before the group's start
	Cancelled     = "cancelled"      // taken back while it was delayed
)

// States are all states of a message.
var States = []string{Unread, Ready, InFlight, Delayed, Blocked, DeadLettering, Dead, Settled, BeforeStart, Cancelled}

// Events are what may become of a delivery or a message in a group, as metrics count it.
var Events = [...]string{
	"delivered", "redelivered", "acked", "nacked", "lock_timeout", "rejected", "returned", "dead_lettered", "retry_queued", "dropped", "skipped",
	"expired", "not_counted", "cancelled",
}

// Sources of a delay.
const (
	SourcePublish = "publish" // the publisher gave the message a delay or a time
	SourceRetry   = "retry"   // a consumer sent the message back
	SourceGroup   = "group"   // the group's delay
)

// Sources are all sources of a delay.
var Sources = []string{SourcePublish, SourceRetry, SourceGroup}

// Reasons are the reasons of a dead letter and of a failed attempt.
func Reasons() (all []string) {
	for _, f := range []dispatch.Failure{dispatch.Nacked, dispatch.LockTimedOut, dispatch.Rejected, dispatch.Expired} {
		all = append(all, f.String())
	}
	return all
}

var states = map[dispatch.Place]string{
	dispatch.PlaceDone: Settled, dispatch.PlaceUnread: Unread, dispatch.PlaceInFlight: InFlight, dispatch.PlaceBlocked: Blocked, dispatch.PlaceDeadLettering: DeadLettering,
	dispatch.PlaceBuffered: Ready, dispatch.PlaceUnsaved: Ready, dispatch.PlaceReady: Ready, dispatch.PlaceIsolated: Ready,
	dispatch.PlaceDelayed: Delayed, dispatch.PlaceRetryQueue: Delayed,
}

// StateOf is the state of a message at a place.
func StateOf(p dispatch.Place) string { return states[p] }
