package dispatch

import (
	"encoding/binary"
	"maps"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// kind is where the messages of an entry stand. Numbers are stable.
type kind uint8

const (
	kindLocked       kind = 0 // by a consumer until due
	kindWaiting      kind = 1 // not before due
	kindBlocked      kind = 2 // had its last attempt in a group that blocks
	kindTransferring kind = 3 // leaves for the queue of the entry, and may be there already; for the retry queue: not before due
)

// entry is a run of messages that a checkpoint tells the same of.
type entry struct {
	first      core.Seq
	count      uint32
	kind       kind
	to         Destination // of kindTransferring, like reason
	reason     Reason
	failure    Failure
	attempts   uint16
	notCounted uint16 // of these, that do not count; ≤ attempts
	unsure     uint8  // of those, that do not count since they were unsure; ≤ notCounted, ≤ mostUnsure
	held       bool   // when the owner gave the share away: of kindLocked, a consumer holds the message, else the attempt is unsure; of kindTransferring, it is here only
	due        int64  // unix ms
	text       string
	metadata   string // that replace the message's own
	firstTry   bool   // not written: the lock of a first attempt
	leaves     bool   // not written: whoever resumes it must not hand it out
}

// hasDue reports whether due means anything.
func (e *entry) hasDue() bool {
	return e.kind < kindBlocked || e.kind == kindTransferring && e.to == RetryQueue
}

// dies reports whether the messages leave for the dead letter queue.
func (e *entry) dies() bool { return e.kind == kindTransferring && e.to == DeadLetterQueue }

// milli is ns ≥ 0 in ms, rounded up.
func milli(ns int64) int64 {
	const ms = int64(time.Millisecond)
	return ns/ms + min(ns%ms, 1)
}

// join appends an entry, or lengthens the last one if it goes on alike.
func join(out []entry, e entry) []entry { return joinFrom(out, 0, e) }

// joinFrom is join that leaves the first from entries alone.
func joinFrom(out []entry, from int, e entry) []entry {
	if n := len(out); n > from {
		last := &out[n-1]
		next := *last
		next.first, next.count = e.first, e.count
		if last.first+core.Seq(last.count) == e.first && next == e {
			last.count += e.count
			return out
		}
	}
	return append(out, e)
}

// State is what a checkpoint holds: what is done, and where un-acked messages that were handed out stand. The zero
// State is that of an extent nobody has read yet.
type State struct {
	policies policyStates
	told     bool   // an owner told the states of policies, also of those that have none
	covers   covers // versions of other rows of which this state knows all
	done     acklevel.Window
	messages map[core.Seq]entry // first and count unused
}

// StartAfter is the state of a share that begins after seq: everything up to it is done.
func StartAfter(seq core.Seq) State {
	var st State
	st.done.AckRange(1, uint64(seq))
	return st
}

// StateDone is the state of a share in which that is done, and nothing else is known.
func StateDone(done *acklevel.Window) State { return State{done: *done.Clone()} }

// Until is what is done up to seq, and nothing else: as if nothing above it had been read, and nothing handed out.
func (st State) Until(seq core.Seq) State {
	out := StartAfter(min(st.done.Frontier(), seq))
	for r := range st.done.Ranges() {
		if r.First > seq {
			break
		}
		out.done.AckRange(r.First, uint64(min(r.Last, seq)-r.First+1))
	}
	return out
}

// Merge joins the state that another owner of the same extent saved, and of which the owner of st knew nothing: the
// union of the settled seqs, the highest attempts, the latest deadlines. If both have states of policies, those of st
// stay. See MergeSaved.
func (st *State) Merge(o State) {
	if !st.told {
		st.policies, st.told = o.policies, o.told
	}
	st.done = *st.done.Clone()
	st.done.Merge(&o.done)
	merged := make(map[core.Seq]entry, len(st.messages)+len(o.messages))
	maps.Copy(merged, st.messages)
	for seq, b := range o.messages {
		a, both := merged[seq]
		if !both {
			merged[seq] = b
			continue
		}
		if b.supersedes(a) {
			a, b = b, a
		}
		attempt := a.attempts // b knows nothing of who has a later attempt than its own
		a.attempts, a.notCounted, a.unsure = max(a.attempts, b.attempts), max(a.notCounted, b.notCounted), max(a.unsure, b.unsure)
		a.held = a.held && (b.held || b.attempts < attempt && !b.dies())
		if a.kind < kindBlocked {
			a.due = max(a.due, b.due)
		}
		merged[seq] = a
	}
	st.messages = merged
}

// supersedes reports whether an entry tells more of a message than another owner's.
func (e *entry) supersedes(o entry) bool {
	switch {
	case e.finality() != o.finality():
		return e.finality() > o.finality()
	case e.attempts != o.attempts:
		return e.attempts > o.attempts
	}
	return e.kind > o.kind && e.kind >= kindBlocked
}

// finality ranks what an entry tells: a message that may be a dead letter is one for all owners, and no attempt follows
// a rejection. Attempts do follow when a group allows more of them than when it blocked a message.
func (e *entry) finality() int {
	switch {
	case e.dies():
		return 2
	case e.kind == kindBlocked && e.failure == Rejected:
		return 1
	}
	return 0
}

// Shift moves all deadlines by d, the error of the clock of the owner that saved them. A deadline that has passed stays
// passed, and all stay in the range that a checkpoint can hold. The due time of a message on its way to a built-in
// queue stays, because the message is looked for there by that time.
func (st *State) Shift(d time.Duration) {
	for seq, e := range st.messages {
		if e.hasDue() && e.due != 0 && e.kind != kindTransferring {
			e.due = min(max(e.due+d.Milliseconds(), 1), maxDue)
			st.messages[seq] = e
		}
	}
}

// Frontier is the seq up to which everything is done.
func (st State) Frontier() core.Seq { return st.done.Frontier() }

// Consumed is how many messages are done.
func (st State) Consumed() uint64 { return uint64(st.done.Frontier()) + st.done.Above() }

// Pending is how many messages were handed out and not settled.
func (st State) Pending() int { return len(st.messages) }

// Dies reports whether any message is on its way to the dead letter queue: it may be there already.
func (st State) Dies() bool {
	for _, e := range st.messages {
		if e.dies() {
			return true
		}
	}
	return false
}

// Policy is what the owner left of a policy of its group, nil when it left nothing; see Group.SetPolicy.
func (st State) Policy(id uint8) []byte { return st.policies.get(id) }

// OwnerLease is for how long the owner of a share goes on handing out after it last asked to and was heard. Nobody else
// is given the share before OwnerGone has passed since the controller heard the owner; the difference is for what was
// decided just before the end of the lease.
const (
	OwnerLease = 2 * time.Second
	OwnerGone  = OwnerLease + 500*time.Millisecond
)

// Absorb settles the messages that another owner of the extent has settled since, or that a selection took out of the
// extent. It returns how many of them were not settled here. Absorb ignores the entries of unsettled messages in o,
// because this owner may have delivered these since. The settled messages do not count as acked, nor as a success for
// the breaker: this owner does not know how they ended, and the owner that got an ack has counted it.
func (s *Share) Absorb(o State, now time.Time) (settled uint64) {
	s.group.at(now)
	if s.gone {
		return 0
	}
	settle := func(r acklevel.Range) {
		for seq := s.done.NextUndone(r.First); seq != 0 && seq <= r.Last && seq < s.next; seq = s.done.NextUndone(seq) {
			s.settleAnywhere(seq)
			settled++
		}
		first := max(r.First, s.next) // that was not read yet, and may be restored
		if first > r.Last {
			return
		}
		fresh := uint64(0)
		for seq := first; seq <= min(r.Last, s.top); seq++ {
			if m := s.table.get(seq); m != nil {
				s.settle(seq, m)
				fresh++
			} else {
				s.supply.drop(seq)
			}
		}
		fresh += s.done.AckRange(first, uint64(r.Last-first)+1)
		settled += fresh
	}
	if f := o.done.Frontier(); f > 0 {
		settle(acklevel.Range{First: 1, Last: f})
	}
	for r := range o.done.Ranges() {
		settle(r)
	}
	if settled > 0 {
		s.change()
		s.wake()
	}
	return settled
}

// Ack settles a message that is in flight, handed out under attempt or a later one, when the state was taken. It
// reports false when it is not, or when its lock ends by until: the owner that follows decides then, and may have sent
// it on. A message that waits may leave for the retry queue there at once.
func (st *State) Ack(seq core.Seq, attempt uint16, until time.Time) bool {
	e, ok := st.messages[seq]
	if !ok || attempt == 0 || attempt > e.attempts || e.kind != kindLocked || e.due <= until.UnixMilli() || st.done.Done(seq) {
		return false
	}
	delete(st.messages, seq)
	st.done.Ack(seq)
	return true
}

// policyStates are the states of a group's policies, that of id 1 first, in their own encodings; empty: none.
type policyStates [PolicyBreaker]string

func (p *policyStates) get(id uint8) []byte {
	if id == 0 || int(id) > len(p) || p[id-1] == "" {
		return nil
	}
	return []byte(p[id-1])
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
