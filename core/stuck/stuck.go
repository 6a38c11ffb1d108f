// Package stuck owns the answer of why-stuck: the message that holds a group up, and the reason.
package stuck

import (
	"maps"
	"slices"
	"strings"

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
	RetryQueueing      Reason = "retry_queueing"
	RetryNotWritable   Reason = "retry_queue_not_writable"
	AppendUnknown      Reason = "append_unknown"
	Ready              Reason = "ready"
	Reading            Reason = "reading"
	NoConsumer         Reason = "no_consumer"
	NoCredit           Reason = "no_credit"
	BreakerOpen        Reason = "breaker_open"
	Throttled          Reason = "throttled"
	RetryLimit         Reason = "delayed_retry_limit"
	Isolated           Reason = "isolated"
	NoReplica          Reason = "no_readable_replica"
	OutstandingLimit   Reason = "outstanding_limit"
	CheckpointFull     Reason = "checkpoint_full"
	CheckpointNotSaved Reason = "checkpoint_not_saved"
	MemoryFull         Reason = "host_memory_full"
	ChainOrder         Reason = "chain_order"
	LeaseExpired       Reason = "lease_expired"
	Disabled           Reason = "disabled"
	NoOwner            Reason = "no_owner"
	OwnerUnreachable   Reason = "owner_unreachable"
	NotSealed          Reason = "not_sealed"
	SeekPending        Reason = "seek_pending"
	MetadataCut        Reason = "metadata_cut"
	MetadataOutage     Reason = "metadata_outage"
	RowDamaged         Reason = "row_damaged"
)

