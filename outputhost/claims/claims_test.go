package claims

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

var share = metadata.Key{Partition: "g", Row: "e"}

func newTerm() core.ID   { return core.NewID(time.Now()) }
func newRun() core.RunID { return core.RunID{ID: newTerm()} }

func take(t *testing.T, meta metadata.Store) (*Claim, string) {
	t.Helper()
	c, state, err := Take(t.Context(), meta, share, newRun(), newTerm())
	if err != nil {
		t.Fatal(err)
	}
	return c, string(state)
}

// A claim says what is done; the next owner begins with it, and the one before can change it no more.
func TestClaim_IsTakenOver(t *testing.T) {
	meta := memory.New()
	first, state := take(t, meta)
	if state != "" {
		t.Errorf("a new share begins with %q", state)
	}
	for _, state := range []string{"1", "12"} {
		if err := first.Save(t.Context(), []byte(state)); err != nil {
			t.Fatal(err)
		}
	}
	second, state := take(t, meta)
	if state != "12" {
		t.Errorf("the second owner begins with %q, want what the first saved last", state)
	}
	if err := first.Save(t.Context(), []byte("123")); core.CodeOf(err) != core.CodeStale {
		t.Errorf("the first owner saves: %v", err)
	}
	if err := second.Save(t.Context(), []byte("124")); err != nil {
		t.Error(err)
	}
	if _, state := take(t, meta); state != "124" {
		t.Errorf("the third owner begins with %q", state)
	}
}

// One run that takes a share a second time has a new term: what its first claim still has under way is refused.
func TestClaim_OfAnEarlierTerm(t *testing.T) {
	meta, run := memory.New(), newRun()
	first, _, err := Take(t.Context(), meta, share, run, newTerm())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Take(t.Context(), meta, share, run, newTerm()); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(t.Context(), []byte("late")); core.CodeOf(err) != core.CodeStale {
		t.Errorf("got %v, want it stale", err)
	}
}

func TestClaim_OfADeletedGroup(t *testing.T) {
	meta := memory.New()
	c, _ := take(t, meta)
	row, err := meta.Get(t.Context(), metadata.Claims, share, metadata.Serial)
	if err != nil {
		t.Fatal(err)
	}
	if err := meta.Delete(t.Context(), metadata.Claims, share, row.Version); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(t.Context(), []byte("1")); core.CodeOf(err) != core.CodeStale {
		t.Errorf("got %v, want it stale", err)
	}
}

// Of owners that take over and save at the same time, over metadata that loses answers: whatever one was told is saved
// is known to all that take over after it.
func TestClaim_Contended(t *testing.T) {
	behind := memory.New()
	meta := faulty.New(behind, faulty.Faults{Seed: 1, Before: 0.05, Lost: 0.1})
	saved := make([][]string, 8)
	var wg sync.WaitGroup
	for i := range saved {
		wg.Go(func() {
			for k := range 25 {
				c, state, err := Take(t.Context(), meta, share, newRun(), newTerm())
				if err != nil {
					continue
				}
				mark := fmt.Sprintf("%d/%d ", i, k)
				if c.Save(t.Context(), append(state, mark...)) == nil {
					saved[i] = append(saved[i], mark)
				}
			}
		})
	}
	wg.Wait()
	_, state := take(t, behind)
	n := 0
	for _, marks := range saved {
		for _, mark := range marks {
			n++
			if !strings.Contains(state, mark) {
				t.Errorf("%s was saved, and is not known to the next owner", mark)
			}
		}
	}
	if n == 0 {
		t.Error("nothing was saved")
	}
	if err := meta.Close(); err != nil {
		t.Error(err)
	}
}

// TestClaim_Release: what an owner that gives the share away says last stays, whatever it has under way, and the next
// owner begins with it.
func TestClaim_Release(t *testing.T) {
	meta := memory.New()
	first, _ := take(t, meta)
	if err := first.Save(t.Context(), []byte("1 and claimed 2")); err != nil {
		t.Fatal(err)
	}
	if err := first.Release(t.Context(), []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(t.Context(), []byte("1 and claimed 2")); core.CodeOf(err) != core.CodeStale {
		t.Errorf("a save after the release: %v, want it stale", err)
	}
	if err := first.Release(t.Context(), []byte("1")); core.CodeOf(err) != core.CodeStale {
		t.Errorf("another release: %v, want it stale", err)
	}
	second, state := take(t, meta)
	if state != "1" {
		t.Errorf("the second owner begins with %q, want what the first released", state)
	}
	if err := second.Save(t.Context(), []byte("12")); err != nil {
		t.Error(err)
	}
	if err := first.Release(t.Context(), []byte("1")); core.CodeOf(err) != core.CodeStale {
		t.Errorf("a release after another has taken over: %v, want it stale", err)
	}
}

// TestClaim_ReleaseBesideASave releases a claim while saves of it are under way: they come before it, or are refused.
func TestClaim_ReleaseBesideASave(t *testing.T) {
	for range 50 {
		meta := memory.New()
		c, _ := take(t, meta)
		var saves sync.WaitGroup
		for range 4 {
			saves.Go(func() { c.Save(t.Context(), []byte("claimed")) })
		}
		if err := c.Release(t.Context(), []byte("truth")); err != nil {
			t.Fatal(err)
		}
		saves.Wait()
		if _, state := take(t, meta); state != "truth" {
			t.Fatalf("the next owner begins with %q", state)
		}
	}
}
