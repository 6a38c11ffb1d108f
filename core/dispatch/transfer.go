package dispatch

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// A message that ends here, or that waits for long, is transferred to a built-in queue of its group: the dead letter
// queue, or the retry queue. A transfer has three steps, so that a crash of the owner between any two makes neither two
// copies of the message nor another delivery of it here:
//
//  1. Intent. A durable checkpoint says that the message leaves. From then on no later owner hands it out.
//  2. Append. The message is appended to the queue. An append whose outcome is not known, or that an earlier owner may
//     have made, is looked for there before it is repeated (Transfer.Again).
//  3. Settle. The message is done where it was.
//
// The phases of a transfer:
//
//	phase         waits for                                  ends with          then
//	leaving       a checkpoint that says that it leaves      Checkpoint         announced, or leaving if there was no room
//	announced     that checkpoint to be durable              Saved              transferring
//	transferring  its bytes, and to be taken                 TakeTransfers      appending
//	appending     the outcome of the append                  Transferred        done
//	                                                         TransferFailed     held
//	held          the time to try again                      Tick at due        transferring
//
// A message is handed out from here after all, as a retry, where the rules of its destination allow that: see route. An
// ack settles it until it is appended, see tooLate. A message that expires on its way to the retry queue ends like
// others.

// transfer is what is kept of a message that leaves, or whose metadata are to be replaced.
type transfer struct {
	to         Destination
	reason     Reason
	mayBeThere bool   // an append of it to the destination may have come to pass
	displaced  bool   // it leaves although it waits for less long, and the retry queue has not refused it; see MaxFailed
	due        int64  // ns: when it may be handed out again; 0: never
	deliverAt  int64  // unix ms: the same as it is appended, by the wall clock as that was when a checkpoint said that it leaves
	failed     int64  // ns: when it failed, and began to leave
	appended   int64  // ns: when an append of unknown outcome ended first; 0: none did here
	certain    int64  // ns: with mayBeThere, from then on no append of it is under way
	number     uint64 // which transfer of the share to there it is
	token      uint64 // of the checkpoint that says that it leaves, in phase announced
	metadata   []byte // in place of its own; nil: it keeps those
}

// transfers is what a share knows of its messages that leave for one destination.
//
//	leaving + underWay == messages in a phase of a transfer to there
type transfers struct {
	waiting   queue[begun] // phase leaving, in the order in which they began to leave; others are skipped
	announced queue[begun] // phase announced, by rising tokens; others are skipped
	begun     uint64       // transfers so far
	leaving   int          // in phase leaving
	underWay  int          // in the phases after it
}

// begun is a message that began to leave. It waits for nothing any more once its record has another number.
type begun struct {
	seq    core.Seq
	number uint64
}

// leaves reports whether this is a phase of a transfer.
func (p phase) leaves() bool { return p >= leaving }

// transferOf is the transfer of a message, made if need be.
func (s *Share) transferOf(seq core.Seq) *transfer {
	if s.transfers == nil {
		s.transfers = new([Destinations]transfers)
	}
	n := s.table.note(seq)
	if n.transfer == nil {
		n.transfer = new(transfer)
		s.table.setNote(seq, n)
	}
	return n.transfer
}

// tally counts n messages in a phase of a transfer.
func (s *Share) tally(to Destination, p phase, n int) {
	if p == leaving {
		s.transfers[to].leaving += n
	} else {
		s.transfers[to].underWay += n
	}
}

// onTheirWay is how many messages leave for a destination.
func (s *Share) onTheirWay(to Destination) int {
	if s.transfers == nil {
		return 0
	}
	return s.transfers[to].leaving + s.transfers[to].underWay
}

// destinations bounds those that messages of the share may leave for.
func (s *Share) destinations() Destination {
	if s.transfers == nil {
		return 0
	}
	return Destinations
}

// step moves a message to a phase of its transfer.
func (s *Share) step(seq core.Seq, m *message, x *transfer, to phase) {
	if m.phase.leaves() {
		s.tally(x.to, m.phase, -1)
	}
	s.tally(x.to, to, 1)
	s.move(seq, m, to)
}

// withdraw ends the transfer of a message that is here only. The caller gives it its next phase.
func (s *Share) withdraw(seq core.Seq, m *message) {
	n := s.table.note(seq)
	x := n.transfer
	s.tally(x.to, m.phase, -1)
	s.move(seq, m, none)
	if *x = (transfer{metadata: x.metadata}); x.metadata == nil {
		n.transfer = nil
		s.table.setNote(seq, n)
	}
}

