package dispatch

import (
	"encoding/hex"
	"hash/crc32"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
)

// FuzzMerge merges what any two owners may have saved, one of them with a clock that is wrong: whatever order they come
// in, what has to hold for all owners is the same, and what is saved of it can be read again.
func FuzzMerge(f *testing.F) {
	for _, text := range goldens {
		blob, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(blob[:len(blob)-crc32.Size], []byte{stateVersion, 0, 0, 3, 0, 1, 0, 0, 1, 1, 2}, int64(-3_600_000), uint64(7))
	}
	f.Add([]byte{stateVersion, 0, 0, 0, 0, 1, 0, 0, 1, 1, 2}, []byte{stateVersion, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2}, int64(-5), uint64(1))
	f.Fuzz(func(t *testing.T, first, second []byte, shift int64, seq uint64) {
		a, err := DecodeState(seal(first))
		if err != nil || len(a.messages) > 1000 {
			return
		}
		b, err := DecodeState(seal(second))
		if err != nil || len(b.messages) > 1000 {
			return
		}
		b.Shift(time.Duration(shift%(1<<33)) * time.Millisecond)
		both, reversed := merged(a, b), merged(b, a)
		for seq, e := range both.messages {
			o := reversed.messages[seq]
			if e.finality() != o.finality() || e.attempts != o.attempts || e.notCounted != o.notCounted || e.unsure != o.unsure {
				t.Errorf("seq %d is %+v, and merged in the other order %+v", seq, e, o)
			}
		}
		if len(both.messages) != len(reversed.messages) || both.Consumed() != reversed.Consumed() {
			t.Errorf("%d messages and %d consumed, in the other order %d and %d", len(both.messages), both.Consumed(), len(reversed.messages), reversed.Consumed())
		}
		again := merged(both, both)
		if diff := cmp.Diff(both.plain(), again.plain(), cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("merged twice (-once +twice):\n%s", diff)
		}
		covering(t, a, b)
		readable(t, both)
		readable(t, both.Until(core.Seq(seq)))
	})
}

func merged(states ...State) (out State) {
	for _, st := range states {
		out.Merge(st)
	}
	return out
}

// covering merges two rows as they are, and with one that covers the other: everything that either has done stays done,
// and nothing of a row is left out that no other one covers.
func covering(t *testing.T, a, b State) {
	t.Helper()
	first, second := Version{runOf(1), 5}, Version{runOf(2), 5}
	rows := []Saved{{Version: first, State: a}, {Version: second, State: b}}
	over := b
	over.covers = over.covers.with(first)
	for _, rows := range [][]Saved{rows, {rows[0], {Version: second, State: over}}, {{Version: second, State: over}, rows[0]}} {
		st, all := MergeSaved(rows), merged(rows[0].State, rows[1].State)
		if st.Consumed() != all.Consumed() {
			t.Errorf("%d are consumed, want %d", st.Consumed(), all.Consumed())
		}
		covered := coveredOf(rows)
		for i, r := range rows {
			for seq, e := range r.messages {
				if _, there := st.messages[seq]; !there && (!covered[i] || e.dies() && !e.held) {
					t.Errorf("seq %d of row %d is left out: %+v", seq, i, e)
				}
			}
		}
		if covered[0] && covered[1] {
			t.Error("both rows are covered")
		}
		readable(t, st)
	}
}

// readable saves a state in all ways in which it comes to be saved, and reads that again.
func readable(t *testing.T, st State) {
	t.Helper()
	now := time.UnixMilli(1_700_000_000_000)
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	s := g.AddShare(core.ExtentID{}, st, now)
	given := s.State(now)
	early, _ := s.Checkpoint(nil, false, now)
	final, _ := s.Checkpoint(nil, true, now)
	for what, blob := range map[string][]byte{"the state": st.Append(nil), "a hand-over": given.Append(nil), "a checkpoint": early, "the last checkpoint": final} {
		if _, err := DecodeState(blob); err != nil || len(blob) > MaxCheckpoint {
			t.Errorf("%s of %d bytes: %v", what, len(blob), err)
		}
	}
}
