package enginefs

import (
	"errors"
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

// TestFS_TellsOfTablesThatCannotBeRead: their owner is told before the reader gets the error. The end of a table is no
// error, nor are those of other files.
func TestFS_TellsOfTablesThatCannotBeRead(t *testing.T) {
	disk := vfs.NewMem()
	failed := errors.New("broken")
	fails := false
	var told []error
	fs := New(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails && op.Kind == errorfs.OpFileReadAt {
			return failed
		}
		return nil
	})), Options{Failing: func() bool { return false }, Taken: func() int64 { return 0 }, Unread: func(err error) { told = append(told, err) }})
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
		for _, fails = range []bool{false, true} {
			told = nil
			_, err := f.ReadAt(make([]byte, 4), 0)
			if want := fails && name == "000001.sst"; want != (len(told) == 1 && errors.Is(told[0], failed)) || len(told) > 1 {
				t.Errorf("%s, read with %v: told %v", name, err, told)
			}
		}
		fails = false
	}
}
