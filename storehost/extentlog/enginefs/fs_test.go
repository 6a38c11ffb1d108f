package enginefs

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// An engine that cannot write tables does not try again at once; its logs do not wait for that.
func TestFS_IsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := New(vfs.NewMem(), Options{Taken: func() int64 { return 0 }, Failing: func() bool { return true }})
		for name, want := range map[string]time.Duration{"000001.sst": retryPause, "000002.log": 0, "MANIFEST-000003": 0} {
			began := time.Now()
			f, err := fs.Create(name, Paced)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("%s was made after %s, want %s", name, took, want)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFS_TellsOfTablesThatCannotBeRead: their owner is told before the reader gets the error, also when less is there
// than was asked for. Other files do not count.
func TestFS_TellsOfTablesThatCannotBeRead(t *testing.T) {
	failed := errors.New("broken")
	fails := false
	var told []string
	fs := New(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails && op.Kind == errorfs.OpFileReadAt {
			return failed
		}
		return nil
	})), Options{
		Failing: func() bool { return false }, Taken: func() int64 { return 0 },
		Unread: func(name string, err error) { told = append(told, fmt.Sprint(name, ": ", err)) },
	})
	for _, name := range []string{"000001.sst", "MANIFEST-000002"} {
		f, err := fs.Create(name, "")
		if err == nil {
			_, err = f.Write([]byte("abc"))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if f, err = fs.Open(name); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for n, want := range map[int]string{3: "[]", 4: "[000001.sst: EOF]", 0: "[000001.sst: broken]"} {
			told, fails = nil, n == 0
			if _, err := f.ReadAt(make([]byte, max(n, 1)), 0); fails && err == nil {
				t.Error("the read succeeds")
			}
			if name != "000001.sst" {
				want = "[]"
			}
			if got := fmt.Sprint(told); got != want {
				t.Errorf("%s, %d bytes: its owner hears %s, want %s", name, n, got, want)
			}
		}
		fails = false
	}
}

// TestFS_TriesTablesAgain: a read of a table that fails once costs nothing, and nobody is told.
func TestFS_TriesTablesAgain(t *testing.T) {
	fails := 0
	fs := New(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && fails > 0 {
			fails--
			return errors.New("broken")
		}
		return nil
	})), Options{Failing: func() bool { return false }, Taken: func() int64 { return 0 }, Unread: func(_ string, err error) { t.Errorf("told %v", err) }})
	f, err := fs.Create("000001.sst", "")
	if err == nil {
		_, err = f.Write([]byte("abc"))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if f, err = fs.Open("000001.sst"); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fails = 1
	b := make([]byte, 3)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "abc" {
		t.Errorf("got %q, %v", b, err)
	}
}
