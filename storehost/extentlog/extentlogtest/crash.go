package extentlogtest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

// promise is what a log has acknowledged about one extent.
type promise struct {
	extent core.Extent
	opened bool
	fenced bool
	sealed bool
	// removing is set before the removal, from when on the extent may be gone; removed after it, from when on it must be.
	removing, removed bool
	version           uint64   // of the holders, with sealed
	last              core.Seq // acknowledged, or L
	bytes             []byte   // of everything ever appended, for comparison
}

// promises collects them while a workload runs.
type promises struct {
	mu  sync.Mutex
	all map[core.ExtentID]promise
}

func (p *promises) update(id core.ExtentID, change func(*promise)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.all[id]
	change(&v)
	p.all[id] = v
}

func (p *promises) snapshot() map[core.ExtentID]promise {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[core.ExtentID]promise, len(p.all))
	for id, v := range p.all {
		out[id] = v
	}
	return out
}

// crash is the disk at one moment, and what was promised before it.
type crash struct {
	fs       *vfs.MemFS
	promised map[core.ExtentID]promise
}

// RunCrash stops the machine before every sync of a workload, with all and with part of the unsynced bytes lost, and
// checks that everything acknowledged is there, without gaps and with right checksums. Payloads are so many times as
// large as 40 to 2,560 bytes.
func RunCrash(t *testing.T, open OpenFunc, times int) {
	for _, keep := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("Unsynced%d", keep), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			crashes := record(t, open, keep, times, random)
			if len(crashes) < 30 {
				t.Fatalf("the workload synced %d times only", len(crashes))
			}
			for i, c := range crashes {
				c.verify(t, open, fmt.Sprintf("crash %d of %d", i, len(crashes)))
			}
		})
	}
}

// record runs the workload on a file system that is cloned before every sync.
func record(t *testing.T, open OpenFunc, keep, times int, random *rand.Rand) (crashes []crash) {
	disk := vfs.NewCrashableMem()
	p := &promises{all: make(map[core.ExtentID]promise)}
	var mu sync.Mutex
	// With part of the unsynced bytes kept, also of directories, entries may survive in an order that no journaling file
	// system allows and that databases do not expect while they open: such crashes begin after it.
	var recording atomic.Bool
	recording.Store(keep == 0 || keep == 100)
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if !recording.Load() {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			before := p.snapshot() // first: what is promised later may be missing
			crashes = append(crashes, crash{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: random}), before})
		}
		return nil
	}))
	l, err := open(fs)
	must(t, err)
	recording.Store(true)
	workload(t, l, p, times)
	must(t, l.Close())
	mu.Lock()
	defer mu.Unlock()
	return append(crashes, crash{disk.CrashClone(vfs.CrashCloneCfg{}), p.snapshot()})
}

// workload appends to a few extents at once and brings them to all their ends.
func workload(t *testing.T, l extentlog.Log, p *promises, times int) {
	var pending sync.WaitGroup
	var writers []*Writer
	var extents []core.Extent
	for range 4 {
		e := Extent()
		must(t, l.Open(e))
		p.update(e.ID, func(v *promise) { v.extent, v.opened = e, true })
		extents, writers = append(extents, e), append(writers, new(Writer))
	}
	for i := range 60 {
		e, w := extents[i%4], writers[i%4]
		batch := w.Batch(1+i%3, times*40<<(i%7))
		p.update(e.ID, func(v *promise) { v.bytes = append(bytes.Clone(v.bytes), batch...) })
		pending.Add(1)
		l.Append(e.ID, batch, 0, func(durable core.Seq, err error) {
			defer pending.Done()
			if err == nil {
				p.update(e.ID, func(v *promise) { v.last = durable })
			}
		})
		if i%3 == 0 {
			pending.Wait()
		}
	}
	pending.Wait()
	for i, e := range extents[:3] {
		s, err := l.Fence(e, 0)
		must(t, err)
		p.update(e.ID, func(v *promise) { v.fenced, v.last = true, s.Last })
		if i == 0 {
			continue
		}
		must(t, l.Seal(e.ID, s.Last, s.Checksum, uint64(i)))
		p.update(e.ID, func(v *promise) { v.sealed, v.version = true, uint64(i) })
	}
	gone := extents[0]
	p.update(gone.ID, func(v *promise) { v.removing = true })
	must(t, Remove(l, gone, 1))
	p.update(gone.ID, func(v *promise) { v.removed = true })
	unheard := Extent()
	_, err := l.Fence(unheard, 0)
	must(t, err)
	p.update(unheard.ID, func(v *promise) { v.extent, v.fenced = unheard, true })
}

func (c crash) verify(t *testing.T, open OpenFunc, when string) {
	t.Helper()
	l, err := open(c.fs)
	if err != nil {
		t.Fatalf("%s: open: %v", when, err)
	}
	defer l.Close()
	for id, p := range c.promised {
		if !p.opened && !p.fenced {
			continue
		}
		s, err := l.State(id)
		switch {
		case p.removing && core.CodeOf(err) == core.CodeNotFound:
			wantCode(t, l.Open(p.extent), core.CodeFenced)
			continue
		case p.removed:
			t.Fatalf("%s: extent %s was removed and is back: %+v, %v", when, id, s, err)
		case err != nil:
			t.Fatalf("%s: %v", when, err)
		case s.Version < p.version:
			t.Fatalf("%s: version %d of the holders was promised, %d came back", when, p.version, s.Version)
		case s.Last < p.last, p.opened && !s.Opened, p.fenced && !s.Fenced, p.sealed && (!s.Sealed || s.L != p.last), !s.Extent.Equal(p.extent):
			t.Fatalf("%s: state %+v breaks the promise of last %d, opened %v, fenced %v, sealed %v", when, s, p.last, p.opened, p.fenced, p.sealed)
		case p.fenced && s.Last != p.last:
			t.Fatalf("%s: fenced at %d, came back with %d", when, p.last, s.Last)
		}
		got := ReadAll(t, l, id, s.Last, noLimit)
		if n := len(p.bytes); uint64(len(got)) != s.Bytes || !bytes.Equal(got[:min(n, len(got))], p.bytes[:min(n, len(got))]) {
			t.Fatalf("%s: the %d bytes read are not the %d appended (state says %d)", when, len(got), n, s.Bytes)
		}
		wantCode(t, l.Open(p.extent), refusal(s))
	}
}

