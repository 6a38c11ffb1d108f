package extentlog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// TestGraveyard_Forgets: what is remembered of removed extents is bounded in time, and what is forgotten is refused all
// the same.
func TestGraveyard_Forgets(t *testing.T) {
	oneAtATime(t)
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e, err := Open("store", Options{Store: "s1", FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		open := func(what string, x core.Extent, want core.Code) {
			t.Helper()
			if err := e.Open(x); core.CodeOf(err) != want {
				t.Fatalf("%s: %v, want %q", what, err, want)
			}
		}
		remove := func(x core.Extent) {
			t.Helper()
			if err := removeTold(e, x, 1); err != nil {
				t.Fatal(err)
			}
		}
		older := newExtent() // never opened here, never removed
		time.Sleep(time.Second)
		first := newExtent()
		open("new", first, "")
		remove(first)
		time.Sleep(tombstoneLife - time.Second)
		early := newExtent()
		open("new", early, "")
		remove(early)
		open("removed a day ago, almost", first, core.CodeFenced)
		open("made before it", older, "")
		time.Sleep(2 * time.Second)
		late := newExtent()
		open("new", late, "")
		remove(late)
		if n := len(e.graveyard.graves); n != 2 {
			t.Fatalf("%d removals are remembered, want the last two", n)
		}
		for range 2 {
			open("removed and forgotten", first, core.CodeFenced)
			x := newExtent()
			x.ID.ID = core.NewID(first.ID.Time().Add(-time.Hour))
			open("as old as what is forgotten", x, core.CodeFenced)
			open("removed and remembered", early, core.CodeFenced)
			open("new", newExtent(), "")
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if e, err = Open("store", Options{Store: "s1", FS: disk}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Fence(first, 0); err != nil { // takes no records: for a copy that is wanted after all
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestGraveyard_WrongClock(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	ahead := newExtent()
	ahead.ID.ID = core.NewID(time.Now().Add(1000 * time.Hour))
	if err := removeTold(e, ahead, 1); err != nil {
		t.Fatal(err)
	}
	e.graveyard.order[0].removed = time.UnixMilli(0)
	e.graveyard.graves[ahead.ID] = tombstone{removed: time.UnixMilli(0)}
	if err := removeTold(e, newExtent(), 1); err != nil {
		t.Fatal(err)
	}
	if _, there := e.graveyard.graves[ahead.ID]; there {
		t.Fatal("an old removal is not forgotten")
	}
	if err := e.Open(newExtent()); err != nil {
		t.Fatalf("an extent of a clock that was ahead closed the store: %v", err)
	}
}
