// Package stuck owns the answer to why a group does not go on: which of its messages holds it up, and for what reason.
package stuck

import (
	"slices"

	"github.com/columbamq/columba/core/dispatch"
)

// Reason is why a message is where it is, or why nothing more of a share comes. The words are stable: users see them.
type Reason string

const (
	Nothing            Reason = "nothing_waits"
	InFlight           Reason = "in_flight"
	Delayed            Reason = "delayed"
	GroupDelay         Reason = "group_delay"
	Blocked            Reason = "blocked"
	DeadLettering      Reason = "dead_lettering"
	DLQNotWritable     Reason = "dlq_not_writable"
	Parking            Reason = "parking"
	RetryNotWritable   Reason = "retry_queue_not_writable"
	Ready              Reason = "ready"
	Reading            Reason = "reading"
	NoConsumer         Reason = "no_consumer"
	NoCredit           Reason = "no_credit"
	Stalled            Reason = "stalled"
	Throttled          Reason = "throttled"
	Alone              Reason = "alone"
	Held               Reason = "last_attempt_held"
	NoReplica          Reason = "no_readable_replica"
	OutstandingLimit   Reason = "outstanding_limit"
	CheckpointFull     Reason = "checkpoint_full"
	CheckpointNotSaved Reason = "checkpoint_not_saved"
	MemoryFull         Reason = "host_memory_full"
	ChainOrder         Reason = "chain_order"
	LeaseLapsed        Reason = "lease_lapsed"
	Disabled           Reason = "disabled"
	NoOwner            Reason = "no_owner"
	OwnerSilent        Reason = "owner_silent"
	NotSealed          Reason = "not_sealed"
	SeekPending        Reason = "seek_pending"
)

// texts say what a reason means and what to do about it.
var texts = map[Reason]string{
	Nothing:            "every message that is due is settled by the group; `columba list timers` has what was published for later, and `columba list parked` what consumers sent back for long",
	InFlight:           "a consumer has it and has not settled it; if it does not, the message is free again when its lock ends",
	Delayed:            "it failed, and waits for its time to be tried again",
	GroupDelay:         "the group's delay keeps it back; `columba update group --delay` changes that",
	Blocked:            "it had its last attempt, and the group blocks; raise --max-deliveries, ack it, or turn the group to --exhausted dlq or drop",
	DeadLettering:      "it is on its way to the dead letter queue",
	DLQNotWritable:     "it had its last attempt, and the dead letter queue does not take it just now; it is tried again every second. Look after input hosts, stores and their disks",
	Parking:            "it is to wait for long, and on its way to the group's retry queue",
	RetryNotWritable:   "it is to wait for long, and the group's retry queue does not take it just now; it is tried again every second, and handed out when its time comes. Look after input hosts, stores and their disks",
	Ready:              "it is handed out as soon as a consumer's turn comes",
	Reading:            "it is being read from a store",
	NoConsumer:         "nobody consumes for the group; start a consumer",
	NoCredit:           "the consumers hold as much as they asked for; they have to settle some, or more of them are needed",
	Stalled:            "nothing that the group hands out succeeds: no attempt counts, and a few messages at a time probe until one is acked. Look after the workers and what they depend on",
	Throttled:          "the consumers nacked all they got lately, and get the next messages after a pause; an ack ends that, and `columba update group --no-nack-throttle` switches it off",
	Alone:              "its lock ran out the time before, and this is its last attempt: it is made alone, by the next consumer that holds nothing else. One is given nothing more until it is idle; after the lock timeout (30 s at least, 5 min at most) it is handed out like any other",
	Held:               "messages fail and none has succeeded since, so it may be the workers: it has one attempt left, which waits until one is acked, or enough have failed to tell; 5 s at least after a message failed for the first time, and until what was never tried is. Look after the workers and what they depend on",
	NoReplica:          "no store that has it can be read from; bring one of them back. If their disks are lost for good, `columba seal --force` gives up what no store has any more",
	OutstandingLimit:   "as many messages are read and not settled as may be at once; nothing more of this extent is read until some are",
	CheckpointFull:     "so much is settled out of order that its record is full; nothing more of this extent is read until older messages are settled",
	CheckpointNotSaved: "before it is handed out, the count of its attempts, or that it is handed out at all in a group that delivers at most once, has to be saved, and cannot be; look after the metadata",
	MemoryFull:         "the output host holds as many bytes as it may; consumers of all groups have to settle some, or give it more memory",
	ChainOrder:         "an earlier extent of this cp queue has to be handed out first",
	LeaseLapsed:        "the output host has not heard of a controller, and hands nothing out until it does",
	Disabled:           "nothing is delivered to the group; `columba update group --status enabled` (or of the queue) changes that",
	NoOwner:            "no output host has been given this extent; look after the controller and the output hosts",
	OwnerSilent:        "the output host that has this extent does not answer; it is replaced when it is gone for good",
	SeekPending:        "a seek of the group is under way, and a controller finishes it within a minute; the group goes on where it was until then. `columba show group` says where to, `columba list audit` how it ended",
	NotSealed: "extents of the queue stay sealing, because their ends cannot be decided; groups get nothing of them that was not known to be committed, and a cp queue " +
		"takes no messages. Start the stores that are away; of one whose disk is lost for good: `columba seal --force --all-of-store STORE`",
}

