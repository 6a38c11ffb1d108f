package enginefs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
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
