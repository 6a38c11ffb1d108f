package extentlog

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
)

// segmentsOf are the names of the files of a store's log, in order.
func segmentsOf(t testing.TB, disk vfs.FS) (names []string) {
	t.Helper()
	all, err := disk.List("store/ring")
	must(t, err)
	for _, name := range all {
		names = append(names, disk.PathJoin("store/ring", name))
	}
	return names
}

// readFile and writeFile are for damage.
func readFile(t testing.TB, disk vfs.FS, name string) []byte {
	t.Helper()
	f, err := disk.Open(name)
	must(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	must(t, err)
	return b
}

func writeFile(t testing.TB, disk vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := disk.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Close())
}

// killed is the disk as a process that is killed leaves it.
func killed(disk *vfs.MemFS) *vfs.MemFS {
	return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// TestMark_OncePerIdleTime: the log is marked once after its last group, and not again while it is idle; nor by a start
// that finds a mark.
func TestMark_OncePerIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		e, err := Open("store", Options{Store: "s1", FS: disk})
		must(t, err)
		x := newExtent()
		must(t, e.Open(x))
		for range 3 {
			appendBatches(t, e, newOpenExtent(t, e), 2, 1000)
			before := e.journal.applied.Load() // the ring is commitLoop's, which a timer wakes next
			time.Sleep(markAfter - time.Millisecond)
			synctest.Wait()
			if now := e.journal.applied.Load(); now != before {
				t.Errorf("%d groups were written within %s", now-before, markAfter)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if now := e.journal.applied.Load(); now != before+1 || !e.journal.ring.Marked() {
				t.Errorf("%d groups were written in an idle hour, want one mark", now-before)
			}
		}
		next := e.journal.ring.Next()
		left := killed(disk)
		must(t, e.Close())
		e, err = Open("store", Options{Store: "s1", FS: left})
		must(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		if now := e.journal.ring.Next(); now != next {
			t.Errorf("a start that is idle wrote %d groups", now-next)
		}
		must(t, e.Close())
	})
}

func newOpenExtent(t testing.TB, e *Engine) core.Extent {
	t.Helper()
	x := newExtent()
	must(t, e.Open(x))
	return x
}

// TestMark_NamesDamageToTheLastGroup: behind a mark, a last group that cannot be read is no torn end.
func TestMark_NamesDamageToTheLastGroup(t *testing.T) {
	for _, marked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			e, err := Open("store", Options{Store: "s1", FS: disk})
			must(t, err)
			x := newOpenExtent(t, e)
			appendBatches(t, e, x, 3, 1000)
			if marked {
				time.Sleep(2 * markAfter)
			}
			left := killed(disk)
			must(t, e.Close())
			damaged := 0
			for _, name := range segmentsOf(t, left) {
				b := readFile(t, left, name)
				if at := bytes.LastIndex(b, x.ID.ID[:]); at >= 0 {
					b[at] ^= 1
					writeFile(t, left, name, b)
					damaged++
				}
			}
			if damaged != 1 {
				t.Fatalf("%d segments have the extent", damaged)
			}
			r, damage, err := ring.Open("store/ring", ring.Options{FS: left, Disk: e.identity.Disk, Key: []byte("any")}, func(ring.Group) error { return nil })
			must(t, err)
			if told := len(damage) > 0; told != marked {
				t.Errorf("damage %v; the log was marked: %v", damage, marked)
			}
			must(t, r.Release())
		})
	}
}