// Text says what the reason means and what to do about it.
func (r Reason) Text() string { return texts[r] }

// View is what an output host sees of a share, and of the group it is part of.
type View struct {
	dispatch.Standing // of the message that holds up the share

	Takers     int  // consumers and pulls
	Credit     int  // of them, those that would take a message now
	Throttled  bool // all that would take a message have to pause first
	Stalled    bool // nothing that the group hands out succeeds
	Waiting    bool // something could be handed out to one that has credit
	Full       bool // the checkpoint is
	AtLimit    bool // of what may be outstanding
	MemoryFull bool
	ChainWaits bool // for an earlier extent
	Unreadable bool // no store is there, or all were tried and failed
	Lapsed     bool // nothing may be handed out without a word of a controller
	DLQFails   bool // the last message could not be appended to the dead letter queue
	ParkFails  bool // the last message could not be appended to the retry queue
	SaveFails  bool // the last checkpoint could not be saved
}

// Reasons are why the share does not go on, the one to begin with first. There is always one.
func (v *View) Reasons() []Reason {
	own := v.own()
	out := []Reason{own}
	add := func(r Reason, is bool) {
		if is && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	switch own {
	case InFlight, Delayed, GroupDelay, Blocked, DeadLettering, DLQNotWritable, Parking, RetryNotWritable:
		// The message is where it should be. What lies behind it may have a reason of its own to wait.
		if v.AtLimit || v.Full {
			out = out[:0]
			add(OutstandingLimit, v.AtLimit)
			add(CheckpointFull, v.Full)
			add(own, true)
		}
		add(LeaseLapsed, v.Lapsed)
		add(NoConsumer, v.Takers == 0)
		add(NoCredit, v.Takers > 0 && v.Waiting && v.Credit == 0)
		add(Stalled, v.Stalled)
		add(Throttled, v.Credit > 0 && v.Throttled)
	case Nothing:
		return out
	}
	add(Stalled, v.Stalled && v.Takers == 0) // else it looks as if a consumer were all that is missing
	add(NoReplica, v.Unreadable)
	add(CheckpointNotSaved, v.SaveFails)
	add(DLQNotWritable, v.DLQFails)
	add(RetryNotWritable, v.ParkFails)
	return out
}

// own is the reason of the message itself.
func (v *View) own() Reason {
	switch v.Place {
	case dispatch.PlaceDone:
		return Nothing
	case dispatch.PlaceInFlight:
		return InFlight
	case dispatch.PlaceBlocked:
		return Blocked
	case dispatch.PlaceDelayed:
		if v.Attempts == 0 {
			return GroupDelay
		}
		return Delayed
	case dispatch.PlaceParked:
		if v.ParkFails {
			return RetryNotWritable
		}
		if v.Enqueued > 0 {
			return Parking
		}
		return v.unread()
	case dispatch.PlaceDying:
		if v.DLQFails {
			return DLQNotWritable
		}
		if v.Enqueued > 0 {
			return DeadLettering
		}
		return v.unread()
	}
	if v.Place == dispatch.PlaceUnread || v.Enqueued == 0 {
		return v.unread()
	}
	return v.waits()
}

// unread is why bytes were not read.
func (v *View) unread() Reason {
	switch {
	case v.Unreadable:
		return NoReplica
	case v.AtLimit:
		return OutstandingLimit
	case v.Full:
		return CheckpointFull
	case v.MemoryFull:
		return MemoryFull
	case v.Takers == 0:
		return NoConsumer
	}
	return Reading
}

// waits is why what could be handed out is not.
func (v *View) waits() Reason {
	first := v.Place == dispatch.PlaceBuffered
	switch {
	case v.Lapsed:
		return LeaseLapsed
	case v.Takers == 0:
		return NoConsumer
	case first && v.ChainWaits:
		return ChainOrder
	case first && v.Full:
		return CheckpointFull
	case first && v.AtLimit:
		return OutstandingLimit
	case v.Place == dispatch.PlaceUnsaved && v.SaveFails:
		return CheckpointNotSaved
	case v.Place == dispatch.PlaceAlone: // whoever is to have it may be kept without credit until then
		return Alone
	case v.Place == dispatch.PlaceHeld:
		return Held
	case v.Credit == 0:
		return NoCredit
	case v.Stalled:
		return Stalled
	case v.Throttled:
		return Throttled
	}
	return Ready
}
