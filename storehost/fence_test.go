package storehost

import (
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
)

func TestGrade(t *testing.T) {
	is := core.StoreIdentity{Store: "s1", Disk: core.DiskID{ID: extent().ID.ID}, Run: core.RunID{ID: extent().ID.ID}}
	earlier := is
	earlier.Run = core.RunID{ID: extent().ID.ID}
	other := core.StoreIdentity{Store: "s1", Disk: core.DiskID{ID: extent().ID.ID}}
	for name, c := range map[string]struct {
		state    extentlog.State
		expected core.StoreIdentity
		health   core.Health
		last     core.Seq
		absent   bool
	}{
		"this run":        {extentlog.State{Opened: true, Header: is, Last: 5}, is, core.HealthOK, 5, false},
		"any disk":        {extentlog.State{Opened: true, Header: is, Last: 5}, core.StoreIdentity{}, core.HealthOK, 5, false},
		"earlier run":     {extentlog.State{Opened: true, Header: earlier, Last: 5}, is, core.HealthWeak, 5, false},
		"never heard of":  {extentlog.State{}, is, core.HealthWeak, 0, true},
		"only copies":     {extentlog.State{Last: 3}, is, core.HealthWeak, 3, false},
		"damaged":         {extentlog.State{Opened: true, Header: is, Last: 5, Damaged: true}, is, core.HealthSuspect, 5, false},
		"lying disk":      {extentlog.State{Opened: true, Header: is, Last: 5, Committed: 6}, is, core.HealthSuspect, 5, false},
		"short and told":  {extentlog.State{Opened: true, Header: is, Last: 5, Committed: 6, Sealed: true, L: 7}, is, core.HealthOK, 5, false},
		"disk was wiped":  {extentlog.State{}, other, core.HealthSuspect, 0, true},
		"all is well too": {extentlog.State{Opened: true, Header: is, Last: 5, Committed: 5}, is, core.HealthOK, 5, false},
	} {
		if a := grade(is, c.expected, c.state); a.Health != c.health || a.Last != c.last || a.Absent != c.absent || a.Identity != is {
			t.Errorf("%s: got %+v, want %s, last %d, absent %v", name, a, c.health, c.last, c.absent)
		}
	}
}

func TestFence_WeakAfterRestart(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	a.append(w.Batch(3, 10), 0)
	a.awaitAck(3)
	s.restart()
	got := s.fence(e, core.DiskID{})
	if got.Health != core.HealthWeak || got.Last != 3 || got.Absent {
		t.Fatalf("after a restart: %+v, want weak, 3", got)
	}
	again := s.fence(e, got.Identity.Disk)
	if again != got {
		t.Fatalf("fenced again: %+v, want %+v", again, got)
	}
}

func TestFence_Absent(t *testing.T) {
	s := startStore(t, "s1")
	if got := s.fence(extent("s1"), core.DiskID{}); got.Health != core.HealthWeak || !got.Absent || got.Last != 0 {
		t.Fatalf("never heard of: %+v, want weak and absent", got)
	}
	e := convert.ExtentToProto(extent("s1"))
	_, err := s.rpc.Fence(t.Context(), connect.NewRequest(&pb.FenceRequest{Extent: e, Expected: &pb.StoreIdentity{Store: "s9"}}))
	wantCode(t, convert.FromRPC(err), core.CodeConflict)
	_, err = s.rpc.Fence(t.Context(), connect.NewRequest(&pb.FenceRequest{}))
	wantCode(t, convert.FromRPC(err), core.CodeBadArgument)
}

// TestCopy_ToAnotherStore brings a replica that missed the end up to it, as a controller does in a seal.
func TestCopy_ToAnotherStore(t *testing.T) {
	long, short := startStore(t, "s1"), startStore(t, "s2")
	e, w := extent("s1", "s2"), new(extentlogtest.Writer)
	a, b := long.dial().openAppend(e), short.dial().openAppend(e)
	for i := range 20 {
		batch := w.Batch(2, 1000)
		a.append(batch, 0)
		if i < 5 {
			b.append(batch, 0)
		}
	}
	a.awaitAck(40)
	b.awaitAck(10)
	read := func(from core.Seq) ([]byte, error) {
		resp, err := long.rpc.ReadRange(t.Context(), connect.NewRequest(&pb.ReadRangeRequest{Extent: e.ID.ID[:], From: uint64(from), UpTo: 40, MaxBytes: 5000, Copy: true}))
		if err != nil {
			return nil, convert.FromRPC(err)
		}
		return resp.Msg.Batches, nil
	}
	_, err := read(11)
	wantCode(t, err, core.CodeConflict) // not fenced
	end := long.fence(e, core.DiskID{})
	next := short.fence(e, core.DiskID{}).Last + 1
	for next <= end.Last {
		batches, err := read(next)
		must(t, err)
		_, err = short.rpc.Copy(t.Context(), connect.NewRequest(&pb.CopyRequest{Extent: e.ID.ID[:], Batches: batches}))
		must(t, err)
		next = short.fence(e, core.DiskID{}).Last + 1
	}
	_, err = read(41)
	wantCode(t, err, core.CodeIncomplete)
	for _, s := range []*testStore{long, short} {
		must(t, s.seal(e, end.Last, end.Checksum))
		r := s.dial().openRead(e, 1, 1<<20)
		r.readTo(1, 40)
		r.expect(wire.TypeReadSealed, 40)
	}
}

func TestSeal_Unfenced(t *testing.T) {
	s := startStore(t, "s1")
	must(t, s.seal(extent("s1"), 0, 0)) // missed everything, told the end: fenced on the way
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	a.append(w.Batch(1, 1), 0)
	a.awaitAck(1)
	must(t, s.seal(e, w.Last, w.Checksum))
	a.append(w.Batch(1, 1), 0)
	a.expectRefused(core.CodeFenced)
}

func TestInventoryAndSeek(t *testing.T) {
	s := startStore(t, "s1")
	e, w := extent("s1"), new(extentlogtest.Writer)
	a := s.dial().openAppend(e)
	for range 3 {
		a.append(w.Batch(2, 10), 0) // at 1000, 2000, 3000 µs
	}
	a.awaitAck(6)
	s.fence(extent("s1"), core.DiskID{})
	resp, err := s.rpc.Inventory(t.Context(), connect.NewRequest(&pb.InventoryRequest{}))
	must(t, err)
	if len(resp.Msg.Replicas) != 2 || resp.Msg.Identity.Store != "s1" {
		t.Fatalf("inventory: %v, want two replicas", resp.Msg)
	}
	one, err := s.rpc.GetReplica(t.Context(), connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
	must(t, err)
	if one.Msg.Last != 6 || !one.Msg.Opened || one.Msg.Fenced {
		t.Fatalf("replica: %v, want 6 records, open", one.Msg)
	}
	seek, err := s.rpc.Seek(t.Context(), connect.NewRequest(&pb.SeekRequest{Extent: e.ID.ID[:], Time: convert.Time(unixMicro(1500))}))
	must(t, err)
	if seek.Msg.Seq != 3 {
		t.Fatalf("seek 1500 µs: %d, want 3", seek.Msg.Seq)
	}
	_, err = s.rpc.Seek(t.Context(), connect.NewRequest(&pb.SeekRequest{Extent: []byte{1}}))
	wantCode(t, convert.FromRPC(err), core.CodeBadID)
}
