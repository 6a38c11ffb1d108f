// Package dispatch owns the delivery rules of one consumer group on one output host: who gets which message when, under
// which attempt and lock, what becomes of a settlement, and what a checkpoint must hold.
//
// Everything here is a plain struct: no goroutine, no clock, no I/O. A Group, with all its Shares, has one owner; nothing
// is safe for concurrent use. Instants given as now must not go back; build them on the monotonic clock.
package dispatch

import (
	"time"

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

// SessionID names a consumer's session on this host; 0 is no session (a unary pull, or before a restart).
type SessionID uint32

// Buffer is what a batch's memory belongs to.
type Buffer interface {
	// Release is called once, when no message of the batch needs its bytes any more: from inside a call on the group
	// or share, so it must neither block nor call back.
	Release()
}

// Records is a batch as it was read: record i has seq Base+i and the bytes Bytes[Offsets[i]:Offsets[i+1]].
// Offsets, Bytes and Buffer belong to the share from Offer until Buffer.Release.
type Records struct {
	Base     core.Seq
	Offsets  []uint32 // one more than there are records; rising
	Bytes    []byte
	Enqueued int64  // unix µs: the batch's append time
	Buffer   Buffer // nil: the bytes are the garbage collector's
}

// Credit is how much a Take may hand out.
type Credit struct {
	Messages int
	Bytes    int
	// Oversize lets one message larger than Bytes through if it is the only one of the Take. Set it when the session
	// holds nothing, so that a message larger than its whole window cannot stop it for ever.
	Oversize bool
}

// Run is Count messages in a row, handed out under one attempt.
type Run struct {
	Share    *Share
	Base     core.Seq
	Count    uint32
	Attempt  uint16
	Enqueued int64  // unix µs
	Bytes    []byte // the encoded records, back to back; valid until the next call on the group …
	Buffer   Buffer // … or for as long as the caller keeps this alive by its own means; nil: for ever
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
	NoFailure   Failure = iota
	LockExpired         // neither settled nor extended in time
	Nacked              // the consumer asked for another attempt
	Rejected            // the consumer asked for no other attempt
)

// String is the reason code written to a dead letter.
func (f Failure) String() string {
	switch f {
	case LockExpired:
		return "lock_expired"
	case Nacked:
		return "nack"
	case Rejected:
		return "rejected"
	}
	return ""
}

// Dead is a message on its way to the dead letter queue.
type Dead struct {
	Share    *Share
	Seq      core.Seq
	Attempts uint16
	Failure  Failure // the last one
	Text     string  // what the consumer said, ≤ MaxReason bytes
	Session  SessionID
	Enqueued int64  // unix µs
	Record   []byte // encoded; valid until DeadLettered or DeadFailed of this message
}

// Depth counts messages of a share or a group; together they are what was read and not settled.
type Depth struct {
	Ready     int   // could be handed out now: first deliveries, and retries (their count saved or about to be)
	InFlight  int   // locked by a consumer
	Delayed   int   // waits after a nack
	Dying     int   // on its way to the dead letter queue
	Blocked   int   // exhausted in a group that blocks
	OldestRdy int64 // enqueue time, unix µs, of the oldest ready message by extent order; 0 = none
}

// Counters only grow.
type Counters struct {
	Delivered   uint64 // attempts handed out
	Redelivered uint64 // of those, attempts after the first
	Acked       uint64
	Nacked      uint64
	Expired     uint64 // locks that ran out
	Rejected    uint64
	Returned    uint64
	Dead        uint64 // dead-lettered
	Dropped     uint64 // exhausted in a group that drops
}

// ---- group ----

// NewGroup makes the group of a spec that has its defaults. The fields Delay, SkipOlder and NoSmartRetry are not honoured
// here; Start decides what State a share begins with. A group on a dead letter queue is given ExhaustedBlock.
func NewGroup(spec core.GroupSpec) *Group { panic("unwritten") }

// Update changes the rules from now on. Locks that run keep their deadline; messages blocked under the old rules are
// judged again.
func (g *Group) Update(spec core.GroupSpec, now time.Time) { panic("unwritten") }

// AddShare begins (or resumes) an extent from state; the zero State begins at seq 1. Remaining locks and delays of the
// state are honoured. The extent must not have a share yet.
func (g *Group) AddShare(extent core.ExtentID, state State, now time.Time) *Share { panic("unwritten") }

// RemoveShare forgets the share and releases its buffers. Take the final checkpoint before.
func (g *Group) RemoveShare(s *Share) { panic("unwritten") }

// Take hands out what the credit allows and appends it to runs: shares in turn, retries and first deliveries mixed,
// messages contiguous in a batch as one run. Each is locked until now + lock timeout. Attempts count here.
func (g *Group) Take(session SessionID, credit Credit, now time.Time, runs []Run) []Run {
	panic("unwritten")
}

// Ready reports whether Take has something to hand out.
func (g *Group) Ready() bool { panic("unwritten") }

// Tick applies every deadline up to now: locks expire, delays end, failed dead letters are offered again.
func (g *Group) Tick(now time.Time) { panic("unwritten") }

// NextDeadline is when Tick has something to do next; ok is false while nothing waits.
func (g *Group) NextDeadline() (at time.Time, ok bool) { panic("unwritten") }

// TakeDead appends up to most messages (≥ 0) that are to be appended to the dead letter queue. Each is yielded once;
// answer with DeadLettered or DeadFailed.
func (g *Group) TakeDead(most int, dead []Dead) []Dead { panic("unwritten") }

// Depth sums over the shares.
func (g *Group) Depth() Depth { panic("unwritten") }

// Counters are those of all shares, removed ones too.
func (g *Group) Counters() Counters { panic("unwritten") }

// ---- share ----

// Extent is what the share reads.
func (s *Share) Extent() core.ExtentID { panic("unwritten") }

// ReadFrom is the first seq the share lacks: where to (re)open the reader. It skips what is known to be done.
func (s *Share) ReadFrom() core.Seq { panic("unwritten") }

// WantsMore reports whether the share takes another batch: false at a limit.
func (s *Share) WantsMore() bool { panic("unwritten") }

// ReadCredit is how many bytes of batches the share takes now. The reader subtracts what it asked for before and has
// not offered yet. 0 when WantsMore is false.
func (s *Share) ReadCredit() int { panic("unwritten") }

// Offer gives the share the next batch. It must begin at or before ReadFrom (else CodeGap; nothing is taken and the
// buffer stays the caller's); what the share already has of it, or is done, is skipped. A batch of nothing new is
// released at once.
func (s *Share) Offer(r Records, now time.Time) error { panic("unwritten") }

// Ack settles count messages from base, delivered to a session under attempt: any attempt handed out so far will do,
// however late, until the message is settled. What is refused (CodeStale: settled before, or never handed out) is
// appended to bad, the rest is applied.
func (s *Share) Ack(base core.Seq, count uint32, attempt uint16, now time.Time, bad []Refusal) []Refusal {
	panic("unwritten")
}

// AckProven settles one message whose delivery, by any owner in the current epoch, the caller has verified (an ack token,
// a forwarded ack): also one this owner has not read or handed out yet. It reports false when it was settled before.
func (s *Share) AckProven(seq core.Seq, now time.Time) bool { panic("unwritten") }

// Nack fails the current delivery of a message: it comes back after delay (at most core.MaxNackDelay), or if delay < 0
// after the group's backoff, which random in [0, 1) jitters. After the last attempt it is exhausted instead. Text is
// copied. CodeStale unless attempt is the current, locked delivery.
func (s *Share) Nack(seq core.Seq, attempt uint16, delay time.Duration, text []byte, random float64, now time.Time) error {
	panic("unwritten")
}

// Reject sends the message of the current delivery to its end (core.Exhausted) at once. CodeStale like Nack.
func (s *Share) Reject(seq core.Seq, attempt uint16, text []byte, now time.Time) error {
	panic("unwritten")
}

// Extend moves the lock of the current delivery to now + d (d ≤ core.MaxLockTimeout), also earlier. CodeStale like Nack.
func (s *Share) Extend(seq core.Seq, attempt uint16, d time.Duration, now time.Time) error {
	panic("unwritten")
}

// Return takes back current deliveries that no application saw: they are ready again under the same attempt number.
// Refused ones (CodeStale) are appended to bad.
func (s *Share) Return(base core.Seq, count uint32, attempt uint16, now time.Time, bad []Refusal) []Refusal {
	panic("unwritten")
}

// DeadLettered settles a message that TakeDead yielded: the dead letter queue has it durably.
func (s *Share) DeadLettered(seq core.Seq, now time.Time) { panic("unwritten") }

// DeadFailed keeps a message that TakeDead yielded until retryAt, when TakeDead yields it again.
func (s *Share) DeadFailed(seq core.Seq, retryAt, now time.Time) { panic("unwritten") }

// Unsaved is how many retries wait for a checkpoint to hold their count. While it is not 0, save a checkpoint soon.
func (s *Share) Unsaved() int { panic("unwritten") }

// Changed reports whether anything changed since the last Checkpoint: whether one is due within the second.
func (s *Share) Changed() bool { panic("unwritten") }

// Checkpoint appends the share's state to dst, at most MaxCheckpoint bytes, and returns a token for Saved. It counts the
// next attempt of every retry that waits or is ready as handed out, since it may be right after; final says that nothing
// will be handed out after it (the owner hands the share over), and records the plain truth.
func (s *Share) Checkpoint(dst []byte, final bool, now time.Time) (blob []byte, token uint64) {
	panic("unwritten")
}

// Saved says that the checkpoint of token is durable: what waited for it may be handed out. A checkpoint that could not
// be saved needs no call; a later one covers it.
func (s *Share) Saved(token uint64) { panic("unwritten") }

// Full reports whether the last checkpoint was so crowded that details were left out: the share then neither reads nor
// begins new messages until a later one has room.
func (s *Share) Full() bool { panic("unwritten") }

// Frontier is the ack level: every seq up to it is settled.
func (s *Share) Frontier() core.Seq { panic("unwritten") }

// Done reports whether the group is through with an extent whose last seq is last.
func (s *Share) Done(last core.Seq) bool { panic("unwritten") }

// Depth counts the share's messages.
func (s *Share) Depth() Depth { panic("unwritten") }

// ---- state ----

// DecodeState reads a checkpoint's blob: CodeCorrupt on damage, CodeNewerFormat for a later version.
func DecodeState(blob []byte) (State, error) { panic("unwritten") }

// StartAfter is the state of a share that begins after seq: everything up to it is done.
func StartAfter(seq core.Seq) State { panic("unwritten") }

// Merge joins what another owner of the same extent saved: the union of what is done, the highest attempts, the latest
// deadlines.
func (st *State) Merge(o State) { panic("unwritten") }
