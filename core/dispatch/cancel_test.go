package dispatch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"pgregory.net/rapid"
)

// cancels is what the model knows of messages that were taken back.
type cancels struct {
	called   acklevel.Window
	kept     map[core.Seq]bool // of the called ones
	withheld map[core.Seq]bool
}

// withhold withholds any message, read or not.
func (m *machine) withhold(t *rapid.T) {
	if m.timers == nil {
		t.Skip("a log")
	}
	for range rapid.IntRange(1, 10).Draw(t, "messages") {
		seq := core.Seq(rapid.IntRange(1, 150).Draw(t, "seq"))
		f, want := m.fate(seq), Held
		switch {
		case f.over || m.s.done.Done(seq):
			want = Settled
		case f.begun || f.dying:
			want = Handed
		}
		if got := m.s.Withhold(seq, m.now); got != want {
			t.Fatalf("withholding %d: %s, want %s; %+v", seq, got, want, f)
		}
		if want == Held {
			m.cancels.withheld[seq] = true
		}
	}
}

// follow decides on some of what is withheld, and perhaps on other messages; of some it was read too early to know.
func (m *machine) follow(t *rapid.T) {
	if m.timers == nil {
		t.Skip("a log")
	}
	c := &m.cancels
	undecided := make(map[core.Seq]bool)
	until := m.s.Withholds() - min(m.s.Withholds(), rapid.Uint64Range(0, 3).Draw(t, "late"))
	for seq := core.Seq(1); seq <= 150; seq++ {
		if !c.withheld[seq] {
			continue
		}
		switch rapid.IntRange(0, 3).Draw(t, "decision") {
		case 0:
			c.called.Ack(seq)
		case 1:
			c.called.Ack(seq)
			c.kept[seq] = true
		case 2:
			undecided[seq] = true
		}
		switch {
		case m.s.done.Done(seq):
			delete(c.withheld, seq)
		case c.called.Done(seq) && !c.kept[seq]:
			m.fate(seq).over = true
			m.written = max(m.written, seq)
			delete(c.withheld, seq)
		case m.s.withheld[seq] <= until && !undecided[seq]:
			delete(c.withheld, seq)
		}
	}
	m.s.Follow(&c.called, c.kept, undecided, until, m.now)
	if m.s.Withheld() != len(c.withheld) {
		t.Fatalf("%d are withheld, want %d", m.s.Withheld(), len(c.withheld))
	}
}

// resumeWithheld withholds what its owner before withheld, as far as it was not decided.
func (m *machine) resumeWithheld(t *rapid.T) {
	c := &m.cancels
	if c.kept == nil {
		c.kept, c.withheld = make(map[core.Seq]bool), make(map[core.Seq]bool)
	}
	for _, seq := range slices.Sorted(maps.Keys(c.withheld)) { // the order tells
		if m.s.Withhold(seq, m.now) != Held {
			delete(c.withheld, seq)
		}
	}
}

// releaseWithheld ends what is not decided.
func (m *machine) releaseWithheld() {
	if m.timers != nil {
		m.s.Follow(&m.cancels.called, m.cancels.kept, nil, m.s.Withholds(), m.now)
		clear(m.cancels.withheld)
	}
}

// TestShare_WithheldIsNotHandedOut withholds one of three messages that are due, before and after it is offered: the
// others are handed out, and it is when it is released, or never when it was called off.
func TestShare_WithheldIsNotHandedOut(t *testing.T) {
	for _, before := range []bool{true, false} {
		for _, off := range []bool{true, false} {
			g, s := newTimers(t, core.GroupSpec{})
			if before && s.Withhold(2, start) != Held {
				t.Fatal("not held")
			}
			offerTimers(t, s, start, 1, 2, 3)
			if !before && s.Withhold(2, start) != Held {
				t.Fatal("not held")
			}
			if got := takeSeqs(g, start); len(got) != 2 || got[0] != 1 || got[1] != 3 {
				t.Fatalf("got %v", got)
			}
			if s.Withhold(1, start) != Handed || s.Depth().Delayed != 1 {
				t.Fatalf("depth is %+v", s.Depth())
			}
			var called acklevel.Window
			if off {
				called.Ack(2)
			}
			s.Follow(&called, nil, nil, s.Withholds(), start)
			want := 1
			if off {
				want = 0
			}
			if got := takeSeqs(g, start); len(got) != want {
				t.Fatalf("called off: %v, got %v", off, got)
			}
			if err := g.check(); err != nil {
				t.Fatal(err)
			}
			if got := g.Counters().Cancelled; got != uint64(1-want) {
				t.Fatalf("%d cancelled", got)
			}
		}
	}
}

// TestShare_FollowsOnlyWhatItWasReadFor withholds a message after what was decided had been read: it stays.
func TestShare_FollowsOnlyWhatItWasReadFor(t *testing.T) {
	_, s := newTimers(t, core.GroupSpec{})
	s.Withhold(1, start)
	read := s.Withholds()
	s.Withhold(2, start)
	s.Follow(&acklevel.Window{}, nil, nil, read, start)
	if s.Withheld() != 1 || s.withheld[2] == 0 {
		t.Fatalf("withheld are %v", s.withheld)
	}
}

// TestState_CancelLeavesWhatWasHandedOut applies what was called off to a checkpoint.
func TestState_CancelLeavesWhatWasHandedOut(t *testing.T) {
	g, s := newTimers(t, core.GroupSpec{})
	offerTimers(t, s, start, 2)
	takeSeqs(g, start)
	st := s.State(start)
	var called acklevel.Window
	called.AckRange(1, 5)
	called.Ack(9)
	st.Cancel(&called, map[core.Seq]bool{4: true})
	for seq, want := range map[core.Seq]Place{1: PlaceDone, 2: PlaceInFlight, 3: PlaceDone, 4: PlaceUnread, 5: PlaceDone, 6: PlaceUnread, 9: PlaceDone} {
		if got := st.Standing(seq).Place; got != want {
			t.Errorf("seq %d is %s, want %s", seq, got, want)
		}
	}
}

func takeSeqs(g *Group, now time.Time) (seqs []core.Seq) {
	for _, r := range g.Take(1, Credit{Messages: 100, Bytes: 1 << 20}, now, nil) {
		for i := range r.Count {
			seqs = append(seqs, r.Base+core.Seq(i))
		}
	}
	return seqs
}
