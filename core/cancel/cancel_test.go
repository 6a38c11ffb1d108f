package cancel_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/core/cancel"
)

var start = time.Unix(1_700_000_000, 0)

func id(n int) core.ID { return core.ID{15: byte(n)} }

func group(n int) core.GroupID { return core.GroupID{ID: id(n)} }

// TestBook_Model has attempts begin, decide and be dropped in any order: what was decided stays as it was decided, by
// the attempt that had it.
func TestBook_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b cancel.Book
		now := start
		holder := make(map[core.Seq]int)                              // the attempt that decides
		since := make(map[core.Seq]time.Time)                         // when it began
		decided := make(map[core.Seq]map[core.GroupID]cancel.Outcome) // what is kept
		seqs := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) core.Seq { return core.Seq(rapid.IntRange(1, 12).Draw(t, "seq")) }), 1, 4, rapid.ID[core.Seq])
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkBook(t, &b, decided, holder) },
			"begin": func(t *rapid.T) {
				attempt, all := rapid.IntRange(1, 3).Draw(t, "attempt"), seqs.Draw(t, "seqs")
				busy := slices.ContainsFunc(all, func(s core.Seq) bool {
					return decided[s] == nil && holder[s] != 0 && holder[s] != attempt && now.Sub(since[s]) < cancel.Patience
				})
				undecided, err := b.Begin(id(attempt), all, now)
				if got := core.CodeOf(err) == core.CodeConflict; got != busy {
					t.Fatalf("begin: %v, busy: %v", err, busy)
				}
				if err != nil {
					return
				}
				for s, at := range since {
					if now.Sub(at) > time.Minute {
						delete(holder, s)
					}
				}
				for _, s := range all {
					if (decided[s] == nil) != slices.Contains(undecided, s) {
						t.Fatalf("undecided are %v of %v", undecided, all)
					}
					if decided[s] == nil {
						holder[s], since[s] = attempt, now
					}
				}
			},
			"decide": func(t *rapid.T) {
				attempt, all := rapid.IntRange(1, 3).Draw(t, "attempt"), seqs.Draw(t, "seqs")
				mine := !slices.ContainsFunc(all, func(s core.Seq) bool { return holder[s] != attempt })
				var kept []cancel.Kept
				for _, s := range all {
					if rapid.Bool().Draw(t, "kept") {
						kept = append(kept, cancel.Kept{Seq: s, Group: group(1), Outcome: cancel.Delivered})
					}
				}
				if err := b.Decide(id(attempt), all, kept); (err == nil) != mine {
					t.Fatalf("decide: %v, mine: %v", err, mine)
				}
				if !mine {
					return
				}
				for _, s := range all {
					decided[s] = make(map[core.GroupID]cancel.Outcome)
					delete(holder, s)
				}
				for _, k := range kept {
					decided[k.Seq][k.Group] = k.Outcome
				}
			},
			"drop": func(t *rapid.T) {
				attempt := rapid.IntRange(1, 3).Draw(t, "attempt")
				had := slices.Contains(slices.Collect(maps.Values(holder)), attempt)
				if got := b.Drop(id(attempt)); got != had {
					t.Fatalf("dropped: %v, want %v", got, had)
				}
				maps.DeleteFunc(holder, func(_ core.Seq, a int) bool { return a == attempt })
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second) },
		})
	})
}

func checkBook(t *rapid.T, b *cancel.Book, decided map[core.Seq]map[core.GroupID]cancel.Outcome, holder map[core.Seq]int) {
	called, err := b.Window()
	if err != nil {
		t.Fatal(err)
	}
	for s := core.Seq(1); s <= 12; s++ {
		for n := 1; n <= 2; n++ {
			want := cancel.Outcome("")
			if kept := decided[s]; kept != nil {
				if want = kept[group(n)]; want == "" {
					want = cancel.Cancelled
				}
			}
			if got := b.Outcome(called, s, group(n)); got != want {
				t.Fatalf("message %d is %q for group %d, want %q", s, got, n, want)
			}
		}
		if got, want := b.ForAll(called, s), decided[s] != nil && len(decided[s]) == 0; got != want {
			t.Fatalf("message %d is cancelled for all: %v", s, got)
		}
		if got := b.KeptBy(group(1))[s]; got != (decided[s][group(1)] != "") {
			t.Fatalf("message %d is kept: %v", s, got)
		}
	}
	if len(b.Pending) != len(holder) {
		t.Fatalf("pending are %v, want %v", b.Pending, holder)
	}
}

// TestBook_HoldsAllOfAnExtent cancels every other message of the largest extent, and meets the limits.
func TestBook_HoldsAllOfAnExtent(t *testing.T) {
	var called acklevel.Window
	for seq := core.Seq(1); seq < 131_071; seq += 2 {
		called.Ack(seq)
	}
	var b cancel.Book
	b.Called, _ = called.Append(nil)
	if _, err := b.Begin(id(1), []core.Seq{131_071}, start); err != nil {
		t.Fatal(err)
	}
	if err := b.Decide(id(1), []core.Seq{131_071}, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Called); n > cancel.MaxCalled*2/3 {
		t.Errorf("%d bytes", n)
	}
	many := make([]core.Seq, cancel.MaxPending+1)
	for i := range many {
		many[i] = core.Seq(2 * (i + 1))
	}
	if _, err := b.Begin(id(1), many, start); core.CodeOf(err) != core.CodeThrottled || len(b.Pending) > 0 {
		t.Errorf("too many at a time: %v", err)
	}
	if _, err := b.Begin(id(1), many[:1], start); err != nil {
		t.Fatal(err)
	}
	if err := b.Decide(id(1), many[:1], make([]cancel.Kept, cancel.MaxKept+1)); core.CodeOf(err) != core.CodeTooLarge || len(b.Pending) != 1 {
		t.Errorf("too many exceptions: %v", err)
	}
	b.Called = append(b.Called, 0)
	if _, err := b.Window(); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("a damaged window: %v", err)
	}
}
