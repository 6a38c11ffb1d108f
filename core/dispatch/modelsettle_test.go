package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// pick draws a message that was delivered and is not over, if there is one.
func (m *machine) pick(t *rapid.T, locked bool) (core.Seq, *fate) {
	var all []core.Seq
	for seq := core.Seq(1); seq <= m.written; seq++ {
		if f := m.fates[seq]; f != nil && f.attempts > 0 && !f.over && (f.locked || !locked) {
			all = append(all, seq)
		}
	}
	if len(all) == 0 {
		t.Skip("nothing delivered")
	}
	seq := rapid.SampledFrom(all).Draw(t, "seq")
	return seq, m.fates[seq]
}

// ack acknowledges a run around a delivered message, under one attempt.
func (m *machine) ack(t *rapid.T) {
	seq, f := m.pick(t, false)
	count := core.Seq(rapid.IntRange(1, 70).Draw(t, "count"))
	attempt := rapid.IntRange(1, f.attempts).Draw(t, "attempt")
	want := map[core.Seq]bool{}
	for at := seq; at < seq+count; at++ {
		if f := m.fates[at]; f != nil && f.attempts >= attempt && !f.over && !f.gone() {
			m.forgive(f.session)
			f.over, f.locked, f.dying, f.blocked, f.drops, f.leaves = true, false, false, false, false, false
		} else {
			want[at] = true
		}
	}
	bad := m.s.Ack(seq, uint32(count), uint16(attempt), m.now, nil)
	for _, b := range bad {
		for i := range b.Count {
			if at := b.Base + core.Seq(i); !want[at] || b.Code != core.CodeStale {
				t.Fatalf("ack of %d as attempt %d refused: %v; %+v", at, attempt, b.Code, m.fates[at])
			} else {
				delete(want, at)
			}
		}
	}
	if len(want) > 0 {
		t.Fatalf("acks of %v as attempt %d were not refused", want, attempt)
	}
}

func (m *machine) ackProven(t *rapid.T) {
	seq := core.Seq(rapid.IntRange(1, int(m.written)+3).Draw(t, "seq"))
	m.written = max(m.written, seq)
	f := m.fate(seq)
	if got := m.s.AckProven(seq, m.now); got == (f.over || f.gone()) {
		t.Fatalf("proven ack of %d: got %v, %+v", seq, got, *f)
	} else if !got {
		return
	}
	if !f.over && f.begun {
		m.forgive(f.session)
	}
	f.over, f.locked, f.dying, f.blocked, f.drops, f.leaves = true, false, false, false, false, false
}

// failed is what the model makes of a failed attempt.
func (m *machine) failed(seq core.Seq, until time.Time, rejected bool) {
	f := m.fate(seq)
	f.unsure, f.displaced = false, false
	f.locked, f.until, f.leaves = false, until, f.replaced || until.Sub(m.now) > RetryQueueAfter
	if rejected || m.counted(seq) >= m.spec.MaxDeliveries {
		f.until, f.leaves = time.Time{}, false
		f.over = m.spec.Exhausted == core.ExhaustedDrop
		f.dying = m.spec.Exhausted == core.ExhaustedDLQ
		f.blocked = m.spec.Exhausted == core.ExhaustedBlock
		f.rejected = rejected
		if x := m.s.table.get(seq); f.over && !rejected && x != nil && x.phase == delayed {
			f.over, f.drops, f.until = false, true, time.Unix(0, x.due)
		}
	}
}

