package dispatch

import (
	"bytes"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

func runOf(b byte) core.RunID { return core.RunID{ID: core.ID{b}} }

// row is a row of a run that tells of one message that is not settled, and of one that is, and covers others.
func row(run byte, written int64, e entry, done core.Seq, over ...Version) Saved {
	var st State
	st.done.Ack(done)
	st.messages = map[core.Seq]entry{1: e}
	for _, v := range over {
		st.covers = st.covers.with(v)
	}
	return Saved{Version: Version{runOf(run), written}, State: st}
}

// TestMergeSaved_ReturnedMessageHasNoLock: the owner before had handed a message out, and the one after it was given it
// back. Neither the attempt nor the lock counts any more, though the row of the first one is still there.
func TestMergeSaved_ReturnedMessageHasNoLock(t *testing.T) {
	spec := core.GroupSpec{LockTimeout: 30 * time.Second}
	g, s := newShare(t, spec, 2)
	take(g, 2, start)
	first := Saved{Version: Version{runOf(1), 10}, State: decode(t, save(s, start))}

	g = NewGroup(spec.WithDefaults())
	s = g.AddShare(extent(1), MergeSaved([]Saved{first}), start)
	offer(t, s, 2)
	s.Return(0, 1, 1, 1, start, nil)
	s.Nack(2, 1, 5*time.Second, nil, 0, start)
	second := Saved{Version: Version{runOf(2), 3}, State: decode(t, save(s, start))}

	for _, rows := range [][]Saved{{first, second}, {second, first}, {second}} {
		g = NewGroup(spec.WithDefaults())
		s = g.AddShare(extent(1), MergeSaved(rows), start)
		offer(t, s, 2)
		want(t, "at once", take(g, 2, start), "1+1@1")
		at := start.Add(6 * time.Second)
		g.Tick(at)
		s.Saved(2)
		save(s, at)
		s.Saved(s.token)
		want(t, "after the delay", take(g, 2, at), "2+1@2")
	}
}

// TestMergeSaved_Covers: of a row that another one covers only what is done counts, and what may be in a built-in
// queue.
func TestMergeSaved_Covers(t *testing.T) {
	locked := entry{kind: kindLocked, attempts: 1, due: 1000}
	waits := entry{kind: kindWaiting, attempts: 1, due: 5}
	dead := entry{kind: kindTransferring, attempts: 1, reason: Failed, failure: Rejected}
	here := dead
	here.held = true
	a1, a2, b1 := Version{runOf(1), 10}, Version{runOf(1), 20}, Version{runOf(2), 5}
	for _, c := range []struct {
		name string
		rows []Saved
		want entry
	}{
		{"nothing is covered", []Saved{row(1, 10, locked, 7), row(2, 5, waits, 8)}, locked},
		{"it is", []Saved{row(1, 10, locked, 7), row(2, 5, waits, 8, a1)}, waits},
		{"an older version of it", []Saved{row(1, 9, locked, 7), row(2, 5, waits, 8, a1)}, waits},
		{"a later one", []Saved{row(1, 11, locked, 7), row(2, 5, waits, 8, a1)}, locked},
		{"the row between is gone", []Saved{row(1, 10, locked, 7), row(3, 1, waits, 8, a1, b1)}, waits},
		{"by a row that is covered", []Saved{row(1, 10, locked, 7), row(2, 5, locked, 8, a1), row(3, 1, waits, 9, b1)}, waits},
		{"the first owner has it again", []Saved{row(1, 20, waits, 7, b1), row(2, 5, locked, 8, a1)}, waits},
		{"… and gave it back once more", []Saved{row(1, 20, locked, 7, b1), row(2, 6, waits, 8, a2)}, waits},
		{"a ring, which nobody writes", []Saved{row(1, 10, locked, 7, b1), row(2, 5, waits, 8, a1)}, locked},
		{"it covers itself, which nobody writes", []Saved{row(1, 10, locked, 7, a1), row(2, 5, waits, 8)}, locked},
		{"it may be a dead letter", []Saved{row(1, 10, dead, 7), row(2, 5, waits, 8, a1)}, dead},
		{"it was to be a dead letter", []Saved{row(1, 10, here, 7), row(2, 5, waits, 8, a1)}, waits},
	} {
		for range 2 {
			st := MergeSaved(c.rows)
			if got := st.messages[1]; max(got.kind, kindWaiting) != max(c.want.kind, kindWaiting) || got.due != c.want.due || got.held != c.want.held {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
			for _, r := range c.rows {
				for seq := core.Seq(7); seq < 10; seq++ {
					if r.done.Done(seq) && !st.done.Done(seq) {
						t.Errorf("%s: seq %d is done, and that is forgotten", c.name, seq)
					}
				}
				if st.covers.until(r.Run) < r.Written {
					t.Errorf("%s: row %v is not covered by what was resumed from it", c.name, r.Version)
				}
				for _, v := range r.covers {
					if st.covers.until(v.Run) < v.Written {
						t.Errorf("%s: %v is not covered any more", c.name, v)
					}
				}
			}
			for i, j := 0, len(c.rows)-1; i < j; i, j = i+1, j-1 {
				c.rows[i], c.rows[j] = c.rows[j], c.rows[i]
			}
		}
	}
}

// TestMergeSaved_OnlySettledSince: an owner resumed from a version of a row that has only settled messages since.
func TestMergeSaved_OnlySettledSince(t *testing.T) {
	locked, waits := entry{kind: kindLocked, attempts: 1, due: 1000}, entry{kind: kindWaiting, attempts: 1, due: 5}
	first, second := row(1, 12, locked, 7), row(2, 5, waits, 8, Version{runOf(1), 10})
	for since, want := range map[int64]entry{0: locked, 10: waits, 11: locked, 20: locked} {
		first.Since = since
		st := MergeSaved([]Saved{first, second})
		if got := st.messages[1]; got.due != want.due || st.covers.until(runOf(1)) != 12 {
			t.Errorf("since %d: %+v, and the first owner is covered until %d; want %+v", since, got, st.covers.until(runOf(1)), want)
		}
	}
}

// TestMergeSaved_RowsThatAreThereGoFirst: what one row covers may be gone, and has no room before the rows themselves.
func TestMergeSaved_RowsThatAreThereGoFirst(t *testing.T) {
	e := entry{kind: kindLocked, attempts: 1, due: 1000}
	var gone []Version
	for i := range MaxCovers {
		gone = append(gone, Version{runOf(byte(100 + i)), 1 << 40})
	}
	rows := []Saved{row(1, 10, e, 7, gone...), row(2, 5, e, 8)}
	st := MergeSaved(rows)
	for _, r := range rows {
		if !st.covers.has(r.Version) {
			t.Errorf("row %v is not covered", r.Version)
		}
	}
	if len(st.covers) != MaxCovers {
		t.Errorf("%d versions are covered, want %d", len(st.covers), MaxCovers)
	}
}

// TestMergeSaved_Policies: a row that covers another one knows its policies, too, whatever its clock says.
func TestMergeSaved_Policies(t *testing.T) {
	open, closed := row(1, 10, entry{attempts: 1}, 7), row(2, 5, entry{attempts: 1}, 8, Version{runOf(1), 10})
	open.policies[PolicyBreaker-1], open.told, closed.told = "open", true, true
	st := MergeSaved([]Saved{open, closed})
	if got := st.Policy(PolicyBreaker); got != nil {
		t.Errorf("it is %q, and the later owner had closed it", got)
	}
}

func TestCovers_Bound(t *testing.T) {
	var c covers
	for i := range MaxCovers + 8 {
		c = c.with(Version{runOf(byte(200 - i)), int64(1 + i)})
	}
	c = c.with(Version{runOf(0), 7}).with(Version{runOf(199), -1})
	if len(c) != MaxCovers || c.until(runOf(200)) != 1 || c.until(runOf(168)) != 0 {
		t.Errorf("%d versions, want the first %d", len(c), MaxCovers)
	}
	before := c
	if c = c.with(Version{runOf(192), 50}).with(Version{runOf(192), 8}); c.until(runOf(192)) != 50 || before.until(runOf(192)) != 9 {
		t.Error("a version is not raised, or in what a draft has")
	}
	st := State{covers: c}
	if blob := st.Append(nil); len(blob) > 1000 || !cmp.Equal(decode(t, blob).covers, c) {
		t.Errorf("they are not read as written, or take %d bytes", len(blob))
	}
}

// TestDecodeState_Covers refuses sections that are damaged, before they take memory.
func TestDecodeState_Covers(t *testing.T) {
	one := func(run, written byte) []byte { return append(append([]byte{run}, make([]byte, 15)...), written) }
	blob := func(n byte, all ...[]byte) []byte {
		b := append([]byte{stateVersion, 0, n}, bytes.Join(all, nil)...)
		return seal(append(b, 7, 0, 0))
	}
	if st := decode(t, blob(2, one(1, 5), one(2, 1))); st.covers.until(runOf(1)) != 5 || st.Frontier() != 7 {
		t.Errorf("%+v", st)
	}
	for what, b := range map[string][]byte{
		"cut off": blob(1), "twice": blob(2, one(1, 5), one(1, 6)), "out of order": blob(2, one(2, 5), one(1, 6)), "no run": blob(1, one(0, 5)),
		"too many": blob(MaxCovers + 1), "more than there are": blob(MaxCovers, one(1, 1)),
		"a time that is too late": seal(append(append([]byte{stateVersion, 0, 1}, one(1, 0xff)...), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7, 0, 0)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeState(b)
		runtime.ReadMemStats(&after)
		if core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("%s: got %v", what, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s allocated %d bytes before it was refused", what, n)
		}
	}
}

// TestFit_CrowdedRowsCoverNothing: a row that leaves anything of messages out but texts does not tell all that those
// before it told.
func TestFit_CrowdedRowsCoverNothing(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		var st State
		st.messages = make(map[core.Seq]entry)
		st.covers = st.covers.with(Version{runOf(1), math.MaxInt64})
		for seq := core.Seq(1); seq < 14_000; seq += 2 {
			st.messages[seq] = entry{kind: kindLocked, attempts: uint16(1 + seq%2000), due: int64(seq) << 20 * int64(seq%7)}
			if !crowded && seq > 100 {
				break
			}
		}
		blob := st.Append(nil)
		if len(blob) > MaxCheckpoint {
			t.Fatalf("%d bytes", len(blob))
		}
		if got := decode(t, blob).covers; len(got) == 0 != crowded {
			t.Errorf("crowded %t: %d bytes cover %v", crowded, len(blob), got)
		}
		if _, whole := st.Fit(nil); whole == crowded {
			t.Errorf("crowded %t: the row counts as whole: %t", crowded, whole)
		}
	}
}

// TestState_Follows: an owner that gave its share away settles, and does nothing else. Any other news is none that the
// next owner knew.
func TestState_Follows(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{}, 3)
	take(g, 2, start)
	given := s.State(start)
	later := s.State(start)
	later.Ack(1, 1, start)
	if read := decode(t, given.Append(nil)); !later.Follows(read) || !read.Follows(given) {
		t.Error("a late ack is news of more than that")
	}
	take(g, 1, start)
	if more := s.State(start); more.Follows(given) || !given.Follows(more) {
		t.Error("a message was handed out, and that is no news")
	}
	s.Nack(2, 1, time.Second, nil, 0, start)
	if more := s.State(start); more.Follows(given) {
		t.Error("a message was nacked, and that is no news")
	}
}
