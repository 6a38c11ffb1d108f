package dispatch

import (
	"bytes"
	"math"
	"time"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

func (m *machine) die(t *rapid.T) {
	for _, d := range m.g.TakeTransfers(DeadLetterQueue, rapid.IntRange(0, 5).Draw(t, "most"), nil) {
		f := m.fates[d.Seq]
		if f == nil || !f.dying || f.over || !bytes.Equal(d.Record, payload(d.Seq)) || int(d.Attempts) != f.attempts || d.Failure == NoFailure || d.Failure == Expired && !f.lapsed(m.now) {
			t.Fatalf("dead is %+v; %+v", d, f)
		}
		if m.dead[d.Seq] && !d.Again {
			t.Fatalf("seq %d would be a dead letter twice", d.Seq)
		}
		if st, err := DecodeState(m.durable); err != nil || !st.dies(d.Seq) {
			t.Fatalf("seq %d is to be dead-lettered, and no durable checkpoint says so: %+v, %v", d.Seq, st.messages[d.Seq], err)
		}
		f.lent = true
		m.lent = append(m.lent, d)
	}
}

// buried answers for the oldest dead letter; its record must have stayed as it was, whatever was acked meanwhile.
func (m *machine) buried(t *rapid.T) {
	if len(m.lent) == 0 {
		t.Skip("none under way")
	}
	d := m.lent[0]
	m.lent = m.lent[1:]
	if !bytes.Equal(d.Record, payload(d.Seq)) {
		t.Fatalf("the record of %d changed while it was written", d.Seq)
	}
	f := m.fate(d.Seq)
	switch outcome := rapid.SampledFrom([]string{"written", "failed", "unknown", "unknown, and written"}).Draw(t, "outcome"); {
	case outcome == "written" || m.dead[d.Seq]: // then it is found
		m.dead[d.Seq] = true
		d.Share.Transferred(d.Seq, m.now)
		f.over, f.dying = true, false
	default:
		m.dead[d.Seq] = outcome == "unknown, and written"
		f.lent, f.letter = false, f.letter || outcome != "failed"
		d.Share.TransferFailed(d.Seq, outcome != "failed", m.now.Add(time.Second), m.now)
	}
}

// want also checks that a checkpoint for nobody counts no attempt that was not handed out.
func (m *machine) want(t *rapid.T) {
	wanted := rapid.Bool().Draw(t, "wanted")
	m.g.Want(Credit{
		Messages: rapid.SampledFrom([]int{0, 1, 5, math.MaxInt}).Draw(t, "credit"),
		Bytes:    rapid.SampledFrom([]int{1, 100, math.MaxInt}).Draw(t, "bytes of credit"),
	}, wanted)
	if wanted {
		return
	}
	m.checkpoint(t)
	st, err := DecodeState(m.unsent)
	if err != nil {
		t.Fatal(err)
	}
	for seq, e := range st.messages {
		if f := m.fate(seq); int(e.attempts) > f.attempts {
			t.Fatalf("seq %d is saved with %d attempts, it had %d", seq, e.attempts, f.attempts)
		}
	}
}

// rebuild has to change nothing that can be seen, but for what has to be read again; and a watchdog never asks for it.
func (m *machine) rebuild(t *rapid.T) {
	if at, due := m.g.NextDeadline(); !due || at.After(m.now) {
		if broken := m.s.Watched(&Watch{}, 1<<20, m.now); broken != "" {
			t.Fatalf("the watchdog says that %s", broken)
		}
	}
	m.g.Rebuild(m.s, m.now)
}

func (m *machine) checkpoint(t *rapid.T) {
	m.unsent, m.token = m.s.Checkpoint(nil, false, m.now)
	if len(m.unsent) > MaxCheckpoint {
		t.Fatalf("checkpoint has %d bytes", len(m.unsent))
	}
}

// slowCheckpoint is one during which the share goes on.
func (m *machine) slowCheckpoint(t *rapid.T) {
	d := m.s.Draft(false, m.now)
	m.check(t)
	switch rapid.SampledFrom([]string{"nothing", "ack", "tick", "take"}).Draw(t, "meanwhile") {
	case "ack":
		m.ackProven(t)
	case "tick":
		m.tick(t)
	case "take":
		m.take(t)
	}
	m.unsent, m.token = d.Encode(nil), d.Token()
	m.check(t)
	m.s.Conclude(d)
	if len(m.unsent) > MaxCheckpoint {
		t.Fatalf("checkpoint has %d bytes", len(m.unsent))
	}
}

func (m *machine) saved(t *rapid.T) {
	if m.unsent == nil {
		t.Skip("no checkpoint")
	}
	m.durable = m.unsent
	m.s.Saved(m.token)
	m.unsent = nil
}

// dies reports whether a state says that a message leaves for the dead letter queue.
func (st State) dies(seq core.Seq) bool {
	e := st.messages[seq]
	return e.dies()
}
