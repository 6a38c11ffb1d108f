// Package dispatch owns the delivery rules of one consumer group on one output host: who gets which message when, under
// which attempt and lock, what becomes of a settlement, and what a checkpoint must hold.
//
// Everything here is a plain struct: no goroutine, no clock, no I/O. A Group, with all its Shares, has one owner;
// nothing is safe for concurrent use.
//
// Each now is a time of the wall clock, because checkpoints keep such times. If it has a monotonic reading, as that of
// time.Now has, the reading tells how much time has passed. A now that is before an earlier one counts as the earlier
// one.
package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
)

// Limits of one share. A share that is at one of them reads no further (WantsMore, ReadCredit).
const (
	MaxOutstanding      = 10_000   // messages read and not settled
	MaxOutstandingBytes = 64 << 20 // bytes of batches held for them
	MaxCheckpoint       = 64 << 10 // bytes of Checkpoint's blob
	MaxReason           = 1024     // bytes kept of a consumer's reason
	MaxSettleRun        = 65_535   // messages in one settlement
)

// SessionID names a consumer's session on this host, below firstPull, or a unary pull. Policies know all pulls of a
// group as one session, 0.
type SessionID uint32

// firstPull is the lowest of the sessions of unary pulls; those are below EarlierSession.
const firstPull SessionID = 1 << 31

// PullSession is the session of a unary pull, by its number: what one of them was handed is not another one's. Numbers
// come round.
func PullSession(number uint32) SessionID {
	return firstPull + SessionID(number)%(EarlierSession-firstPull)
}

// known is the session as policies know it.
func (id SessionID) known() SessionID {
	if id >= firstPull && id != EarlierSession {
		return 0
	}
	return id
}

// EarlierSession has what an earlier owner of the share handed out.
const EarlierSession SessionID = 1<<32 - 1

// Buffer is what a batch's memory belongs to.
type Buffer interface {
	// Release is called once, when no message of the batch needs its bytes any more: from inside a call on the group
	// or share, so it must neither block nor call back.
	Release()
}

// Records is a batch as it was read: record i has seq Base+i and the bytes Bytes[Offsets[i]:Offsets[i+1]].
// Offsets, Bytes, Expire, History and Buffer belong to the share from Offer until Buffer.Release.
type Records struct {
	Base     core.Seq
	Offsets  []uint32 // one more than there are records; rising
	Bytes    []byte
	Expire   []int64   // of each record, unix ms: when it is of no use any more, 0: never; nil: never for all
	History  []History // of each record, of a retry queue; nil: none is known
	Enqueued int64     // unix µs: the batch's append time
	Buffer   Buffer    // nil: the bytes are the garbage collector's
}

// History is what the record of a message in a retry queue says of its earlier attempts.
type History struct {
	Origin       core.Receipt // in the queue, before it first went to the retry queue
	Attempts     uint16       // deliveries so far, in all
	Settled      uint16       // of them, those of an earlier life, before it was merged back from the dead letter queue
	NotCounted   uint16       // of the others, those that do not count
	Unsure       uint8        // of these, those that do not count since they were unsure
	LockTimedOut bool         // the lock of the last of them timed out; else it was nacked
}

// here is how many deliveries there were in the present life of a message.
func (h *History) here() uint16 { return h.Attempts - min(h.Settled, h.Attempts) }

// AnySize is larger than every message.
const AnySize = math.MaxInt

// Credit is how much a Take may hand out.
type Credit struct {
	Messages int
	Bytes    int
	// Largest lets one message of up to so many bytes through that is larger than Bytes, if it is the only one of the
	// Take. Set it to AnySize when the session holds nothing, so that a message larger than its whole window cannot stop
	// it for ever.
	Largest int
}

// Run is Count messages in a row, handed out under one attempt.
type Run struct {
	Share    *Share
	Base     core.Seq
	Count    uint32
	Attempt  uint16
	Enqueued int64   // unix µs
	Due      []int64 // of a timer extent: when each was due, unix µs, rising; valid until the next call on the group; else nil
	Bytes    []byte  // the encoded records, back to back; valid until the next call on the group …
	Buffer   Buffer  // … or for as long as the caller keeps this alive by its own means; nil: for ever
}

// Refusal is Count settlements from seq Base that were not applied, because of Code.
type Refusal struct {
	Base  core.Seq
	Count uint32
	Code  core.Code
}

// Failure says why an attempt failed.
type Failure uint8

const (
	NoFailure    Failure = iota
	LockTimedOut         // neither settled nor extended in time
	Nacked               // the consumer asked for another attempt
	Rejected             // the consumer asked for no other attempt
	Expired              // the message expired
)

// String is the reason code written to a dead letter.
func (f Failure) String() string {
	switch f {
	case LockTimedOut:
		return "lock_timeout"
	case Nacked:
		return "nack"
	case Rejected:
		return "rejected"
	case Expired:
		return "expired"
	}
	return ""
}

// Destination is the built-in queue that a message is transferred to. Checkpoints keep the numbers.
type Destination uint8

const (
	DeadLetterQueue Destination = 0 // what nobody is to be handed again
	RetryQueue      Destination = 1 // what waits for long before its next attempt
	// Destinations is how many there are.
	Destinations = 2
)

// String names the queue in messages to people.
func (d Destination) String() string {
	if d == RetryQueue {
		return "retry queue"
	}
	return "dead letter queue"
}

// Reason says why a message is transferred. Checkpoints keep the numbers. Users read the Failure of a dead letter.
type Reason uint8

const (
	Failed       Reason = 0 // an attempt failed: it is rejected, or it waits for its next attempt
	Exhausted    Reason = 1 // it had its last attempt
	ExpiredRetry Reason = 2 // it was delivered, and expired before it was delivered again
	Swept        Reason = 3 // it expired, and was never delivered, and attempts are 0
	reasons             = 4
)

func (r Reason) expired() bool { return r == ExpiredRetry || r == Swept }

// Source is what the messages of a share are. It outlives the share, in Transfers.
type Source struct {
	Extent    core.ExtentID
	Returning bool // they come back from the retry queue
	Merged    bool // they were merged into the group
}

// Depth counts messages of a share or a group; together they are what was read and not settled.
type Depth struct {
	Ready         int   // could be handed out now: first deliveries, and retries (their count saved or about to be)
	InFlight      int   // locked by a consumer
	Delayed       int   // waits after a nack, or was never handed out and waits for the group's delay
	Kept          int   // of Delayed: waits for the group's delay
	Failed        int   // of Delayed: waits after a nack
	RetryQueueing int   // on its way to the retry queue
	DeadLettering int   // on its way to the dead letter queue
	Blocked       int   // exhausted in a group that blocks
	Retries       int   // of all: failed, and not at their end; see RetryLimit
	OldestReady   int64 // enqueue time, or due time, unix µs, of the oldest ready message by extent order; 0 = none
}

// Counters only grow.
type Counters struct {
	Delivered    uint64 // attempts handed out
	Redelivered  uint64 // of those, attempts after the first
	Acked        uint64
	Nacked       uint64
	LockTimeouts uint64 // locks that timed out
	Rejected     uint64
	Returned     uint64
	Dead         uint64 // dead-lettered
	RetryQueued  uint64 // appended to the retry queue
	Dropped      uint64 // exhausted in a group that drops
	Skipped      uint64 // never handed out: too old for the group
	Expired      uint64 // expired before they were handed out, or out again
	NotCounted   uint64 // attempts that failed and do not count, because the breaker was open or opened by them
	Opened       uint64 // times that the breaker opened
	Cancelled    uint64 // never handed out: taken back
}
