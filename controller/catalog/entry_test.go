package catalog

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// mostBytes bounds the memory of an extent with its places in the maps: a sealed one, of an AP queue with ten extents.
const mostBytes = 280

// TestExtents_TakeLittleMemory: each decoded row has strings and lists of its own, and the catalog keeps none of them.
func TestExtents_TakeLittleMemory(t *testing.T) {
	const n = 20_000
	x := NewExtents()
	before := living()
	for i := range n {
		x.Put(decoded(i))
	}
	x.TakeChanged()
	took := (living() - before) / n
	if t.Logf("an extent takes %d bytes", took); took > mostBytes {
		t.Errorf("an extent takes %d bytes, want at most %d", took, mostBytes)
	}
	runtime.KeepAlive(x)
}

// living is how many bytes of the heap are in use.
func living() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// decoded is an extent that shares no memory with others, as one of a row.
func decoded(i int) Extent {
	name := func(n int) core.HostID { return core.HostID(fmt.Sprintf("store-%03d", n)) }
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Millisecond)
	e := core.Extent{
		ID: core.ExtentID{ID: core.NewID(at)}, Queue: core.QueueID{ID: core.ID{byte(i / 10), byte(i / 2560), 1}},
		Kind: core.KindLog, Durability: core.DurabilityFsync, Token: core.WriterToken{ID: core.NewID(at)},
		Input: core.HostID(fmt.Sprint("input-", i%4)), InputRun: core.RunID{ID: core.ID{byte(i % 4)}},
	}
	row := metadata.SealRecord{
		State: core.ExtentState([]byte(core.ExtentSealed)), L: 1000, Floor: 990, Bytes: 1 << 20, Checksum: 7, Version: 1,
		Changed: at, Ended: at,
	}
	for n := range 3 {
		store, disk := (i+n)%8, core.DiskID{ID: core.ID{byte((i + n) % 8)}}
		e.Replicas, e.Disks = append(e.Replicas, name(store)), append(e.Disks, disk)
		row.Holders, row.HolderDisks = append(row.Holders, name(store)), append(row.HolderDisks, disk)
	}
	row.Extent = e
	out := Extent{ExtentRecord: metadata.ExtentRecord{Extent: e, Created: at, Wanted: 3}, State: core.ExtentOpen}.Took(row)
	out.Told = true
	return out
}

// TestExtents_KeepAllOfAnExtent: the catalog answers what was put, and what was changed.
func TestExtents_KeepAllOfAnExtent(t *testing.T) {
	id := func(b byte) core.ID { return core.ID{b} }
	at := time.Date(2026, 11, 1, 2, 3, 4, 5, time.UTC)
	full := Extent{
		ExtentRecord: metadata.ExtentRecord{
			Extent: core.Extent{
				ID: core.ExtentID{ID: id(1)}, Queue: core.QueueID{ID: id(2)}, Kind: core.KindTimer, Durability: core.DurabilityFsync,
				Input: "in", InputRun: core.RunID{ID: id(3)}, Token: core.WriterToken{ID: id(4)}, Chain: 6, Horizon: core.HorizonDay,
				Replicas: []core.HostID{"s0", "s1"}, Disks: []core.DiskID{{ID: id(5)}, {}},
			},
			Created: at, Wanted: 3, Home: core.Home{Kind: core.HomeStaging, Operation: id(7)}, Before: core.ExtentID{ID: id(8)},
			Minority: metadata.Maker{Controller: "c", Run: core.RunID{ID: id(9)}},
		},
		State: core.ExtentSealed, Floor: 10, L: 11, Bytes: 12, Checksum: 13, Version: 14, Kept: at.Add(time.Nanosecond),
		Forced: true, Told: true, Spent: true, Released: true, Made: true,
		Holders: []core.Place{{Store: "s1"}, {Store: "s2", Disk: core.DiskID{ID: id(15)}}},
		Home:    core.MergedInto(core.QueueID{ID: id(16)}, core.GroupID{ID: id(17)}),
		Rate:    18, Removed: 19, LostFrom: 20, HeldTo: 21, HeldSum: 22,
	}
	bare := Extent{ExtentRecord: metadata.ExtentRecord{Extent: core.Extent{ID: full.ID, Queue: full.Queue}}}
	short := full
	short.Disks, short.Holders = full.Disks[:1], full.Holders[:1]
	unknown := bare
	unknown.Replicas, unknown.State, unknown.Kept = full.Replicas, "of a newer version", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	same := bare
	same.L, same.Checksum, same.HeldTo, same.HeldSum = 1, 2, 1, 2
	x := NewExtents()
	x.Put(full)
	for i, want := range []Extent{full, bare, short, unknown, same, full} {
		x.Change(want.ID, func(e *Extent) { *e = want })
		if got, _ := x.Get(want.ID); cmp.Diff(want, got) != "" {
			t.Errorf("%d: changed (-want +got):\n%s", i, cmp.Diff(want, got))
		}
	}
	if got := x.Of(full.Queue); len(got) != 1 || cmp.Diff(full, got[0]) != "" {
		t.Errorf("the extents of the queue are %v", got)
	}
}