// enqueue has a message wait for TakeTransfers: that it leaves is durable.
func (s *Share) enqueue(seq core.Seq, m *message, x *transfer) {
	s.step(seq, m, x, transferring)
	if m.batch != nil {
		s.group.transfers[x.to].push(messageRef{s, seq})
	}
}

// read takes note that the bytes of a message in phase transferring came.
func (s *Share) read(seq core.Seq) {
	s.group.transfers[s.table.note(seq).transfer.to].push(messageRef{s, seq})
}

// keepUntil keeps a message until due, and then has it wait for TakeTransfers again.
func (s *Share) keepUntil(seq core.Seq, m *message, x *transfer, due int64) {
	m.due = due
	s.step(seq, m, x, held)
	s.group.wakeAt(s, seq, due)
}

const (
	transfersAtOnce = 2048
	// TransferDoubt is for how long an append whose outcome is not known can still come to pass. A message is not
	// appended again before that: an earlier look-up may miss it, and then the queue would have it twice. See adr/0040
	// for its parts.
	TransferDoubt = time.Minute
	// retryPause is before a transfer that failed is tried again, whatever its caller says: the callers' clock may be
	// behind that of the group.
	retryPause = 10 * time.Millisecond
)

// route is what differs between the destinations.
type route struct {
	// atOnce is how many messages of a share are between the first step and the last. So many fit into every
	// checkpoint.
	atOnce int
	// early: a message that may be there is looked for at once, too, and not only after TransferDoubt.
	early bool
	// patience is for how long a message stays leaving while nothing has succeeded since it failed: when the breaker
	// opens meanwhile, the attempt does not count. One for the retry queue stays only while others failed, too, and
	// what is appended says that the attempt does not count; a dead letter stays only if it is exhausted.
	patience time.Duration
	// returns: while the message is here only, it is handed out from here when its time comes.
	returns bool
	// expires: what expires before it is appended does not go there.
	expires bool
	// recalled: a breaker that opens takes the message back while it is here only.
	recalled bool
}

var routes = [Destinations]route{
	DeadLetterQueue: {atOnce: transfersAtOnce, patience: 5 * time.Second, recalled: true},
	RetryQueue:      {atOnce: transfersAtOnce, early: true, patience: 2 * time.Second, returns: true, expires: true},
}

// wanted reports whether a group with this spec has such a message go there. One that a group does not want any more is
// judged again.
func (x *transfer) wanted(spec *core.GroupSpec) bool {
	return x.to != DeadLetterQueue || spec.Exhausted == core.ExhaustedDLQ || x.reason.expired() && spec.Expired == core.ExpiredDLQ
}

// Transfer is a message on its way to a built-in queue.
type Transfer struct {
	Share      *Share
	To         Destination
	Reason     Reason
	Of         Source
	Seq        core.Seq
	Attempts   uint16 // here: see History
	NotCounted uint16 // of these, do not count
	Unsure     uint8  // of those, since they were unsure
	Failure    Failure
	Text       string // what a consumer said last, of this or an earlier attempt, ≤ MaxReason bytes
	Metadata   []byte // in place of the record's, nil: it keeps those; not to be changed
	Session    SessionID
	Enqueued   int64     // unix µs
	Due        time.Time // to the retry queue: not before
	Returns    bool      // if it is not appended until then it is handed out from here
	Again      bool      // an append of it may have come to pass: look for it before the append is repeated
	Since      time.Time // with Again: since when it may be there; zero: since an earlier owner
	Certain    time.Time // with Again: it is not to be appended before, however often it is not found
	Record     []byte    // encoded; as it was read; valid until Transferred or TransferFailed of this message
}

// TakeTransfers appends up to most messages (≥ 0) that are to be appended to a queue. Each is yielded once; answer with
// Transferred or TransferFailed. The destinations are apart, so that a queue that takes nothing holds up no other.
func (g *Group) TakeTransfers(to Destination, most int, out []Transfer) []Transfer {
	for n := 0; n < most && g.transfers[to].len() > 0; {
		ref := g.transfers[to].pop()
		s, seq := ref.share, ref.seq
		m := s.table.get(seq)
		if m == nil || m.phase != transferring || m.batch == nil {
			continue
		}
		note := s.table.note(seq)
		x := note.transfer
		if x.to != to {
			continue
		}
		i := s.place(m.batch, seq)
		if routes[to].expires && !x.mayBeThere && s.expired(m.batch, i) { // one that may be there ends there
			s.expire(seq, m)
			continue
		}
		s.step(seq, m, x, appending)
		if s.lent == nil {
			s.lent = make(map[core.Seq]*batch)
		}
		s.lent[seq] = m.batch // another owner's settlement may end the message meanwhile
		m.batch.lent++
		t := Transfer{
			Share: s, To: to, Reason: x.reason, Of: Source{s.extent, s.returning, s.merged}, Seq: seq, Attempts: m.attempts, NotCounted: note.uncounted.attempts, Unsure: note.uncounted.unsure,
			Failure: m.failure, Text: note.text, Metadata: x.metadata, Session: m.session.known(), Enqueued: m.batch.enqueuedAt(i), Again: x.mayBeThere, Returns: x.mayReturn(), Record: m.batch.recordAt(i),
		}
		if to == DeadLetterQueue {
			t.Failure = s.diedOf(seq, m)
		}
		if x.due > 0 {
			t.Due = time.UnixMilli(x.deliverAt)
		}
		if x.appended > 0 {
			t.Since = g.instant(x.appended)
		}
		if x.mayBeThere {
			t.Certain = g.instant(x.certain)
		}
		out = append(out, t)
		n++
	}
	return out
}

