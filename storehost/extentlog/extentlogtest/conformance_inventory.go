package extentlogtest

import (
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
)

const everything = 1 << 20

// picture is what somebody who asks for inventories knows.
type picture struct {
	f        *fixture
	position uint64
	replicas map[core.ExtentID]extentlog.State
}

func newPicture(f *fixture) *picture {
	return &picture{f: f, replicas: make(map[core.ExtentID]extentlog.State)}
}

// ask takes in one answer.
func (p *picture) ask(most int) extentlog.Inventory {
	p.f.t.Helper()
	got := p.f.Inventory(extentlog.InventoryQuery{After: p.position, Most: most})
	if n := len(got.Replicas) + len(got.Removed); n > most {
		p.f.t.Fatalf("%d changes in one answer, want at most %d", n, most)
	}
	if got.FromStart {
		clear(p.replicas)
	}
	for _, id := range got.Removed {
		delete(p.replicas, id)
	}
	for _, s := range got.Replicas {
		p.replicas[s.Extent.ID] = s
	}
	p.position = got.Position
	return got
}

// expect compares the picture with what is listed, and its digests with those answered.
func (p *picture) expect(digests [core.InventoryBuckets]uint64) {
	p.f.t.Helper()
	want := make(map[core.ExtentID]extentlog.State)
	var sums [core.InventoryBuckets]uint64
	must(p.f.t, p.f.List(func(s extentlog.State) bool {
		want[s.Extent.ID] = s
		complete := s.Sealed && s.Last == s.L
		if !complete {
			s.L, s.Checksum = 0, 0
		}
		sums[core.InventoryBucket(s.Extent.ID)] ^= core.ReplicaDigest(s.Extent.ID, complete, s.L, s.Checksum, s.Damaged)
		return true
	}))
	if diff := cmp.Diff(want, p.replicas); diff != "" {
		p.f.t.Fatalf("what is listed, and what the inventories say:\n%s", diff)
	}
	if sums != digests {
		p.f.t.Fatal("the digests are not those of the replicas")
	}
}

// inventory: each change is answered once, in order; appends are none.
func inventory(f *fixture) {
	p := newPicture(f)
	if got := p.ask(everything); len(got.Replicas) != 0 || got.More || !got.FromStart || got.Digests != [core.InventoryBuckets]uint64{} {
		f.t.Fatalf("an empty store answers %+v", got)
	}
	e, w := f.opened(2)
	other, _ := f.opened(1)
	p.expect(p.ask(everything).Digests)
	f.append(e.ID, w, 3)
	f.Commit(e.ID, w.Last)
	changed := func(what string, want ...core.ExtentID) {
		f.t.Helper()
		got := p.ask(everything)
		var ids []core.ExtentID
		for _, s := range got.Replicas {
			ids = append(ids, s.Extent.ID)
		}
		if !slices.Equal(ids, want) || len(got.Removed) != 0 || got.FromStart {
			f.t.Fatalf("%s: %v changed, want %v", what, ids, want)
		}
		p.replicas[e.ID], p.replicas[other.ID] = f.state(e.ID), f.state(other.ID) // appends are told with the next change
		p.expect(got.Digests)
	}
	changed("appends")
	_, err := f.Fence(other, 0)
	must(f.t, err)
	_, err = f.Fence(e, 0)
	must(f.t, err)
	changed("fences", other.ID, e.ID)
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0))
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 0))
	changed("seal", e.ID)
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 4))
	changed("version", e.ID)
	short := Writer{Last: 3, Checksum: f.state(other.ID).Checksum}
	missing := short.Batch(1, 1)
	wantCode(f.t, f.Seal(other.ID, short.Last, short.Checksum, 0), core.CodeIncomplete)
	changed("seal of a short one", other.ID)
	must(f.t, f.copied(other.ID, missing))
	changed("complete", other.ID)
	must(f.t, f.Remove(e.ID, 4))
	if got := p.ask(everything); !slices.Equal(got.Removed, []core.ExtentID{e.ID}) || len(got.Replicas) != 0 {
		f.t.Fatalf("after a removal: %v removed, %d changed", got.Removed, len(got.Replicas))
	}
	_, err = f.Fence(e, 5)
	must(f.t, err)
	p.expect(p.ask(everything).Digests)
}

// inventoryPages: small answers, with changes between them, end in the same picture; so do those of buckets.
func inventoryPages(f *fixture) {
	var extents []core.Extent
	for range 20 {
		e, _ := f.opened(1)
		extents = append(extents, e)
	}
	p := newPicture(f)
	for i := 0; ; i++ {
		got := p.ask(3)
		if got.FromStart != (i == 0) {
			f.t.Fatalf("answer %d: from the start %v", i, got.FromStart)
		}
		if !got.More {
			p.expect(got.Digests)
			break
		}
		switch e := extents[2*i]; i {
		case 0, 5: // listed already; not listed yet
			must(f.t, Remove(f, e, 1))
		case 1, 4:
			_, err := f.Fence(e, 0)
			must(f.t, err)
		case 2:
			f.opened(0)
		}
	}
	if len(p.replicas) != 19 {
		f.t.Fatalf("%d replicas, want 19", len(p.replicas))
	}
	want := make(map[core.ExtentID]bool)
	var buckets []uint32
	for _, e := range extents[11:14] {
		buckets = append(buckets, uint32(core.InventoryBucket(e.ID)))
	}
	for id := range p.replicas {
		if slices.Contains(buckets, uint32(core.InventoryBucket(id))) {
			want[id] = true
		}
	}
	got := make(map[core.ExtentID]bool)
	for q := (extentlog.InventoryQuery{Buckets: buckets, Most: 1}); ; {
		answer := f.Inventory(q)
		for _, s := range answer.Replicas {
			got[s.Extent.ID] = true
		}
		if q.After = answer.Position; !answer.More {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Fatalf("replicas of buckets %v:\n%s", buckets, diff)
	}
}

// inventoryAfterRestart: what is on the disk is listed from the start; a position from nowhere begins there, too.
func inventoryAfterRestart(f *fixture) {
	e, w := f.opened(2)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	must(f.t, f.Seal(e.ID, w.Last, w.Checksum, 2))
	gone, _ := f.opened(1)
	must(f.t, Remove(f, gone, 1))
	f.opened(1)
	before := f.Inventory(extentlog.InventoryQuery{Most: everything})
	f.reopen()
	p := newPicture(f)
	p.position = before.Position + 100
	got := p.ask(everything)
	if !got.FromStart || len(got.Removed) != 0 || got.Digests != before.Digests {
		f.t.Fatalf("after a restart: from the start %v, %d removed, or other digests", got.FromStart, len(got.Removed))
	}
	p.expect(got.Digests)
}