// texts say what a reason means and what to do about it.
var texts = map[Reason]string{
	Nothing:            "no due message waits for the group; `columba list delayed QUEUE GROUP` lists those that wait for their time",
	InFlight:           "a consumer holds the message and has not settled it. If no settlement comes, the message is ready again when its lock times out, at the time in the field until",
	Delayed:            "an attempt failed, and the message waits for the next one, which is due at the time in the field until. `columba list delayed QUEUE GROUP` lists all that wait",
	GroupDelay:         "the message waits for the group's delay, which ends at the time in the field until. `columba update group QUEUE GROUP --delay 0s` ends the delay",
	Blocked:            "the last attempt failed, or a consumer rejected the message, and the group blocks exhausted messages. `columba update group QUEUE GROUP --max-deliveries N` delivers the message again, unless it was rejected; --exhausted dlq or drop ends the block",
	DeadLettering:      "the message is being moved to the dead letter queue. After a failed last attempt it first waits until another message succeeds, 5 s at most, because the workers may be to blame",
	DLQNotWritable:     "the message is exhausted, and the dead letter queue cannot be written. It is tried again every second. `columba list hosts` shows input hosts and stores that are down; check the disks of the others",
	RetryQueueing:      "the message is being moved to the group's retry queue, because its delay is longer than 30 s, it has new metadata, or 1,000 others of its extent have failed. It is delivered when it is due; `columba list delayed QUEUE GROUP` lists it",
	RetryNotWritable:   "the message is to wait in the group's retry queue, which cannot be written. It is tried again every second, and the message is delivered when it is due. `columba list hosts` shows input hosts and stores that are down; check the disks of the others",
	AppendUnknown:      "the retry queue or the dead letter queue may have the message already: an append had no answer, or the output host that began it died. The message is looked for there, and appended again only when it is certain that it is not there, up to a minute after the append or the last change of its output host. Wait until then; if it stays for longer, `columba list hosts` shows the stores that are down",
	Ready:              "the message is about to be delivered to a consumer. If it stays, run the command again",
	Reading:            "the message is being read from a store. If it stays, run the command again",
	NoConsumer:         "the group has no connected consumer. Start one: your program, or `columba consume QUEUE GROUP`",
	NoCredit:           "all consumers hold as many messages as they asked for, or have lent their credit to another output host: a consumer with a limit asks one host after the other. Start more consumers, or wait until these settle some; `columba depth QUEUE GROUP` counts the messages in flight",
	BreakerOpen:        "nothing that the group delivers succeeds, so its breaker is open: failed attempts do not count, and a few messages at a time are delivered as probes until one is acked. last_error has the last failure: check the workers and the services that they need",
	Throttled:          "the consumers nacked every message lately, so each gets the next ones after a pause. An ack ends the pauses; `columba update group QUEUE GROUP --no-nack-throttle` switches them off",
	RetryLimit:         "the group has as many retries as it may, so new messages are delivered only as retries end: by an ack, or as dead letters. Find out why messages fail (`columba list delayed QUEUE GROUP`), or raise the limit with `columba update group QUEUE GROUP --max-delayed-retries N`",
	Isolated:           "the lock of the attempt before timed out, and this is the last attempt: it is made by a consumer that holds nothing else. If none is idle within 30 s, the message is delivered like any other",
	NoReplica:          "no store that has the message can be read, for the reason in detail. `columba list extents QUEUE` shows the extent, `columba list hosts` the stores that are down: bring one back. If their disks are lost for good, `columba seal --force QUEUE EXTENT` skips the records that no store holds any more",
	OutstandingLimit:   "the group has as many unsettled messages of this extent as it may have: 10,000, or 64 MiB. It reads no more of the extent until some are settled. `columba depth QUEUE GROUP` counts them by state",
	CheckpointFull:     "so many messages are settled out of order that the checkpoint of this extent is full. No more of it is read until older messages are settled; `columba show message RECEIPT` shows the oldest one",
	CheckpointNotSaved: "the attempt has to be saved before the message is delivered, and the metadata cannot be written. `columba list hosts` shows whether the controller is up; check its disk. With metadata in Cassandra check the nodes and their disks; `columba schema show` names nodes that are away",
	MemoryFull:         "the output host holds as many bytes as it may, and reads no more until consumers settle some. `columba depth --sort backlog` names the groups with the largest backlogs",
	ChainOrder:         "an earlier extent of this CP queue has to be delivered first: its column CHAIN in `columba list extents QUEUE` is lower",
	LeaseExpired:       "the output host has not heard for two seconds from the controller that lists the shares of this queue, and delivers nothing of it until a controller confirms them. `columba list hosts` shows whether the controllers are up; check the network between them",
	Disabled:           "the group or its queue is disabled or send-only; detail says which. `columba update group QUEUE GROUP --status enabled` enables the group, `columba update queue QUEUE --status enabled` the queue",
	NoOwner:            "no output host owns this extent of the group. `columba list hosts` shows whether the controller and an output host are up",
	OwnerUnreachable:   "the output host that owns this extent of the group does not answer. Another one takes over when the controller finds it gone; `columba list hosts` shows its state",
	RowDamaged:         "the row of the metadata that describes an extent cannot be decoded; detail names it. The group gets no messages of that extent, and gets all of the others. Upgrade the hosts if a newer version wrote the row; otherwise restore the row",
	SeekPending:        "a seek of the group is under way, and a controller finishes it within a minute; the group stays where it is until then. `columba show group QUEUE GROUP` shows the new place, `columba list audit QUEUE` how it ended",
	MetadataCut: "the network is cut, and this side has no majority of the metadata. Here a group of an AP queue gets only messages that were published on this side since; " +
		"groups of CP queues, and groups that deliver at most once, wait. Run the command on the other side for the rest. `columba list hosts` names what cannot be reached: check the network",
	MetadataOutage: "no controller has a majority of the metadata. Output hosts go on with the shares that they have, and nothing moves: no extent is sealed, and an output host " +
		"that dies is not replaced. Start the Cassandra nodes that are away; `columba schema show` names them",
	NotSealed: "extents of the queue stay sealing, because their ends cannot be decided; groups get only their committed messages, and a CP queue " +
		"takes no messages. Start the stores that are away. For a store whose disk is lost for good: `columba seal --force --all-of-store STORE`",
}

// Reasons are all reasons, in no order.
func Reasons() []Reason { return slices.Collect(maps.Keys(texts)) }

