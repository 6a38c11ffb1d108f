// Package backlog owns the arithmetic of a backlog: the number of unsettled messages of a group in an extent, and an
// estimate of their bytes.
package backlog

import (
	"math/bits"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// Extent is what counts of an extent that a group reads.
type Extent struct {
	Last    core.Seq // its end; while it has none, how far it is committed
	Bytes   uint64   // of all its messages up to Last, encoded
	Removed uint64   // messages that selections took, and those that were given up as lost: they are nobody's
}

// Class is what the messages are that a group has not read yet.
type Class uint8

const (
	Ready          Class = 0 // a consumer would get them
	DelayedPublish Class = 1 // their publisher gave them a delay or a time
	DelayedRetry   Class = 2 // they failed, and wait in the retry queue
	DelayedGroup   Class = 3 // the delay of the group has not passed
)

// Delayed counts delayed messages by where the delay comes from.
type Delayed struct {
	Publish uint64 // published with a delay or a time
	Retry   uint64 // wait after a failed attempt for the next one, or for the dead letter queue
	Group   uint64 // wait for the group's delay
}

// DelayedIn counts the delayed messages of a share, or of a group.
func DelayedIn(d dispatch.Depth) Delayed {
	return Delayed{Publish: uint64(d.Delayed - d.Kept - d.Failed), Retry: uint64(d.Failed + d.RetryQueueing + d.DeadLettering), Group: uint64(d.Kept)}
}

// Sum is how many messages are delayed.
func (d Delayed) Sum() uint64 { return d.Publish + d.Retry + d.Group }

// Add adds another count.
func (d *Delayed) Add(o Delayed) {
	d.Publish += o.Publish
	d.Retry += o.Retry
	d.Group += o.Group
}

// Of is the count that a class of delayed messages is part of; nil for Ready.
func (d *Delayed) Of(c Class) *uint64 {
	switch c {
	case DelayedPublish:
		return &d.Publish
	case DelayedRetry:
		return &d.Retry
	case DelayedGroup:
		return &d.Group
	}
	return nil
}

// Progress is how far a group is with an extent. The zero Progress is that of one it has not begun.
type Progress struct {
	Settled uint64 // messages that the group needs no more, from the first one on

	// Messages that the owner of the share holds: they were read, or handed out, and are not settled.
	Ready, InFlight, Blocked uint64
	Delayed                  Delayed
	Retries                  uint64 // of all these: failed before, and not at their end

	Unread Class  // what the others are
	Due    uint64 // of unread ones that are delayed: ready all the same
	Oldest int64  // unix µs: when the oldest ready message was enqueued, or was due; 0: none is ready, or it is not known
}

// Held is how many messages the owner holds.
func (p Progress) Held() uint64 { return p.Ready + p.InFlight + p.Delayed.Sum() + p.Blocked }

// Depth is a backlog, or a part of one.
type Depth struct {
	Ready, InFlight, Blocked uint64
	Delayed                  Delayed
	Retries                  uint64 // of all these but the blocked ones: failed before

	Bytes  uint64 // an estimate
	Oldest int64  // unix µs: when the oldest ready message was enqueued; 0: not known
}

// Messages is how many messages are not settled.
func (d Depth) Messages() uint64 { return d.Ready + d.InFlight + d.Delayed.Sum() + d.Blocked }

// Add adds another part of the same backlog, or the backlog of another group.
func (d *Depth) Add(o Depth) {
	d.Ready += o.Ready
	d.InFlight += o.InFlight
	d.Delayed.Add(o.Delayed)
	d.Blocked += o.Blocked
	d.Retries += o.Retries
	d.Bytes += o.Bytes
	if d.Oldest == 0 || o.Oldest != 0 && o.Oldest < d.Oldest {
		d.Oldest = o.Oldest
	}
}

// Unread is how many messages of an extent are neither settled nor held. An owner that has read beyond Last has left
// none.
func Unread(e Extent, p Progress) uint64 {
	last := uint64(e.Last)
	// An owner counts the removed ones as settled as soon as it has heard of them.
	gone := min(max(p.Settled, e.Removed)+p.Held(), last)
	return last - gone
}

// Of is the backlog of a group in one extent.
func Of(e Extent, p Progress) Depth {
	unread := Unread(e, p)
	d := Depth{Ready: p.Ready, InFlight: p.InFlight, Delayed: p.Delayed, Blocked: p.Blocked, Retries: p.Retries, Oldest: p.Oldest}
	if waiting := d.Delayed.Of(p.Unread); waiting != nil {
		due := min(p.Due, unread)
		d.Ready, *waiting = d.Ready+due, *waiting+unread-due
	} else {
		d.Ready += unread
	}
	if d.Ready == 0 {
		d.Oldest = 0
	}
	d.Bytes = part(e.Bytes, d.Messages(), uint64(e.Last))
	return d
}

// Stored is how many messages an extent has that nobody has removed.
func Stored(e Extent) uint64 { return uint64(e.Last) - min(e.Removed, uint64(e.Last)) }

// part is what some of all messages have of the bytes, if all are of one size.
func part(bytes, some, all uint64) uint64 {
	if all == 0 || some >= all {
		return bytes
	}
	high, low := bits.Mul64(bytes, some)
	quotient, _ := bits.Div64(high, low, all) // it fits, for some < all
	return quotient
}
