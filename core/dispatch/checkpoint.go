package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// Checkpoint appends the share's state to dst, at most MaxCheckpoint bytes, and returns a token for Saved. It counts
// the next attempt of every retry for which there is credit as handed out, since it may be right after (a first
// attempt, of what was returned unseen, is not counted: it may be forgotten); see Want. final says that nothing will be
// handed out, and no transfer taken, after it (the owner hands the share over), and records the plain truth. It is
// Draft, Encode and Conclude in one.
func (s *Share) Checkpoint(dst []byte, final bool, now time.Time) (blob []byte, token uint64) {
	d := s.Draft(final, now)
	blob = d.Encode(dst)
	s.Conclude(d)
	return blob, d.token
}

// Draft is the content of a checkpoint. The share may go on meanwhile: Encode reads nothing of the share.
type Draft struct {
	token    uint64
	policies policyStates
	covers   covers
	done     *acklevel.Window // not the share's own
	entries  []entry          // by chunk
	chunks   []draftChunk
	fitted   fitted
}

// draftChunk are the entries that begin in a chunk.
type draftChunk struct {
	key      uint64
	from, to int
}

// Token is what Saved takes once the checkpoint is durable.
func (d *Draft) Token() uint64 { return d.token }

// Draft makes the content of a checkpoint of now: see Checkpoint. Conclude has to follow before the next Draft.
func (s *Share) Draft(final bool, now time.Time) *Draft {
	t := s.group.at(now)
	s.group.settleGiven()
	s.token++
	s.touch()
	if s.group.paused {
		s.uncount()
	} else if !final {
		s.group.claimRetries()
	}
	s.changed, s.final = false, final
	d := &Draft{token: s.token, policies: s.group.policies, covers: s.covers}
	if s.group.atMostOnce() {
		if final {
			s.unclaim()
		}
		d.done = s.claimed(!final && !bool(s.group.paused))
	} else {
		d.done = s.done.Clone()
	}
	s.announce()
	d.entries, d.chunks = s.draftEntries(final, t)
	if s.weight != nil { // what fails from here on is not in it
		s.weight.failures, s.weight.last = 0, failed{}
	}
	counts := !bool(s.group.paused) && !(final && s.group.atMostOnce())
	for i := range s.pending.all() {
		switch p := &s.pending.all()[i]; {
		case !counts:
			p.token = 0
		case p.token == 0:
			p.token = s.token
		}
	}
	return d
}

// Encode appends the checkpoint to dst, in as much detail as there is room for. It needs no lock.
func (d *Draft) Encode(dst []byte) []byte {
	d.fitted = fit(dst, &d.policies, d.covers, d.done, inOrder(d.entries, d.chunks))
	d.entries, d.chunks = nil, nil
	return d.fitted.blob
}

// inOrder are entries in the order of seqs.
func inOrder(entries []entry, chunks []draftChunk) []entry {
	slices.SortFunc(chunks, func(a, b draftChunk) int { return cmp.Compare(a.key, b.key) })
	out := make([]entry, 0, len(entries))
	for _, c := range chunks {
		for _, e := range entries[c.from:c.to] {
			out = join(out, e)
		}
	}
	return out
}

// Conclude tells the share what Encode has put into the checkpoint: there may have been no room for all of the draft.
func (s *Share) Conclude(d *Draft) {
	f := &d.fitted
	if s.gone {
		return
	}
	s.touch()
	s.weigh(f.needed, d.done)
	s.cut = false
	if f.level == cutShort {
		s.change() // the next one may have room for the rest
		s.retract(f.written)
		s.retractClaims(f.written)
	}
	s.rest()
	s.wake()
}

// draftEntries lists the messages to be saved, in the order of seqs within a chunk, those alike and in a row as one.
func (s *Share) draftEntries(final bool, now int64) (out []entry, chunks []draftChunk) {
	intent := milli(now + int64(s.group.spec.LockTimeout))
	out, chunks = make([]entry, 0, max(64, len(s.table.chunks))), make([]draftChunk, 0, len(s.table.chunks))
	s.table.eachChunk(func(key uint64) {
		if n := len(chunks); n > 0 {
			chunks[n-1].to = len(out)
		}
		chunks = append(chunks, draftChunk{key: key, from: len(out)})
	}, func(seq core.Seq, count int, m *message, x note) {
		e := entry{first: seq, count: uint32(count), attempts: m.attempts, failure: m.failure}
		if m.failure != NoFailure {
			e.text = x.text
		}
		e.notCounted, e.unsure = x.uncounted.attempts, x.uncounted.unsure
		if x.transfer != nil {
			e.metadata = string(x.transfer.metadata)
		}
		switch m.phase {
		case inFlight:
			e.kind, e.due = kindLocked, milli(m.due)
			e.firstTry, e.held = m.attempts == 1, final && !x.uncounted.now
		case delayed:
			e.kind, e.due = kindWaiting, milli(m.due)
		case isolated, unclaimed: // its next attempt is not counted yet
			e.kind = kindWaiting
		case unsaved, ready:
			switch {
			case m.attempts == 0: // returned unseen: as if it had never been handed out
			case final || bool(s.group.paused):
				e.kind = kindWaiting
			default:
				e.kind, e.due = kindLocked, intent
				e.attempts = saturate(m.attempts)
			}
		case leaving, announced, transferring, appending, held:
			x.transfer.entry(m, final, &e)
		default: // blocked
			e.kind = kindBlocked
			if x := x.transfer; x != nil && x.mayBeThere { // the group had other rules before
				e.kind, e.to, e.reason, e.leaves = kindTransferring, x.to, x.reason, true
			}
		}
		if e.attempts > 0 || e.kind == kindTransferring { // one that expired unseen had none
			out = joinFrom(out, chunks[len(chunks)-1].from, e)
		}
	})
	if n := len(chunks); n > 0 {
		chunks[n-1].to = len(out)
	}
	return out, chunks
}