// diedOf is why a message became a dead letter. When a checkpoint is crowded it does not say how an attempt failed, and
// those of earlier versions do not say that a message expired.
func (s *Share) diedOf(seq core.Seq, m *message) Failure {
	switch {
	case m.failure != NoFailure:
		return m.failure
	case s.expired(m.batch, s.place(m.batch, seq)):
		return Expired
	}
	return LockTimedOut // all that is known: it was handed out, and nobody settled it
}

// Transferred settles a message that TakeTransfers yielded: the queue has it durably. No effect if another owner
// settled it before.
func (s *Share) Transferred(seq core.Seq, now time.Time) {
	s.group.at(now)
	s.takeBack(seq)
	m := s.table.get(seq)
	if m == nil || m.phase != appending {
		return
	}
	if s.table.note(seq).transfer.to == RetryQueue {
		s.group.counters.RetryQueued++
		s.group.retryLimit().sum.ended-- // it goes on there
	} else {
		s.group.counters.Dead++
	}
	s.settle(seq, m)
	s.wake()
}

// TransferFailed keeps a message that TakeTransfers yielded until retryAt, when it is yielded again. unknown says that
// the queue may have it nevertheless, or get it yet, for TransferDoubt: a dead letter is kept for as long. One for the
// retry queue that is here only, as far as is known, is handed out from here when its time comes before, also if it was
// displaced.
func (s *Share) TransferFailed(seq core.Seq, unknown bool, retryAt, now time.Time) {
	s.group.at(now)
	s.takeBack(seq)
	m := s.table.get(seq)
	if m == nil || m.phase != appending {
		return
	}
	x := s.table.note(seq).transfer
	due := max(s.group.nanos(retryAt), s.group.now+int64(retryPause))
	if unknown {
		if !x.mayBeThere {
			x.appended = s.group.now
		}
		x.suspect(s.group.now)
	} else {
		x.displaced = false
	}
	switch {
	case x.mayReturn():
		due = min(due, x.due)
	case !routes[x.to].early:
		due = max(due, x.certain)
	}
	s.keepUntil(seq, m, x, due)
}

// suspect notes that an append of the message may have come to pass, or may yet.
func (x *transfer) suspect(now int64) {
	x.mayBeThere, x.certain = true, now+int64(TransferDoubt)
}

// mayReturn reports whether a message that leaves can as well be handed out from here.
func (x *transfer) mayReturn() bool {
	return routes[x.to].returns && !x.mayBeThere && x.metadata == nil && !x.displaced
}

// dueTransfer has a message handed out from here whose time has come before it left, or tries again what is held.
func (s *Share) dueTransfer(seq core.Seq, m *message) {
	switch x := s.table.note(seq).transfer; {
	case x.mayReturn() && x.due <= s.group.now:
		s.withdraw(seq, m)
		if s.exhausted(seq, m) { // max deliveries was lowered since
			s.judge(seq, m, 0)
			break
		}
		s.retry(seq, m)
	case m.phase == held:
		s.enqueue(seq, m, x)
	case m.due < x.due: // it has stayed for long enough
		m.due = x.due
		s.group.wakeAt(s, seq, m.due)
	}
}

// knownTransfer reports whether something will go on with a message that waits for no deadline.
func (s *Share) knownTransfer(seq core.Seq, m *message) bool {
	to := s.table.note(seq).transfer.to
	switch m.phase {
	case appending:
		return s.lent[seq] != nil
	case transferring:
		return m.batch == nil || slices.Contains(s.group.transfers[to].all(), messageRef{s, seq})
	}
	r, b := &s.transfers[to], begun{seq, s.table.note(seq).transfer.number}
	return slices.Contains(r.waiting.all(), b) || slices.Contains(r.announced.all(), b)
}
