package storehost

import (
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
)

func (s *testStore) disk() core.DiskID {
	s.t.Helper()
	log, err := s.host.extents()
	must(s.t, err)
	return log.Identity().Disk
}

func (s *testStore) copyTo(e core.Extent, batches []byte, expected *pb.StoreIdentity) (core.Seq, error) {
	resp, err := s.rpc.Copy(s.t.Context(), connect.NewRequest(&pb.CopyRequest{Extent: e.ID.ID[:], Batches: batches, Expected: expected}))
	if err != nil {
		return 0, convert.FromRPC(err)
	}
	return core.Seq(resp.Msg.Last), nil
}

func (s *testStore) remove(e core.Extent, version uint64, expected *pb.StoreIdentity) error {
	_, err := s.rpc.Remove(s.t.Context(), connect.NewRequest(&pb.RemoveRequest{Extent: e.ID.ID[:], Version: version, Expected: expected}))
	return convert.FromRPC(err)
}

func (s *testStore) sealAt(e core.Extent, w *extentlogtest.Writer, version uint64, expected *pb.StoreIdentity) error {
	_, err := s.rpc.Seal(s.t.Context(), connect.NewRequest(&pb.SealReplicaRequest{
		Extent: convert.ExtentToProto(e), L: uint64(w.Last), Checksum: w.Checksum, Version: version, Expected: expected,
	}))
	return convert.FromRPC(err)
}

func (s *testStore) replica(e core.Extent, expected *pb.StoreIdentity) error {
	_, err := s.rpc.GetReplica(s.t.Context(), connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:], Expected: expected}))
	return convert.FromRPC(err)
}

func (s *testStore) readFrom(e core.Extent, expected *pb.StoreIdentity) error {
	_, err := s.rpc.ReadRange(s.t.Context(), connect.NewRequest(&pb.ReadRangeRequest{Extent: e.ID.ID[:], From: 1, UpTo: 1, Copy: true, Expected: expected}))
	return convert.FromRPC(err)
}

// TestIdentity_EveryCallIsChecked: a call that names another store or another disk does nothing.
func TestIdentity_EveryCallIsChecked(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1"), new(extentlogtest.Writer)
	batch := w.Batch(2, 10)
	right := convert.IdentityToProto(core.StoreIdentity{Store: "s1", Disk: s.disk()})
	wiped := convert.IdentityToProto(core.StoreIdentity{Store: "s1", Disk: core.DiskID{ID: e.ID.ID}})
	elsewhere := &pb.StoreIdentity{Store: "s2"}
	if got := s.fence(e, core.DiskID{ID: e.ID.ID}); got.Health != core.HealthSuspect || got.Last != 0 || got.Identity.Disk != s.disk() {
		t.Fatalf("fence of a disk that was replaced answered %+v, want suspect, and which disk is here", got)
	}
	for _, wrong := range []*pb.StoreIdentity{wiped, elsewhere} {
		_, err := s.copyTo(e, batch, wrong)
		wantCode(t, err, core.CodeConflict)
		wantCode(t, s.sealAt(e, w, 1, wrong), core.CodeConflict)
		wantCode(t, s.remove(e, 1, wrong), core.CodeConflict)
		wantCode(t, s.replica(e, wrong), core.CodeConflict)
		wantCode(t, s.readFrom(e, wrong), core.CodeConflict)
	}
	last, err := s.copyTo(e, batch, right)
	must(t, err)
	if last != 2 {
		t.Fatalf("copied up to %d, want 2", last)
	}
	must(t, s.sealAt(e, w, 1, right))
	must(t, s.replica(e, right))
	must(t, s.readFrom(e, right))
	must(t, s.remove(e, 1, right))
}