// TestExtents_SetsKeepUp: an extent is in the sets of its state, in whichever order extents come, change and go.
func TestExtents_SetsKeepUp(t *testing.T) {
	x := NewExtents()
	queue := core.QueueID{ID: core.ID{1}}
	var ids []core.ExtentID
	for i := range 4 {
		e := core.Extent{ID: core.ExtentID{ID: core.ID{byte(i + 1)}}, Queue: queue}
		x.Put(Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, State: core.ExtentOpen})
		ids = append(ids, e.ID)
	}
	check := func(open, all int) {
		t.Helper()
		if o, a := len(x.OpenOf(queue)), len(x.Of(queue)); o != open || a != all {
			t.Errorf("%d of %d extents are open, want %d of %d", o, a, open, all)
		}
	}
	state := func(i int, s core.ExtentState) { x.Change(ids[i], func(e *Extent) { e.State = s }) }
	check(4, 4)
	state(1, core.ExtentSealing) // in the middle
	state(3, core.ExtentSealing) // an end
	check(2, 4)
	state(1, core.ExtentSealed)
	check(2, 4)
	x.Remove(ids[0])
	x.Remove(ids[3])
	check(1, 2)
	state(1, core.ExtentOpen)
	check(2, 2)
	x.Remove(ids[1])
	x.Remove(ids[2])
	check(0, 0)
	if x.Has(queue) {
		t.Error("a queue without extents is remembered")
	}
}

// TestPlacesTable_IsBounded: lists are kept once, and too many are forgotten.
func TestPlacesTable_IsBounded(t *testing.T) {
	var lists placesTable
	list := func(i int) *places {
		return lists.of([]core.HostID{core.HostID(fmt.Sprint(i)), "b"}, []core.DiskID{{ID: core.ID{1}}})
	}
	first := list(0)
	if list(0) != first {
		t.Error("equal lists are kept twice")
	}
	for _, other := range []*places{
		lists.of([]core.HostID{"0b"}, nil), lists.of([]core.HostID{"0", "b"}, nil), lists.of([]core.HostID{"0", "b"}, []core.DiskID{{}}),
		lists.ofPlaces([]core.Place{{Store: "0", Disk: core.DiskID{ID: core.ID{1}}}, {Store: "b"}}),
	} {
		if other == first {
			t.Errorf("%v is taken for another list", other)
		}
	}
	for i := range 2 * mostPlaces {
		list(i)
	}
	if n := len(lists.known); n > mostPlaces {
		t.Errorf("%d lists are known, want at most %d", n, mostPlaces)
	}
}

// BenchmarkExtents_Put is what it takes to load an extent, and how many bytes it keeps.
func BenchmarkExtents_Put(b *testing.B) {
	all := make([]Extent, 100_000)
	for i := range all {
		all[i] = decoded(i)
	}
	for b.Loop() {
		b.StopTimer()
		before := living()
		b.StartTimer()
		x := NewExtents()
		for _, e := range all {
			x.Put(e)
		}
		b.StopTimer()
		b.ReportMetric(float64(living()-before)/float64(len(all)), "B/extent")
		runtime.KeepAlive(x)
		b.StartTimer()
	}
}