func refusal(s extentlog.State) core.Code {
	if s.Fenced {
		return core.CodeFenced
	}
	return core.CodeExists
}

// RunDamage flips bytes all over a closed log's files in dir: each flip is refused at open, met as CodeCorrupt by a
// reader, or harmless. Nothing wrong is ever read, and nothing acknowledged is silently gone – except behind damage in
// the newest file that ends in journal, where an engine may take the damage for the end of an unclean stop: then a
// prefix without gaps must be left.
func RunDamage(t *testing.T, open OpenFunc, dir, journal string) {
	disk := vfs.NewMem()
	l, err := open(disk)
	must(t, err)
	p := &promises{all: make(map[core.ExtentID]promise)}
	workload(t, l, p, 4)
	must(t, l.Close())
	l, err = open(disk) // what was in the journal moves to its home
	must(t, err)
	must(t, l.Close())
	names, err := disk.List(dir)
	must(t, err)
	detected := 0
	for _, name := range names {
		if ext := path.Ext(name); ext != ".sst" && ext != journal {
			continue
		}
		whole := load(t, disk, disk.PathJoin(dir, name))
		for i := range 10 {
			at := (len(whole)*i + len(whole)/2) / 10
			if at >= len(whole) {
				continue
			}
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1 << (i % 8)
			copied := vfs.NewMem()
			if _, err := vfs.Clone(disk, copied, Dir, Dir); err != nil {
				t.Fatal(err)
			}
			store(t, copied, copied.PathJoin(dir, name), flipped)
			what := fmt.Sprintf("%s: byte %d of %d flipped", name, at, len(whole))
			if readsDamage(t, open, copied, p.all, what, path.Ext(name) == journal) {
				detected++
			}
		}
	}
	if detected == 0 {
		t.Fatal("no flipped byte was ever detected")
	}
}

// readsDamage reads everything and reports whether damage was met.
func readsDamage(t *testing.T, open OpenFunc, fs vfs.FS, promised map[core.ExtentID]promise, what string, prefix bool) bool {
	t.Helper()
	l, err := open(fs)
	if err != nil {
		return true
	}
	defer l.Close()
	for id, p := range promised {
		s, err := l.State(id)
		if (prefix || p.removed) && core.CodeOf(err) == core.CodeNotFound {
			continue
		}
		if err != nil || s.Last < p.last && !prefix {
			t.Fatalf("%s: extent lost without a word: last %d, want %d, %v", what, s.Last, p.last, err)
		}
		var got []byte
		for from := core.Seq(1); from <= s.Last; {
			b, err := l.Read(id, from, s.Last, 1000)
			if core.CodeOf(err) == core.CodeCorrupt {
				if s, _ := l.State(id); !s.Damaged {
					t.Fatalf("%s: a read met damage, the state does not say so", what)
				}
				return true
			}
			must(t, err)
			got = append(got, b...)
			_, last := span(t, b)
			from = last + 1
		}
		if !bytes.Equal(got, p.bytes[:min(len(got), len(p.bytes))]) || len(got) < len(p.bytes) && !prefix {
			t.Fatalf("%s: wrong bytes were read without an error", what)
		}
	}
	return false
}

// RunTornTail cuts the end off the newest file of dir that ends in suffix (the engine's log): what comes back is a
// prefix without gaps.
func RunTornTail(t *testing.T, open OpenFunc, dir, suffix string) {
	disk := vfs.NewCrashableMem()
	l, err := open(disk)
	must(t, err)
	p := &promises{all: make(map[core.ExtentID]promise)}
	workload(t, l, p, 1)
	torn := disk.CrashClone(vfs.CrashCloneCfg{})
	must(t, l.Close())
	names, err := torn.List(dir)
	must(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, suffix) && name > newest {
			newest = name
		}
	}
	whole := load(t, torn, torn.PathJoin(dir, newest))
	for i := 1; i < 30; i++ {
		cut := vfs.NewMem()
		if _, err := vfs.Clone(torn, cut, Dir, Dir); err != nil {
			t.Fatal(err)
		}
		store(t, cut, cut.PathJoin(dir, newest), whole[:len(whole)*i/30])
		l, err := open(cut)
		if err != nil {
			continue // refused: as good
		}
		must(t, l.List(func(s extentlog.State) bool {
			if s.Damaged {
				return true // told: as good
			}
			got := ReadAll(t, l, s.Extent.ID, s.Last, noLimit)
			if all := p.all[s.Extent.ID].bytes; len(got) > len(all) || !bytes.Equal(got, all[:len(got)]) {
				t.Fatalf("cut at %d: what came back is not a prefix", i)
			}
			return true
		}))
		must(t, l.Close())
	}
}

func load(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	must(t, err)
	return b
}

func store(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Close())
}
