package enginefs

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// put writes a file whole.
func put(t *testing.T, fs vfs.FS, name, text string) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write([]byte(text))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOverlay_KeepsChangesInMemory(t *testing.T) {
	under := vfs.NewMem()
	if err := under.MkdirAll("d", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/kept", "d/removed", "d/renamed", "d/written"} {
		put(t, under, name, "old")
	}
	over := Overlay(under)
	put(t, over, "d/made", "new")
	put(t, over, "d/written", "new")
	if err := errors.Join(over.Remove("d/removed"), over.Rename("d/renamed", "d/again"), over.Link("d/kept", "d/linked")); err != nil {
		t.Fatal(err)
	}
	if err := over.Remove("d/removed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := over.Stat("d/renamed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("by its old name: %v", err)
	}
	f, err := over.OpenReadWrite("d/kept", vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.WriteAt([]byte("N"), 0)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"d/kept": "Nld", "d/made": "new", "d/written": "new", "d/again": "old", "d/linked": "old"} {
		if is := content(t, over, name); is != want {
			t.Errorf("%s has %q, want %q", name, is, want)
		}
	}
	if names, err := over.List("d"); err != nil || !slices.Equal(names, []string{"again", "kept", "linked", "made", "written"}) {
		t.Errorf("the overlay lists %v, %v", names, err)
	}
	names, err := under.List("d")
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"kept", "removed", "renamed", "written"}) {
		t.Errorf("below are %v, %v", names, err)
	}
	for _, name := range names {
		if is := content(t, under, "d/"+name); is != "old" {
			t.Errorf("below, %s has %q", name, is)
		}
	}
}
