package dispatch

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// Place is where a message of a share is. Users see the state that core/words makes of it.
type Place string

const (
	PlaceDone          Place = "done"           // settled, in whatever way
	PlaceUnread        Place = "unread"         // not read here; of a timer extent also: not due
	PlaceBuffered      Place = "buffered"       // read, and never handed out here
	PlaceInFlight      Place = "in_flight"      // locked by a consumer
	PlaceDelayed       Place = "delayed"        // waits for its time
	PlaceRetryQueue    Place = "retry_queue"    // waits in the retry queue, or is on its way there
	PlaceUnsaved       Place = "unsaved"        // waits for a checkpoint that counts its next attempt
	PlaceReady         Place = "ready"          // may be handed out again
	PlaceIsolated      Place = "isolated"       // waits to be handed out to a consumer that holds nothing else
	PlaceDeadLettering Place = "dead_lettering" // on its way to the dead letter queue
	PlaceBlocked       Place = "blocked"        // exhausted in a group that blocks
)

var places = [phases]Place{
	inFlight: PlaceInFlight, delayed: PlaceDelayed, unclaimed: PlaceReady, unsaved: PlaceUnsaved, ready: PlaceReady,
	blocked: PlaceBlocked, handed: PlaceInFlight, isolated: PlaceIsolated,
	leaving: PlaceDeadLettering, announced: PlaceDeadLettering, transferring: PlaceDeadLettering, appending: PlaceDeadLettering, held: PlaceDeadLettering, // or retry queueing, by the destination
}

// Standing is all that a share knows of a message that is not settled.
type Standing struct {
	Seq      core.Seq
	Place    Place
	Attempts uint16 // handed out so far, the current one included
	Failure  Failure
	Text     string    // what a consumer said of it last
	Session  SessionID // that it was handed to last; 0: none, or not known
	Since    time.Time // when it was handed out, while it is in flight: by the lock, so under an earlier owner it is about right
	Until    time.Time // of its lock or delay; zero without
	Certain  time.Time // on its way to a queue that may have it: it is not appended again before; zero: it need not wait for that
	Enqueued int64     // unix µs; 0 when its bytes are not read
	Record   []byte    // encoded, nil when it is not read; valid until the next call on the group
}

// Blocking is the Standing of the message after the ack level: the one that holds the ack level back.
func (s *Share) Blocking() Standing { return s.Standing(s.done.Frontier() + 1) }

// Standing is the place of a message in the share.
func (s *Share) Standing(seq core.Seq) Standing {
	st := Standing{Seq: seq, Place: PlaceUnread}
	if s.done.Done(seq) {
		st.Place = PlaceDone
		return st
	}
	if m := s.table.get(seq); m != nil {
		s.standing(seq, m, &st)
	} else if b, i := s.supply.find(seq); b != nil {
		st.Place, st.Enqueued, st.Record = PlaceBuffered, b.enqueuedAt(i), b.recordAt(i)
		if s.returning {
			history := b.historyAt(i)
			if st.Attempts, st.Failure = history.here(), Nacked; history.LockTimedOut {
				st.Failure = LockTimedOut
			}
		}
		switch until := s.supply.until(seq); {
		case s.withheld[seq] > 0:
			st.Place = PlaceDelayed
		case until > s.group.now:
			st.Place, st.Until = PlaceDelayed, s.group.instant(until)
		}
	}
	return st
}

// placeOf is where a message is that has a phase.
func (s *Share) placeOf(seq core.Seq, m *message) Place {
	if m.phase.leaves() && s.table.note(seq).transfer.to == RetryQueue {
		return PlaceRetryQueue
	}
	return places[m.phase]
}

// standing describes a message that has a phase.
func (s *Share) standing(seq core.Seq, m *message, st *Standing) {
	st.Place, st.Attempts, st.Failure, st.Text, st.Session = s.placeOf(seq, m), m.attempts, m.failure, s.table.note(seq).text, m.session.known()
	switch {
	case m.phase == ready && s.group.isolation.isNext(s, seq):
		st.Place = PlaceIsolated
	case m.phase == unclaimed && s.group.room().messages > 0:
		st.Place = PlaceUnsaved
	}
	if b := m.batch; b != nil {
		i := s.place(b, seq)
		st.Enqueued, st.Record = b.enqueuedAt(i), b.recordAt(i)
	}
	if m.phase == inFlight || m.phase == delayed || m.phase == held {
		st.Until = s.group.instant(m.due)
	}
	if st.Place == PlaceRetryQueue {
		st.Until = s.group.instant(s.table.note(seq).transfer.due)
	}
	if x := s.table.note(seq).transfer; m.phase.leaves() && x.mayBeThere && x.certain > s.group.now {
		st.Certain = s.group.instant(x.certain)
	}
	if m.phase == inFlight {
		st.Since = s.group.instant(s.handedOut(seq, m))
	}
}

// Waits reports whether first deliveries are held back; see Wait.
func (s *Share) Waits() bool { return s.waits }