// Text says what the reason means and what to do about it. Its commands have QUEUE and GROUP for the names, see
// InGroup.
func (r Reason) Text() string { return texts[r] }

// InGroup is a text with the path of the queue and the name of the group in its commands, so that they can be pasted.
func InGroup(text, queue, group string) string {
	return strings.NewReplacer("QUEUE", queue, "GROUP", group).Replace(text)
}

// View is what an output host sees of a share, and of the group it is part of.
type View struct {
	dispatch.Standing // of the message that holds up the share

	Takers          int  // consumers and pulls
	Credit          int  // of them, those that would take a message now
	Throttled       bool // all that would take a message have to pause first
	RetryLimit      bool // first deliveries wait for retries to end
	BreakerOpen     bool // or half-open: nothing that the group hands out succeeds
	Waiting         bool // something could be handed out to one that has credit
	Full            bool // the checkpoint is
	AtLimit         bool // of what may be outstanding
	ShareReady      bool // of the messages that were read, some could be handed out
	MemoryFull      bool
	ChainWaits      bool // for an earlier extent
	Unreadable      bool // no store is there, or all were tried and failed
	LeaseExpired    bool // nothing may be handed out without a word of a controller
	DLQFails        bool // the last message could not be appended to the dead letter queue
	RetryQueueFails bool // the last message could not be appended to the retry queue
	SaveFails       bool // the last checkpoint could not be saved
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
	case InFlight, Delayed, GroupDelay, Blocked, DeadLettering, DLQNotWritable, RetryQueueing, RetryNotWritable, AppendUnknown:
		// The message is where it should be. The messages behind it may have reasons of their own to wait. But those behind
		// a message that waits for the group's delay wait for it, too, and reading stops while others are ready.
		limited := v.AtLimit && !v.ShareReady && own != GroupDelay
		if limited || v.Full || v.RetryLimit {
			out = out[:0]
			add(OutstandingLimit, limited)
			add(CheckpointFull, v.Full)
			add(RetryLimit, v.RetryLimit)
			add(own, true)
		}
		add(LeaseExpired, v.LeaseExpired)
		add(NoConsumer, v.Takers == 0)
		add(NoCredit, v.Takers > 0 && v.Waiting && v.Credit == 0)
		add(BreakerOpen, v.BreakerOpen)
		add(Throttled, v.Credit > 0 && v.Throttled)
	case Nothing:
		return out
	}
	add(BreakerOpen, v.BreakerOpen) // else it looks as if a consumer, or credit, were all that is missing
	add(RetryLimit, v.RetryLimit)
	add(NoReplica, v.Unreadable)
	add(CheckpointNotSaved, v.SaveFails)
	add(DLQNotWritable, v.DLQFails)
	add(RetryNotWritable, v.RetryQueueFails)
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
	case dispatch.PlaceRetryQueue:
		if !v.Certain.IsZero() {
			return AppendUnknown
		}
		if v.RetryQueueFails {
			return RetryNotWritable
		}
		if v.Enqueued > 0 {
			return RetryQueueing
		}
		return v.unread()
	case dispatch.PlaceDeadLettering:
		if !v.Certain.IsZero() {
			return AppendUnknown
		}
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

// unread is the reason why the message was not read.
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
	case v.LeaseExpired:
		return LeaseExpired
	case v.Takers == 0:
		return NoConsumer
	case first && v.ChainWaits:
		return ChainOrder
	case first && v.Full:
		return CheckpointFull
	case v.Attempts == 0 && v.RetryLimit:
		return RetryLimit
	case v.Place == dispatch.PlaceUnsaved && v.SaveFails:
		return CheckpointNotSaved
	case v.Place == dispatch.PlaceIsolated: // whoever is to have it may be kept without credit until then
		return Isolated
	case v.Credit == 0:
		return NoCredit
	case v.BreakerOpen:
		return BreakerOpen
	case v.Throttled:
		return Throttled
	case first && v.AtLimit && !v.ShareReady: // last: messages that only wait for one of the reasons above count for the limit, too
		return OutstandingLimit
	}
	return Ready
}
