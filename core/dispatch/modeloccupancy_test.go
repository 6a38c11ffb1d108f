package dispatch

import (
	"math"

	"github.com/columbamq/columba/core"
	"pgregory.net/rapid"
)

// displacedNow takes over which messages the share has displaced since the last look. It checks that each may be, and
// that none of those went whose consumer may ack late while another one could have gone.
func (m *machine) displacedNow(t *rapid.T) {
	others, waits := 0, map[core.Seq]bool{}
	for seq := core.Seq(1); seq <= m.written; seq++ {
		if m.s.displaceable(seq) != nil {
			waits[seq] = true
			if m.waits[seq] {
				others++
			}
		}
	}
	m.waits = waits
	m.s.table.eachNote(func(seq core.Seq, stands *message, n note) {
		f, x := m.fate(seq), n.transfer
		if x == nil || !x.displaced || f.leaves {
			return
		}
		if !stands.phase.leaves() || x.to != RetryQueue || f.attempts == 0 || f.over || f.dying || f.blocked || f.locked || m.spec.Exhausted == core.ExhaustedBlock {
			t.Fatalf("seq %d is displaced: %+v", seq, *f)
		}
		if stands.failure != Nacked && others > 0 {
			t.Fatalf("seq %d is displaced, whose lock timed out, and %d were nacked and wait", seq, others)
		}
		f.leaves, f.displaced = true, true
	})
}

// bounded checks that the share holds no more failed messages than it may, or than it did before.
func (m *machine) bounded(t *rapid.T) {
	m.displacedNow(t)
	n := m.s.failedMessages()
	m.s.table.each(func(seq core.Seq, x *message) {
		if x.phase == delayed && m.s.exhausted(seq, x) { // it waits for some seconds to be dropped
			n--
		}
	})
	if m.spec.Exhausted == core.ExhaustedBlock {
		m.allowed = math.MaxInt
	}
	if n > m.allowed {
		t.Fatalf("%d failed messages are held, want at most %d", n, m.allowed)
	}
	m.allowed = max(m.mostFailed, n)
}

// toRetry are the messages that leave for the retry queue: those that it refuses may exceed the bound.
func (m *machine) toRetry() map[core.Seq]bool {
	out := map[core.Seq]bool{}
	m.s.table.eachNote(func(seq core.Seq, s *message, n note) {
		if s.phase.leaves() && n.transfer.to == RetryQueue {
			out[seq] = true
		}
	})
	return out
}

// refused allows for the messages that left and that the share hands out after all.
func (m *machine) refused(before map[core.Seq]bool) {
	for seq := range before {
		if s := m.s.table.get(seq); s != nil && s.failedBefore() && m.allowed < math.MaxInt {
			m.allowed++
		}
	}
}