func TestIdentity_OpenChecksTheTuple(t *testing.T) {
	s := startStore(t, "s1")
	l := s.dial()
	for name, c := range map[string]struct {
		disks   []core.DiskID
		refused bool
	}{
		"this disk":     {[]core.DiskID{{}, s.disk()}, false},
		"not known":     {[]core.DiskID{s.disk(), {}}, false},
		"without disks": {nil, false},
		"another disk":  {[]core.DiskID{{}, {ID: extent().ID.ID}}, true},
	} {
		e := extent("s2", "s1")
		e.Disks = c.disks
		a := l.stream()
		a.sendProto(wire.TypeOpenAppend, &pb.OpenAppend{Extent: convert.ExtentToProto(e)})
		if c.refused {
			a.expectRefused(core.CodeConflict)
			continue
		}
		if f := a.receive(); f.Type != wire.TypeOpened {
			t.Fatalf("%s: got frame %d %s", name, f.Type, describe(f))
		}
		one, err := s.rpc.GetReplica(t.Context(), connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
		must(t, err)
		if got, err := convert.Extent(one.Msg.Extent); err != nil || !got.Equal(e) {
			t.Fatalf("%s: the header says %+v, %v, want %+v", name, got, err, e)
		}
	}
}

// TestRepair_ToAStoreOutside: a store that is none of the replicas gets a copy, in pieces, some of them twice.
func TestRepair_ToAStoreOutside(t *testing.T) {
	s := startStore(t, "s9")
	e, w := extent("s1", "s2", "s3"), new(extentlogtest.Writer)
	first := append(w.Batch(2, 1000), w.Batch(3, 1000)...)
	second := w.Batch(1, 10)
	if got := s.fence(e, s.disk()); got.Health != core.HealthWeak || !got.Absent {
		t.Fatalf("fence on a store outside: %+v, want weak and absent", got)
	}
	_, err := s.copyTo(e, second, nil)
	wantCode(t, err, core.CodeGap)
	last, err := s.copyTo(e, first, nil)
	must(t, err)
	_, err = s.copyTo(e, first, nil) // its answer got lost: the fence says where to go on
	wantCode(t, err, core.CodeGap)
	if got := s.fence(e, core.DiskID{}).Last; got != last || last != 5 {
		t.Fatalf("answered %d, the fence says %d, want 5", last, got)
	}
	wantCode(t, s.sealAt(e, w, 3, nil), core.CodeIncomplete)
	_, err = s.copyTo(e, second, nil)
	must(t, err)
	must(t, s.sealAt(e, w, 3, nil))
	_, err = s.copyTo(e, w.Batch(1, 1), nil)
	wantCode(t, err, core.CodeConflict)
	wantCode(t, s.remove(e, 2, nil), core.CodeConflict)
	must(t, s.remove(e, 3, nil))
	must(t, s.remove(e, 3, nil))
	_, err = s.rpc.Fence(t.Context(), connect.NewRequest(&pb.FenceRequest{Extent: convert.ExtentToProto(e), Version: 3}))
	wantCode(t, convert.FromRPC(err), core.CodeConflict)
	_, err = s.rpc.Fence(t.Context(), connect.NewRequest(&pb.FenceRequest{Extent: convert.ExtentToProto(e), Version: 4}))
	must(t, err)
}

func TestCopy_DamagedIsRefused(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1"), new(extentlogtest.Writer)
	s.fence(e, core.DiskID{})
	b := w.Batch(2, 10)
	b[len(b)-1] ^= 1
	_, err := s.copyTo(e, b, nil)
	wantCode(t, err, core.CodeBadRecord)
	_, err = s.copyTo(e, nil, nil)
	wantCode(t, err, core.CodeBadArgument)
	if got := s.fence(e, core.DiskID{}); got.Last != 0 {
		t.Fatalf("%d records are stored, want none", got.Last)
	}
}

func TestInventory_OverTheWire(t *testing.T) {
	s := startStore(t, "s1")
	ask := func(req *pb.InventoryRequest) *pb.InventoryResponse {
		t.Helper()
		resp, err := s.rpc.Inventory(t.Context(), connect.NewRequest(req))
		must(t, err)
		if len(resp.Msg.Digests) != core.InventoryBuckets {
			t.Fatalf("%d digests", len(resp.Msg.Digests))
		}
		return resp.Msg
	}
	e := extent("s1")
	s.fence(e, core.DiskID{})
	all := ask(&pb.InventoryRequest{})
	if !all.Complete || !all.FromStart || all.More || len(all.Replicas) != 1 || all.Digests[e.ID.ID[15]] == 0 {
		t.Fatalf("all: %v, want one replica, complete", all)
	}
	run := all.Identity.Run
	must(t, s.sealAt(e, new(extentlogtest.Writer), 1, nil))
	must(t, s.remove(e, 1, nil))
	changes := ask(&pb.InventoryRequest{Run: run, Since: all.Position})
	if changes.Complete || changes.FromStart || len(changes.Removed) != 1 || len(changes.Replicas) != 0 {
		t.Fatalf("changes: %v, want one removal", changes)
	}
	other := extent("s1")
	s.fence(other, core.DiskID{})
	bucket := ask(&pb.InventoryRequest{Run: run, Since: changes.Position + 1, Buckets: []uint32{uint32(core.InventoryBucket(other.ID))}})
	if !bucket.Complete || len(bucket.Replicas) != 1 {
		t.Fatalf("bucket: %v, want the one replica, whatever it was asked since", bucket)
	}
	s.restart()
	if again := ask(&pb.InventoryRequest{Run: run, Since: bucket.Position}); !again.Complete || len(again.Replicas) != 1 {
		t.Fatalf("after a restart: %v, want everything", again)
	}
	_, err := s.rpc.Inventory(t.Context(), connect.NewRequest(&pb.InventoryRequest{Buckets: []uint32{256}}))
	wantCode(t, convert.FromRPC(err), core.CodeBadArgument)
}

func openRequest(e core.Extent) *pb.OpenAppend {
	return &pb.OpenAppend{Extent: convert.ExtentToProto(e)}
}
