package faults

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// flip changes one bit of each of at most n files below a directory, and answers which.
func flip(t *testing.T, r *rand.Rand, dir string, n int) (names []string) {
	t.Helper()
	var all []string
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil && info.Size() > 0 {
				all = append(all, name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, name := range all[:min(n, len(all))] {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		at, b := r.Int64N(info.Size()), make([]byte, 1)
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1 << r.IntN(8)
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("flipped a bit of byte %d of %s", at, strings.TrimPrefix(name, dir))
		names = append(names, name)
	}
	return names
}

// TestFlippedBits: a bit is wrong in many files of a store that was stopped. It starts, delivers nothing that is wrong,
// and gets the damaged extents from the other stores.
func TestFlippedBits(t *testing.T) {
	long(t)
	r := seeded(t)
	c := process.StartCluster(t, process.Layout{Stores: 3, Inputs: 1, Outputs: 1})
	s, store := c.Controller, c.Stores[2]
	s.Must("", "create", "queue", queue)
	l := newLoadOf(t, s, 2000, []string{"first", "second"}, "--lock-timeout", "10s")
	l.start(4, 0)
	for range scaled(t, 20) {
		l.goesOn(2000)
		for _, e := range l.extents() {
			if e.State == core.ExtentOpen {
				s.Must("", "seal", queue, e.Extent)
			}
		}
	}
	l.stopPublishing()
	store.Stop()
	files := flip(t, r, filepath.Join(store.Data, "store"), 50)
	began := time.Now()
	store.Start()
	c.AwaitHosts()
	l.start(0, 2)
	report := l.finish()
	verified, since := 0.0, time.Now()
	process.EventuallyWithin(t, 20*time.Minute, "all is verified and repaired", func() bool { // the store begins to verify after 5 minutes
		if now := store.Metric("columba_storehost_scrubbed_bytes_total"); now != verified {
			verified, since = now, time.Now()
		}
		return verified > 0 && time.Since(since) > time.Minute &&
			store.Metric("columba_storehost_damaged_extents") == 0 && s.Metric("columba_controller_copies_missing") == 0
	})
	l.row(fmt.Sprintf("a bit wrong in each of %d files of a store", len(files)), fmt.Sprintf("%v extents quarantined, lost %d, all repaired after %s",
		store.Metric("columba_storehost_quarantined_extents_total"), len(report.Of(verify.Lost)), time.Since(began).Round(time.Second)))
}