// State is what the share's last checkpoint would hold if it were given away now, in full.
func (s *Share) State(now time.Time) State {
	s.group.settleGiven()
	st := State{policies: s.group.policies, told: true, covers: s.covers, done: *s.done.Clone(), messages: map[core.Seq]entry{}}
	for _, e := range inOrder(s.draftEntries(true, s.group.at(now))) {
		first, count := e.first, e.count
		e.first, e.count, e.firstTry, e.leaves = 0, 0, false, false
		for i := range core.Seq(count) {
			st.messages[first+i] = e
		}
	}
	return st
}

// Saved says that the checkpoint of token is durable: what waited for it may be handed out. A checkpoint that could not
// be saved needs no call; a later one covers it.
func (s *Share) Saved(token uint64) {
	s.saved = max(s.saved, token)
	s.touch()
	s.savedTransfers(token)
	s.pending.filter(func(p *saving) bool {
		if p.token == 0 || p.token > token {
			return true
		}
		if m := s.table.get(p.seq); m != nil && m.phase == unsaved {
			s.move(p.seq, m, ready)
			if m.batch != nil && !s.group.isolation.isNext(s, p.seq) {
				s.queueReady(p.seq, m)
			}
		}
		return false
	})
	s.wake()
}

// restore puts the messages of a state where they stand.
func (s *Share) restore(st State) {
	for _, seq := range slices.Sorted(maps.Keys(st.messages)) {
		if s.done.Done(seq) {
			continue
		}
		e := st.messages[seq]
		m := s.table.put(seq)
		s.missing++
		s.top = max(s.top, seq)
		m.attempts, m.failure = e.attempts, e.failure
		s.setUncounted(seq, uncounted{e.notCounted, e.unsure, e.kind == kindLocked && !e.held})
		if e.text != "" && e.failure != NoFailure {
			s.setText(seq, e.text)
		}
		if e.metadata != "" {
			s.setMetadata(seq, []byte(e.metadata))
		}
		switch e.kind {
		case kindLocked:
			m.session = EarlierSession
			m.due = e.due * int64(time.Millisecond)
			s.move(seq, m, inFlight)
			s.group.wakeAt(s, seq, m.due)
		case kindWaiting:
			if s.exhausted(seq, m) { // max deliveries was lowered since
				s.judge(seq, m, 0)
				continue
			}
			s.judge(seq, m, max(e.due*int64(time.Millisecond), 1))
		case kindTransferring:
			s.resumeTransfer(seq, m, e)
		default: // blocked
			s.judge(seq, m, 0)
		}
	}
}

const (
	// fullAt is how large a checkpoint may become by first deliveries. The rest of MaxCheckpoint is for what is there
	// then: it goes on to fail, and to be acked between others.
	fullAt = MaxCheckpoint * 3 / 4
	// fullOf is what entries may take of that, however large the window is. A selection may take so many scattered
	// messages out of an extent that the window has fullAt bytes before anything is delivered. It shrinks only as messages
	// are, so a share that counts as full by its window would stand still.
	fullOf = 4 << 10
	// entryMost is the size of an entry, in the least detail that a share should come to; of most it is less.
	entryMost = 12
)

// weight is how much a share adds to its checkpoints, as far as it is known without writing one.
type weight struct {
	entries  int // bytes of the entries of the last checkpoint
	failures int // since then, that may make one more entry each
	last     failed
}

// failed is what tells the entries of two messages that failed one after the other apart.
type failed struct {
	seq      core.Seq
	due      int64 // ms
	attempts uint16
	phase    phase
	failure  Failure
}

// weigh takes note of what a checkpoint needs for entries, and finds out whether it has room for more.
func (s *Share) weigh(needed int, done *acklevel.Window) {
	if s.weight == nil && needed == 0 {
		s.full = false
		return
	}
	if s.weight == nil {
		s.weight = new(weight)
	}
	s.weight.entries = needed
	if s.full = s.crowded(); s.full { // to the estimate: so exactly
		window, _ := done.Append(nil)
		s.full = needed >= fullOf && len(window)+needed >= fullAt
	}
}

// crowded reports whether the next checkpoint may need fullAt bytes, to the estimate: without texts and metadata, and
// without the locks of first attempts, since it does without those.
func (s *Share) crowded() bool {
	n := s.table.n - s.of(inFlight, handed) + int(s.repeats)
	entries := min(n*entryMost, s.weight.entries+s.weight.failures*entryMost)
	return entries >= fullOf && s.done.SizeMost()+entries >= fullAt
}

// weighs notes that a message has failed.
func (s *Share) weighs(seq core.Seq, m *message) {
	if m.phase == none { // it was settled
		return
	}
	if s.weight == nil {
		s.weight = &weight{entries: MaxCheckpoint} // not known: then the number of messages tells
	}
	before, now := s.weight.last, failed{seq, milli(m.due), m.attempts, m.phase, m.failure}
	s.weight.last = now
	if before.seq++; before == now { // one entry tells of both
		return
	}
	s.weight.failures++
	s.full = s.full || s.crowded()
}