// place is where the messages of an entry are.
func (e *entry) place() Place {
	switch {
	case e.kind == kindBlocked:
		return PlaceBlocked
	case e.dies():
		return PlaceDeadLettering
	case e.kind == kindTransferring:
		return PlaceRetryQueue
	case e.kind == kindLocked:
		return PlaceInFlight
	}
	return PlaceDelayed
}

// Standing is the place of a message, as the state has it.
func (st *State) Standing(seq core.Seq) Standing {
	e, there := st.messages[seq]
	switch {
	case st.done.Done(seq):
		return Standing{Seq: seq, Place: PlaceDone}
	case !there:
		return Standing{Seq: seq, Place: PlaceUnread}
	}
	out := Standing{Seq: seq, Place: e.place(), Attempts: e.attempts, Failure: e.failure, Text: e.text}
	if e.hasDue() {
		out.Until = time.UnixMilli(e.due)
	}
	return out
}

// Unread is how many messages up to last are not settled, and were not read here. Messages restored from a checkpoint
// count, too, until they are read.
func (s *Share) Unread(last core.Seq) uint64 {
	if s.timers { // those were not read in the order of seqs
		have := uint64(s.done.Frontier()) + s.done.Above() + uint64(s.outstanding()-s.missing)
		return uint64(last) - min(have, uint64(last))
	}
	return undone(&s.done, s.next, last)
}

// Uncounted is how many messages of Unread are not in Depth. Depth has those that were restored from a checkpoint.
func (s *Share) Uncounted(last core.Seq) uint64 {
	n := s.Unread(last)
	return n - min(n, uint64(s.missing))
}

// Depth is what a share counts that resumes from the state and has read everything up to last.
func (st *State) Depth(last core.Seq, now time.Time) (d Depth) {
	d.Ready = int(undone(&st.done, 1, last))
	for seq, e := range st.messages {
		if seq > last || st.done.Done(seq) {
			continue
		}
		if e.kind != kindBlocked && (e.kind != kindLocked || e.attempts > 1) {
			d.Retries++
		}
		switch place := e.place(); {
		case place == PlaceBlocked:
			d.Blocked++
		case place == PlaceDeadLettering:
			d.DeadLettering++
		case place == PlaceRetryQueue:
			d.RetryQueueing++
		case e.due <= now.UnixMilli():
			continue
		case place == PlaceInFlight:
			d.InFlight++
		default:
			d.Delayed++
			d.Failed++
		}
		d.Ready--
	}
	return d
}

// Unbegun is how many messages from first to last are not settled and were not delivered.
func (st *State) Unbegun(first, last core.Seq) uint64 {
	n := undone(&st.done, first, last)
	for seq := range st.messages {
		if seq >= first && seq <= last && !st.done.Done(seq) {
			n--
		}
	}
	return n
}

// undone counts the seqs from first to last that are not done.
func undone(done *acklevel.Window, first, last core.Seq) uint64 {
	first = max(first, done.Frontier()+1)
	if first > last {
		return 0
	}
	return uint64(last-first) + 1 - done.Within(first, last)
}

// Depth sums over the shares.
func (g *Group) Depth() Depth {
	var sum Depth
	for _, s := range g.shares {
		d := s.Depth()
		sum.Ready += d.Ready
		sum.InFlight += d.InFlight
		sum.Delayed += d.Delayed
		sum.Kept += d.Kept
		sum.Failed += d.Failed
		sum.RetryQueueing += d.RetryQueueing
		sum.DeadLettering += d.DeadLettering
		sum.Blocked += d.Blocked
		sum.Retries += d.Retries
		if sum.OldestReady == 0 || d.OldestReady != 0 && d.OldestReady < sum.OldestReady {
			sum.OldestReady = d.OldestReady
		}
	}
	return sum
}

// Depth counts the share's messages.
func (s *Share) Depth() Depth {
	kept, withheld := s.supply.late()
	d := Depth{
		Ready:         s.supply.len() - kept - withheld + s.of(ready, unsaved, unclaimed, isolated, handed),
		InFlight:      s.of(inFlight),
		Delayed:       kept + withheld + s.of(delayed),
		Kept:          kept,
		Failed:        s.of(delayed),
		RetryQueueing: s.onTheirWay(RetryQueue),
		DeadLettering: s.onTheirWay(DeadLetterQueue),
		Blocked:       s.of(blocked),
		Retries:       s.retriesHere(),

		OldestReady: s.supply.oldest(),
	}
	older := func(seq core.Seq) bool {
		m := s.table.get(seq)
		if m == nil || m.batch == nil || m.phase != ready && m.phase != unsaved && m.phase != unclaimed && m.phase != isolated {
			return false
		}
		if since := m.batch.sinceAt(s.place(m.batch, seq)); d.OldestReady == 0 || since < d.OldestReady {
			d.OldestReady = since
		}
		return true
	}
	for _, x := range s.group.isolatedMessages() {
		if x.share == s {
			older(x.seq)
		}
	}
	_ = slices.ContainsFunc(s.retries.all(), older)
	_ = slices.ContainsFunc(s.firsts.all(), older)
	for _, x := range s.group.line.waits() {
		if x.share == s && older(x.seq) {
			break
		}
	}
	_ = slices.ContainsFunc(s.pending.all(), func(p saving) bool { return older(p.seq) })
	return d
}
