package dispatch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

// rowsLeft are the rows of a share's owners, by run, and those that a copy of the metadata may still have.
type rowsLeft struct {
	rows   map[core.RunID]Saved
	stamps map[core.RunID]int64
}

// put is that an owner saves. Clocks of owners differ.
func (r *rowsLeft) put(t *rapid.T, run core.RunID, blob []byte) {
	st, err := DecodeState(blob)
	if err != nil {
		t.Fatal(err)
	}
	r.stamps[run] += int64(rapid.IntRange(1, 3).Draw(t, "stamp"))
	r.rows[run] = Saved{Version: Version{run, r.stamps[run]}, State: st}
}

// all are the rows in any order.
func (r *rowsLeft) all(t *rapid.T) []Saved {
	runs := slices.SortedFunc(maps.Keys(r.rows), compareRuns)
	if rapid.Bool().Draw(t, "reversed") {
		slices.Reverse(runs)
	}
	var out []Saved
	for _, run := range runs {
		out = append(out, r.rows[run])
	}
	return out
}

// settleLate has owners of before settle what their consumers had, and the owner of now hear of it or not.
func (r *rowsLeft) settleLate(t *rapid.T, o *owner, now core.RunID) {
	for _, run := range slices.SortedFunc(maps.Keys(r.rows), compareRuns) {
		if run == now || rapid.IntRange(0, 3).Draw(t, "late") > 0 {
			continue
		}
		before := r.rows[run]
		st := State{covers: before.covers, done: *before.done.Clone(), messages: maps.Clone(before.messages), policies: before.policies, told: before.told}
		seq := core.Seq(rapid.IntRange(1, ownersMessages).Draw(t, "late seq"))
		st.Ack(seq, st.messages[seq].attempts, o.now)
		r.put(t, run, st.Append(nil))
		if after := r.rows[run]; rapid.Bool().Draw(t, "heard") {
			o.s.Absorb(after.State, o.now)
			if after.Follows(before.State) && o.s.covers.until(run) >= before.Written {
				o.s.Cover(after.Version)
			}
		}
	}
}

// TestOwners_NextResumesFromTheLast has owners of a share follow one another, some of them again, with rows of those
// before left behind, or removed at random. The next one begins where the last one that saved was, if that covers the
// rows that are left: with its locks, its deadlines and its attempts, and with what is done by any of them.
func TestOwners_NextResumesFromTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := core.GroupSpec{MaxDeliveries: rapid.SampledFrom([]int{2, 3, core.UnlimitedDeliveries}).Draw(t, "max"), LockTimeout: 10 * time.Second, NoNackThrottle: true}.WithDefaults()
		kind := rapid.SampledFrom([]string{"log", "timers", "retry queue"}).Draw(t, "kind")
		left := rowsLeft{rows: map[core.RunID]Saved{}, stamps: map[core.RunID]int64{}}
		now := start
		for range rapid.IntRange(2, 6).Draw(t, "owners") {
			run := runOf(byte(rapid.IntRange(1, 4).Draw(t, "run")))
			before := left.all(t)
			o := beginOwner(t, spec, kind, MergeSaved(before), now)
			saves := rapid.IntRange(0, 3).Draw(t, "saves") > 0
			for range rapid.IntRange(1, 3).Draw(t, "saves") {
				o.live(t, rapid.IntRange(1, 5).Draw(t, "events"))
				left.settleLate(t, o, run)
				if saves {
					blob, _ := o.s.Checkpoint(nil, false, o.now)
					left.put(t, run, blob)
				}
			}
			now = later(now, o.now)
			if !saves {
				continue
			}
			last := o.leave(t)
			left.put(t, run, last.Append(nil))
			for _, r := range before {
				if r.Run != run && r.Pending() > 0 && !last.covers.has(r.Version) {
					t.Fatalf("the owner resumed from row %v, and does not cover it", r.Version)
				}
			}
			all := left.all(t)
			for _, r := range all { // that the last one merged, or the one before it
				if r.Run != run && rapid.IntRange(0, 2).Draw(t, "removed") == 0 && last.covers.has(r.Version) {
					delete(left.rows, r.Run)
				}
			}
			all = left.all(t)
			sameAsLast(t, all, run, MergeSaved(all))
		}
	})
}

// sameAsLast compares what is resumed with what the last owner saved.
func sameAsLast(t *rapid.T, all []Saved, run core.RunID, got State) {
	i := slices.IndexFunc(all, func(r Saved) bool { return r.Run == run })
	last := all[i]
	want := make(map[core.Seq]entry)
	for seq, e := range last.messages {
		if !got.done.Done(seq) {
			want[seq] = e
		}
	}
	unsettled := maps.Clone(got.messages)
	maps.DeleteFunc(unsettled, func(seq core.Seq, _ entry) bool { return got.done.Done(seq) })
	for _, r := range all {
		for seq := core.Seq(1); seq <= ownersMessages; seq++ {
			if r.done.Done(seq) && !got.done.Done(seq) {
				t.Fatalf("seq %d was settled", seq)
			}
		}
		if r.Run != run && r.Pending() > 0 && !last.covers.has(r.Version) {
			return // the last owner did not hear of it
		}
	}
	if diff := cmp.Diff(want, unsettled, cmp.AllowUnexported(entry{})); diff != "" {
		t.Fatalf("the next owner resumes otherwise (-last +next):\n%s", diff)
	}
}