// unwanted are the messages on their way to the dead letter queue that are not there, and are not wanted there any
// more.
func (m *machine) unwanted() (seqs []core.Seq) {
	for seq, f := range m.fates {
		if f.dying && !f.lent && !f.letter && !m.s.table.note(seq).transfer.wanted(&m.spec) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// expired is what the model makes of a lock that timed out.
func (m *machine) expired(seq core.Seq) {
	f := m.fate(seq)
	if !f.unsure || f.spent == mostUnsure {
		m.failed(seq, f.until, false)
		return
	}
	f.spent++
	if m.notCounted == nil { // no attempt was, before
		m.notCounted = map[core.Seq]uint16{}
	}
	m.notCounted[seq]++
	until := f.until
	m.failed(seq, until, false)
}

func (m *machine) nack(t *rapid.T) {
	seq, f := m.pick(t, true)
	delay := rapid.SampledFrom([]int{0, 0, 1, 2, 5, 20, 30, 31, 60, 600}).Draw(t, "delay")
	if f.replaced = rapid.IntRange(0, 9).Draw(t, "replace") == 0; f.replaced {
		if err := m.s.Replace(seq, uint16(f.attempts), []byte{byte(seq), byte(delay)}, m.now); err != nil {
			t.Fatalf("replace: %v", err)
		}
	}
	m.fail(t, seq, f, time.Duration(delay)*time.Second)
}

func (m *machine) fail(t *rapid.T, seq core.Seq, f *fate, delay time.Duration) {
	if err := m.s.Nack(seq, uint16(f.attempts)+1, 0, nil, 0, m.now); core.CodeOf(err) != core.CodeStale {
		t.Fatalf("nack of a delivery to come: %v", err)
	}
	if err := m.s.Nack(seq, uint16(f.attempts), delay, []byte("no"), 0, m.now); err != nil {
		t.Fatalf("nack: %v", err)
	}
	if !m.spec.NoNackThrottle {
		m.nacks[f.session]++
	}
	m.failed(seq, m.now.Add(delay), false)
	m.uncounted(t)
	m.displacedNow(t)
}

// outage has one worker fail all it gets, for a while.
func (m *machine) outage(t *rapid.T) {
	for range rapid.IntRange(1, 8).Draw(t, "rounds") {
		m.hand(t, 7, Credit{Messages: 40, Bytes: 10_000})
		for seq := core.Seq(1); seq <= m.written; seq++ {
			if f := m.fates[seq]; f != nil && f.locked {
				m.fail(t, seq, f, 0)
			}
		}
		m.checkpoint(t)
		m.saved(t)
		m.tick(t)
	}
}

// elsewhere has breakers of the group open and close on other hosts.
func (m *machine) elsewhere(t *rapid.T) {
	m.openings++
	opening := rapid.SampledFrom([]uint64{0, m.openings, m.openings - 1}).Draw(t, "opening")
	was, row := m.g.breaker.isOpen(), m.g.breaker.gathers()
	m.g.Elsewhere(opening, m.now)
	if opened := m.g.breaker.isOpen() && !was; opened && (opening == 0 || row == 0 || m.spec.Breaker == core.BreakerOff || m.g.Opening() > 0) {
		t.Fatalf("opening %d elsewhere, and %d failures here, opened a breaker that is set to %d, and other hosts are told of %d", opening, row, m.spec.Breaker, m.g.Opening())
	}
	m.uncounted(t)
}

func (m *machine) reject(t *rapid.T) {
	seq, f := m.pick(t, true)
	if err := m.s.Reject(seq, uint16(f.attempts), []byte("never"), m.now); err != nil {
		t.Fatalf("reject: %v", err)
	}
	m.failed(seq, time.Time{}, true)
}

func (m *machine) extend(t *rapid.T) {
	seq, f := m.pick(t, true)
	d := time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second
	if err := m.s.Extend(seq, uint16(f.attempts), d, m.now); err != nil {
		t.Fatalf("extend: %v", err)
	}
	f.unsure = f.unsure && f.until.Equal(m.now.Add(d))
	f.until = m.now.Add(d)
}

func (m *machine) giveBack(t *rapid.T) {
	seq, f := m.pick(t, true)
	if bad := m.s.Return(f.session, seq, 1, uint16(f.attempts), m.now, nil); bad != nil {
		t.Fatalf("return: %v", bad)
	}
	f.attempts--
	f.unsure = false
	f.locked, f.until = false, time.Time{}
	if f.attempts > 0 && m.counted(seq) >= m.spec.MaxDeliveries {
		m.failed(seq, time.Time{}, false)
	}
}

// pace checks what a session that only nacks was given, and has it pause.
func (m *machine) pace(t *rapid.T, session SessionID, n int) {
	if m.nacks[session] <= freeNacks || m.spec.NoNackThrottle || n == 0 {
		return
	}
	p := m.paces[session]
	if p == nil {
		p = &paceModel{}
		m.paces[session] = p
	}
	if p.taken += n; p.taken > throttledAtOnce || m.now.Before(p.until) {
		t.Fatalf("session %d got %d messages after %d nacks in a row, %d since its pause, %s before the end of one", session, n, m.nacks[session], p.taken, p.until.Sub(m.now))
	}
	if p.taken < throttledAtOnce {
		return
	}
	switch p.taken = 0; {
	case p.pause == 0:
		p.nacks, p.pause = m.nacks[session], minThrottlePause
	case m.nacks[session] >= p.nacks+throttledAtOnce:
		p.nacks, p.pause = m.nacks[session], min(2*p.pause, maxThrottlePause)
	}
	p.until = m.now.Add(p.pause)
}

// paceModel is what the model knows of a throttled session.
type paceModel struct {
	nacks int // when its pause doubled
	taken int // since the last pause
	pause time.Duration
	until time.Time
}

// forgive ends the throttling of a session that acked.
func (m *machine) forgive(session SessionID) {
	delete(m.nacks, session)
	delete(m.paces, session)
}
