package extentlog

import (
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/wire"
)

// slowFS is a large disk that writes its logs at so many bytes a second.
type slowFS struct {
	vfs.FS
	rate int
	busy *busyUntil
}

type busyUntil struct {
	mu   sync.Mutex
	when time.Time
}

type slowFile struct {
	vfs.File
	disk slowFS
}

func newSlowFS(fs vfs.FS, rate int) slowFS { return slowFS{fs, rate, new(busyUntil)} }

func (s slowFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || path.Ext(name) != ".seg" {
		return f, err
	}
	return slowFile{f, s}, nil
}

func (s slowFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, c, opts...)
	return s.wrap(name, f, err)
}

func (s slowFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
}

func (f slowFile) WriteAt(p []byte, at int64) (int, error) {
	f.disk.busy.take(time.Duration(len(p)) * time.Second / time.Duration(f.disk.rate))
	return f.File.WriteAt(p, at)
}

// take waits until the disk has done all that came before, and this.
func (b *busyUntil) take(d time.Duration) {
	b.mu.Lock()
	now := time.Now()
	if b.when.Before(now) {
		b.when = now
	}
	b.when = b.when.Add(d)
	wait := b.when.Sub(now)
	b.mu.Unlock()
	time.Sleep(wait)
}

// callTimeout is how long a controller waits for the answer to a fence.
const callTimeout = 3 * time.Second

// TestFence_OvertakesAppends: on a disk of 5 MB/s with ten seconds of appends waiting, fences and seals are answered in
// time, of the busy extents and of others, and what waited of the fenced ones is refused at once.
func TestFence_OvertakesAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", newSlowFS(vfs.NewMem(), 5_000_000))
		quiet := newExtent()
		must(t, e.Open(quiet))
		const busy, size, each = 6, 256 << 10, 10 << 20
		type flow struct {
			extent          core.Extent
			header          wire.BatchHeader
			waits           sync.WaitGroup
			stored, refused int // of settleLoop
		}
		flows := make([]*flow, busy)
		for i := range flows {
			flows[i] = &flow{extent: newExtent()}
			must(t, e.Open(flows[i].extent))
		}
		for _, f := range flows {
			for range each / size {
				f.waits.Add(1)
				e.Append(f.extent.ID, nextBatch(t, &f.header, size-100), 0, func(_ core.Seq, err error) {
					defer f.waits.Done()
					switch {
					case err == nil:
						f.stored++
					case core.CodeOf(err) == core.CodeFenced:
						f.refused++
					default:
						t.Errorf("append: %v", err)
					}
				})
			}
		}
		time.Sleep(2 * time.Second)
		if v := e.Vitals(); v.Hangs >= HangsAt {
			t.Fatalf("a slow disk seems to hang for %s", v.Hangs)
		}
		timely := func(what string, call func() error) {
			t.Helper()
			began := time.Now()
			must(t, call())
			if took := time.Since(began); took > callTimeout/2 {
				t.Errorf("%s took %s of the %s that its caller waits", what, took, callTimeout)
			}
		}
		timely("fence of a quiet extent", func() error { _, err := e.Fence(quiet, 0); return err })
		for _, f := range flows[busy-2:] {
			var s State
			timely("fence of a busy extent", func() (err error) { s, err = e.Fence(f.extent, 0); return err })
			f.waits.Wait()
			if f.refused == 0 || int(s.Last) != f.stored {
				t.Errorf("%d stored, %d refused, fenced at %d", f.stored, f.refused, s.Last)
			}
			timely("seal of a busy extent", func() error { return e.Seal(f.extent.ID, s.Last, s.Checksum, 1) })
		}
		timely("open of an extent", func() error { return e.Open(newExtent()) })
		for _, f := range flows[:busy-2] {
			f.waits.Wait()
			if f.refused > 0 {
				t.Errorf("%d appends of an extent that was not fenced are refused", f.refused)
			}
		}
	})
}

// TestFence_KeepsWhatWasPromised: of random appends, fences, seals and copies that race on a slow disk, all that was
// acknowledged is within the length that the fence answered, also after a crash, and nothing is acknowledged beyond it.
func TestFence_KeepsWhatWasPromised(t *testing.T) {
	for seed := range underrace.Of[uint64](3, 12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fenceRace(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

type racing struct {
	extent  core.Extent
	mu      sync.Mutex
	acked   core.Seq // highest
	refused bool     // from then on nothing is acknowledged
	fenced  bool
	last    core.Seq // as the fence answered
}

func (r *racing) answer(t *testing.T, base, durable core.Seq, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.refused = true
	case r.refused, durable != base, durable != r.acked+1:
		t.Errorf("batch at %d is acknowledged with %d behind %d; refused before: %t", base, durable, r.acked, r.refused)
	case r.fenced && durable > r.last:
		t.Errorf("%d is acknowledged behind a fence that answered %d", durable, r.last)
	default:
		r.acked = durable
	}
}

func fenceRace(t *testing.T, random *rand.Rand) {
	disk := vfs.NewCrashableMem()
	e := newEngine(t, "store", newSlowFS(disk, 1<<(20+random.IntN(5))))
	var all []*racing
	var wg sync.WaitGroup
	for range 2 + random.IntN(6) {
		r := &racing{extent: newExtent()}
		all = append(all, r)
		must(t, e.Open(r.extent))
		batches, size, pause := random.IntN(80), 1+random.IntN(20<<10), time.Duration(random.IntN(int(10*time.Millisecond)))
		wg.Go(func() {
			var h wire.BatchHeader
			for range batches {
				b := nextBatch(t, &h, size)
				base := h.Base
				wg.Add(1)
				e.Append(r.extent.ID, b, 0, func(durable core.Seq, err error) {
					defer wg.Done()
					r.answer(t, base, durable, err)
				})
				time.Sleep(pause)
			}
		})
		at := time.Duration(random.IntN(int(500 * time.Millisecond)))
		wg.Go(func() {
			time.Sleep(at)
			s, err := e.Fence(r.extent, 0)
			if err != nil {
				t.Error(err)
				return
			}
			r.mu.Lock()
			if r.acked > s.Last {
				t.Errorf("a fence answers %d, and %d is acknowledged", s.Last, r.acked)
			}
			r.fenced, r.last = true, s.Last
			r.mu.Unlock()
			if err := e.Seal(r.extent.ID, s.Last, s.Checksum, 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	after := newEngine(t, "store", disk.CrashClone(vfs.CrashCloneCfg{}))
	for _, r := range all {
		s, err := after.State(r.extent.ID)
		must(t, err)
		if !s.Sealed || s.Last != r.last || s.L != r.last || r.acked > r.last {
			t.Errorf("after a crash: last %d, sealed %t at %d, want %d; acknowledged %d", s.Last, s.Sealed, s.L, r.last, r.acked)
		}
		if v, err := after.Verify(t.Context(), r.extent.ID); err != nil || !v.Sound {
			t.Errorf("after a crash: %+v, %v", v, err)
		}
	}
}
