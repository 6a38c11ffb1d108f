package outputhost

import (
	"runtime"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestHost_IdleGroupsCostLittle gives it many groups, each with a share that nobody consumes.
func TestHost_IdleGroupsCostLittle(t *testing.T) {
	const n = 3_000
	b := newHarness(t)
	list := make([]*pb.Assignment, n)
	for i := range list {
		_, list[i] = b.group()
	}
	bytes, goroutines := heapBytes(), runtime.NumGoroutine()
	if err := b.give(1, list...); err != nil {
		t.Fatal(err)
	}
	if b.loaded() != n {
		t.Fatalf("%d groups are loaded", b.loaded())
	}
	per := (int64(heapBytes()) - int64(bytes)) / n
	t.Logf("%d bytes for a group", per)
	if per > 4<<10 {
		t.Errorf("%d bytes for a group, want up to 4 KiB", per)
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines more", now-goroutines)
	}
	runtime.KeepAlive(list)
}

// TestHost_GroupsWithoutWorkAreUnloaded keeps those in use.
func TestHost_GroupsWithoutWorkAreUnloaded(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g, err := b.groupOf(t.Context(), r.Queue, "g", core.GroupID{})
	if err != nil {
		t.Fatal(err)
	}
	if b.unload(g); b.loaded() != 1 {
		t.Error("a group with a share was unloaded")
	}
	if err := b.give(2); err != nil {
		t.Fatal(err)
	}
	if b.unload(g); b.loaded() != 1 {
		t.Error("a group in use was unloaded")
	}
	g.release()
	if b.unload(g); b.loaded() != 1 {
		t.Error("a group was unloaded before late acks of its last share were saved")
	}
	b.saver.save(t.Context(), false)
	g.forgetGivenLocked(b.deps.Now().Add(2 * lateFor))
	if b.unload(g); b.loaded() != 0 {
		t.Error("a group without work stays loaded")
	}
	again, err := b.groupOf(t.Context(), r.Queue, "g", core.GroupID{})
	if err != nil || again == g {
		t.Errorf("looked up again: %v, the same %v", err, again == g)
	}
	again.release()
}

// TestGroup_EndOfAnUnreadExtentIsFound seals an extent that is consumed and that nobody reads.
func TestGroup_EndOfAnUnreadExtentIsFound(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	e, err := convert.Extent(a.Extent)
	if err != nil {
		t.Fatal(err)
	}
	state := dispatch.StartAfter(7)
	key := metadata.CheckpointKey(r.ID, e.ID, 0, core.RunID{})
	if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, state.Append(nil), b.deps.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	b.write(metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 7})
	g := b.groupList()[0]
	if err := b.lookForEnds(t.Context(), b.groupList()); err != nil {
		t.Fatal(err)
	}
	b.saver.save(t.Context(), false)
	d, _, err := metadata.Read[metadata.DoneRecord](t.Context(), b.meta, metadata.Dones, metadata.DoneKey(r.ID, e.ID, 0), metadata.One)
	if err != nil || d.L != 7 {
		t.Errorf("done row %+v, %v; want 7", d, err)
	}
	if b.unload(g); b.loaded() != 0 {
		t.Error("the group stays loaded")
	}
}

// TestHost_OneBadShareStopsNoOther has a checkpoint that does not decode.
func TestHost_OneBadShareStopsNoOther(t *testing.T) {
	b := newHarness(t)
	bad, first := b.group()
	good, second := b.group()
	e, err := convert.Extent(first.Extent)
	if err != nil {
		t.Fatal(err)
	}
	key := metadata.CheckpointKey(bad.ID, e.ID, 0, core.RunID{})
	if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, []byte("damaged"), b.deps.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	if err := b.give(1, first, second); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("got %v, want %s, so that it is tried again", err, core.CodeCorrupt)
	}
	shares := make(map[core.GroupID]int)
	for _, g := range b.groupList() {
		shares[g.id] = len(g.mu.shares)
	}
	if shares[good.ID] != 1 || shares[bad.ID] != 0 {
		t.Errorf("shares %v, want one of the good group %s", shares, good.ID)
	}
}

// TestShare_HandlesForgetGivenUpShares looks at what a consumer that stays keeps of extents that come and go.
func TestShare_HandlesForgetGivenUpShares(t *testing.T) {
	b := newHarness(t)
	g, s := b.given()
	c := &consumer{h: b.Host, handles: map[*share]uint32{s: 0}, shares: []*share{s}}
	g.mu.consumers = append(g.mu.consumers, c)
	if c.shareLocked(0) != s || c.shareLocked(1) != nil {
		t.Fatal("a handle does not lead to its share")
	}
	if err := b.give(2); err != nil {
		t.Fatal(err)
	}
	if c.shareLocked(0) != nil || c.lateLocked(0) != s || shareOf(s.rules) != nil {
		t.Errorf("a share of %s that was given away is still delivered, or its late acks are not taken", g.id)
	}
	b.saver.save(t.Context(), false)
	g.forgetGivenLocked(b.deps.Now().Add(2 * lateFor))
	if c.shares[0] != movedShare || c.lackLocked(0) != errMoved || c.lackLocked(1) != errForgotten || len(c.handles) != 0 || len(g.mu.given) != 0 {
		t.Errorf("the consumer of %s keeps a share that was given away long ago", g.id)
	}
	g.mu.consumers = nil
}

// TestShare_HandlesForgetSharesThatCameBack: the handles of an extent that comes back again and again, each time with
// another name, keep no share but the one that is there.
func TestShare_HandlesForgetSharesThatCameBack(t *testing.T) {
	b := newHarness(t)
	_, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	c := &consumer{h: b.Host, handles: make(map[*share]uint32)}
	g.mu.consumers = append(g.mu.consumers, c)
	all := func(what string, s *share) {
		t.Helper()
		for handle, kept := range c.shares {
			if kept != s {
				t.Errorf("%s: handle %d keeps %p, want %p", what, handle, kept, s)
			}
		}
	}
	version := uint64(1)
	for range 4 {
		s := g.mu.shares[core.ExtentID{ID: core.ID(a.Extent.Id)}]
		all("it came back", s)
		if version != 3 { // nothing of it is delivered then
			c.handles[s] = uint32(len(c.shares))
			c.shares = append(c.shares, s)
		}
		version++
		a.Counter += 2
		if err := b.give(version, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.give(version + 1); err != nil {
		t.Fatal(err)
	}
	b.saver.save(t.Context(), false)
	g.forgetGivenLocked(b.deps.Now().Add(2 * lateFor))
	if all("it was given away long ago", movedShare); len(c.shares) != 3 || len(c.handles) != 0 {
		t.Errorf("%d handles, and %d shares, want 3 and none", len(c.shares), len(c.handles))
	}
	g.mu.consumers = nil
}
