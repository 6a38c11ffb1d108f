package dispatch

import (
	"bytes"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// crash forgets everything but the durable checkpoint, or hands the share over by a final one.
func (m *machine) crash(t *rapid.T) {
	if rapid.Bool().Draw(t, "handover") {
		m.durable, _ = m.s.Checkpoint(nil, true, m.now)
	}
	m.g.RemoveShare(m.s)
	for _, d := range m.lent {
		if !bytes.Equal(d.Record, payload(d.Seq)) {
			t.Fatalf("the record of %d changed when the share was removed", d.Seq)
		}
		m.dead[d.Seq] = m.dead[d.Seq] || rapid.Bool().Draw(t, "appended")
		d.Share.Transferred(d.Seq, m.now)
	}
	for _, p := range m.parks {
		if !bytes.Equal(p.Record, payload(p.Seq)) {
			t.Fatalf("the record of %d changed when the share was removed", p.Seq)
		}
		p.Share.Transferred(p.Seq, m.now)
	}
	m.lent, m.parks = nil, nil
	m.leaks(t)
	m.start(t)
}

func (m *machine) start(t *rapid.T) {
	var st State
	if m.durable != nil {
		var err error
		if st, err = DecodeState(m.durable); err != nil {
			t.Fatal(err)
		}
	}
	m.g = NewGroup(m.spec)
	m.g.mostFailed = int32(m.mostFailed)
	if m.timers != nil {
		st.Cancel(&m.cancels.called, m.cancels.kept)
		m.s = m.g.AddTimers(core.ExtentID{}, st, m.now)
		m.resumeWithheld(t)
	} else {
		m.s = m.g.AddShare(core.ExtentID{}, st, m.now)
	}
	m.skipped, m.lapsed, m.notCounted = 0, 0, m.s.allNotCounted()
	m.open = m.g.breaker.isOpen()
	m.nacks, m.paces = map[SessionID]int{}, map[SessionID]*paceModel{}
	m.unsent, m.fates = nil, map[core.Seq]*fate{}
	for seq := core.Seq(1); seq <= m.written; seq++ {
		if st.done.Done(seq) {
			m.fate(seq).over = true
			continue
		}
		if e, ok := st.messages[seq]; ok {
			f := m.fate(seq)
			f.attempts, f.begun, f.replaced, f.spent = int(e.attempts), true, e.metadata != "", int(e.unsure)
			switch e.kind {
			case kindLocked:
				f.locked, f.until, f.unsure = true, time.UnixMilli(e.due), !e.held
			case kindWaiting:
				f.until = time.UnixMilli(e.due)
				f.leaves = f.replaced || f.until.Sub(m.now) > RetryQueueAfter
				if m.counted(seq) >= m.spec.MaxDeliveries {
					m.failed(seq, time.Time{}, false)
				}
			case kindBlocked:
				m.failed(seq, time.Time{}, e.failure == Rejected)
			default:
				if e.to == RetryQueue {
					f.until, f.leaves, f.away = time.UnixMilli(e.due), true, true
					break
				}
				expired := e.reason.expired()
				if f.dying = m.spec.Exhausted == core.ExhaustedDLQ || expired && m.spec.Expired == core.ExpiredDLQ; f.dying {
					f.rejected, f.letter = e.failure == Rejected, !e.held
				} else {
					delete(m.dead, seq) // the policy was changed in between
					f.letter = !e.held  // should it be changed back, that is not forgotten
					if f.over = e.failure == Expired; !f.over {
						m.failed(seq, time.Time{}, e.failure == Rejected)
					}
				}
			}
		}
	}
	m.displacedNow(t)
	m.allowed = max(m.mostFailed, m.s.failedMessages()) // locks of the owner before
}

// leaks checks that a share that was removed, or settled everything, holds no buffer.
func (m *machine) leaks(t *rapid.T) {
	for i, b := range m.buffers {
		if b.released != 1 {
			t.Fatalf("buffer %d was released %d times", i, b.released)
		}
	}
	m.buffers = nil
}

func (m *machine) check(t *rapid.T) {
	if err := m.g.check(); err != nil {
		t.Fatal(err)
	}
	m.open = m.g.breaker.isOpen()
	m.sees(t)
	blocked := 0
	for _, f := range m.fates {
		if f.blocked {
			blocked++
		}
	}
	if got := m.g.Depth().Blocked; got != blocked {
		t.Fatalf("%d are blocked, want %d", got, blocked)
	}
	if m.timers != nil {
		m.checkKnown(t)
	}
	m.bounded(t)
	for seq := core.Seq(1); seq <= m.written; seq++ {
		f, done := m.fate(seq), m.s.done.Done(seq)
		if done && !f.over && !f.begun && m.tooOld(f) {
			f.over = true
			m.skipped++
		}
		if done && !f.over && !f.locked && !f.dying && !f.blocked && f.lapsed(m.now) {
			f.over = true
			m.lapsed++
		}
		if x := m.s.table.get(seq); x != nil && x.failure == Expired && !f.dying {
			if !f.lapsed(m.now) || f.locked || f.over || m.spec.Expired != core.ExpiredDLQ {
				t.Fatalf("seq %d is on its way to the dead letters since it expired: %+v", seq, f)
			}
			f.dying = true
			m.lapsed++
		}
		if f.over != done {
			t.Fatalf("seq %d done: %v, want %v", seq, done, f.over)
		}
	}
	if c := m.g.Counters(); c.Skipped+c.Expired != m.skipped+m.lapsed || c.Skipped > m.skipped {
		t.Fatalf("%d skipped, %d expired, counted %d, %d", m.skipped, m.lapsed, c.Skipped, c.Expired)
	}
	if l, ok := m.s.supply.(*logSupply); ok && l.n > 0 {
		l.skip()
		if first := m.fate(max(l.cursor, (*l.batches.front()).first)); !first.over && !first.begun && m.tooOld(first) {
			t.Fatalf("a message of %s is not skipped", m.now.Sub(first.appended))
		}
	}
}

// drain settles everything and expects nothing to be left.
func (m *machine) drain(t *rapid.T) {
	for len(m.lent) > 0 {
		m.buried(t)
	}
	for len(m.parks) > 0 {
		m.parked(t)
	}
	m.spec.Exhausted = core.ExhaustedDrop
	m.g.Update(m.spec, m.now)
	m.releaseWithheld()
	if m.timers != nil {
		m.offerAllDue(t)
	}
	for round := 0; m.s.outstanding() > 0; round++ {
		if round > 100*m.spec.MaxDeliveries {
			t.Fatalf("stuck: %+v, %v", m.s.Depth(), m.g.check())
		}
		m.s.AckProven(m.s.next-1, m.now) // so that the breaker closes
		m.now = m.now.Add(20 * time.Second)
		m.g.Tick(m.now)
		m.g.Want(unlimited, true)
		blob, token := m.s.Checkpoint(nil, false, m.now)
		m.durable = blob
		m.s.Saved(token)
		if from := m.s.ReadFrom(); m.s.missing > 0 && m.timers == nil {
			b := &counted{}
			m.buffers = append(m.buffers, b)
			if err := m.s.Offer(records(from, 20, b), m.now); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range m.g.TakeTransfers(DeadLetterQueue, 100, nil) {
			m.s.Transferred(d.Seq, m.now)
		}
		for _, p := range m.g.TakeTransfers(RetryQueue, 100, nil) {
			m.s.Transferred(p.Seq, m.now)
		}
		for _, r := range m.g.Take(1, Credit{Messages: 1000, Bytes: 1 << 20}, m.now, nil) {
			if bad := r.Share.Ack(r.Base, r.Count, r.Attempt, m.now, nil); bad != nil {
				t.Fatalf("refused: %v", bad)
			}
		}
	}
	last := m.s.next - 1
	if m.timers != nil {
		last = m.written
	}
	if !m.s.Done(last) || m.s.Unread(last) != 0 || len(m.s.table.chunks) != 0 || m.s.table.noted != 0 {
		t.Fatalf("all is settled, but frontier %d of %d, %d chunks, %d notes", m.s.Frontier(), last, len(m.s.table.chunks), m.s.table.noted)
	}
	m.leaks(t)
}

// A checkpoint taken while nobody wants messages replaces one that counts a retry's next attempt: that attempt is not
// durable then.
func TestCheckpoint_ReplacedBeforeItWasSaved(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 1)
	take(g, 1, start)
	if err := s.Nack(1, 1, 0, nil, 0, start); err != nil {
		t.Fatal(err)
	}
	s.Checkpoint(nil, false, start)
	g.Want(Credit{}, false)
	save(s, start)
	g.Want(unlimited, true)
	want(t, "before its count is durable", take(g, 1, start))
	save(s, start)
	want(t, "after", take(g, 1, start), "1+1@2")
}
