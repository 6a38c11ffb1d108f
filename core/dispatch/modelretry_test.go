package dispatch

import (
	"bytes"
	"time"

	"pgregory.net/rapid"
)

// gone reports whether an ack comes too late: the message may be in the retry queue or the dead letter queue, or was
// rejected.
func (f *fate) gone() bool {
	return f.leaves && f.away || f.dying && (f.rejected || f.lent || f.letter) || f.blocked && (f.rejected || f.letter)
}

// later has much of what is in flight nacked for later.
func (m *machine) later(t *rapid.T) {
	m.hand(t, 7, Credit{Messages: 10, Bytes: 10_000})
	m.check(t) // pick may skip the rest, and the check after it
	for range rapid.IntRange(1, 10).Draw(t, "nacks") {
		seq, f := m.pick(t, true)
		m.fail(t, seq, f, time.Duration(rapid.IntRange(31, 100).Draw(t, "seconds"))*time.Second)
	}
	if rapid.Bool().Draw(t, "save") {
		m.checkpoint(t)
	}
}

// park checks what is to be appended to the retry queue: that it leaves is durable.
func (m *machine) park(t *rapid.T) {
	m.displacedNow(t)
	for _, p := range m.g.TakeTransfers(RetryQueue, rapid.IntRange(0, 5).Draw(t, "most"), nil) {
		f := m.fates[p.Seq]
		if f == nil || !f.leaves || f.over || !bytes.Equal(p.Record, payload(p.Seq)) || int(p.Attempts) != f.attempts || f.replaced != (p.Metadata != nil) {
			t.Fatalf("parking is %+v; %+v", p, f)
		}
		if got, want := p.Due.UnixMilli(), f.until.UnixMilli(); got != want && f.until.After(m.now) {
			t.Fatalf("seq %d is parked until %s, want %s", p.Seq, p.Due, f.until)
		}
		st, err := DecodeState(m.durable)
		if e := st.messages[p.Seq]; err != nil || e.kind != kindTransferring || e.to != RetryQueue || int(e.attempts) != f.attempts {
			t.Fatalf("seq %d leaves after %d attempts, durable is %+v (%v)", p.Seq, f.attempts, e, err)
		}
		f.away = true
		m.parks = append(m.parks, p)
	}
}

// parked answers for the oldest append; its record must have stayed as it was.
func (m *machine) parked(t *rapid.T) {
	if len(m.parks) == 0 {
		t.Skip("none under way")
	}
	p := m.parks[0]
	m.parks = m.parks[1:]
	if !bytes.Equal(p.Record, payload(p.Seq)) {
		t.Fatalf("the record of %d changed while it was written", p.Seq)
	}
	f := m.fate(p.Seq)
	switch rapid.IntRange(0, 3).Draw(t, "outcome") {
	case 0, 1:
		p.Share.Transferred(p.Seq, m.now)
		f.over, f.leaves, f.away, f.displaced = true, false, false, false
	case 2:
		p.Share.TransferFailed(p.Seq, true, m.now.Add(time.Second), m.now)
	default:
		p.Share.TransferFailed(p.Seq, false, m.now.Add(time.Second), m.now)
		f.away = m.s.table.note(p.Seq).transfer.mayBeThere // of an earlier append
		f.displaced = false
	}
}

// lowered has a message end that the retry queue refused once its time has come, if max deliveries were lowered
// meanwhile.
func (m *machine) lowered() {
	for seq, f := range m.fates {
		if !f.leaves || f.away || f.replaced || f.displaced || f.until.After(m.now) || m.counted(seq) < m.spec.MaxDeliveries {
			continue
		}
		if x := m.s.table.get(seq); x == nil || !x.phase.leaves() || m.s.table.note(seq).transfer.to != RetryQueue {
			m.failed(seq, time.Time{}, false)
		}
	}
}

// takenBackNow notes what the retry queue refused and is handed out from here, since its time has come.
func (m *machine) takenBackNow() {
	for seq, f := range m.fates {
		if x := m.s.table.get(seq); x != nil && f.leaves && !f.away && !f.replaced && !f.displaced && !f.until.After(m.now) && !x.phase.leaves() {
			f.leaves = false
		}
	}
}
