package convert

import (
	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// maxWord bounds words of which this build may not know all.
const maxWord = 64

// Extent reads a tuple. An id that is not 16 bytes or, of the extent or its queue, nothing but zeros is CodeBadID; a
// name that no host can have is CodeBadName: whatever is kept for good must have a bound.
func Extent(p *pb.Extent) (core.Extent, error) {
	if p == nil {
		return core.Extent{}, core.Errorf(core.CodeBadArgument, "extent is missing")
	}
	var ids [4]core.ID
	for i, b := range [][]byte{p.Id, p.Queue, p.InputRun, p.Token} {
		var err error
		if ids[i], err = core.IDFromBytes(b); err != nil {
			return core.Extent{}, err
		}
	}
	if ids[0].IsZero() || ids[1].IsZero() {
		return core.Extent{}, core.Errorf(core.CodeBadID, "extent or its queue has an id of zeros")
	}
	if len(p.Kind) > maxWord || len(p.Durability) > maxWord || len(p.Horizon) > maxWord {
		return core.Extent{}, core.Errorf(core.CodeBadArgument, "extent is of no known kind")
	}
	input, err := core.ParseHostID(p.Input)
	if err != nil {
		return core.Extent{}, err
	}
	if len(p.Replicas) == 0 || len(p.Replicas) > core.MaxReplicas {
		return core.Extent{}, core.Errorf(core.CodeBadArgument, "extent has %d replicas, not 1 … %d", len(p.Replicas), core.MaxReplicas)
	}
	e := core.Extent{
		ID: core.ExtentID{ID: ids[0]}, Queue: core.QueueID{ID: ids[1]},
		Kind: core.ExtentKind(p.Kind), Durability: core.Durability(p.Durability),
		Input: input, InputRun: core.RunID{ID: ids[2]}, Token: core.WriterToken{ID: ids[3]},
		Chain: p.Chain, Horizon: core.Horizon(p.Horizon),
	}
	for _, r := range p.Replicas {
		id, err := core.ParseHostID(r)
		if err != nil {
			return core.Extent{}, err
		}
		e.Replicas = append(e.Replicas, id)
	}
	if len(p.Disks) == 0 {
		return e, nil
	}
	if len(p.Disks) != len(p.Replicas) {
		return core.Extent{}, core.Errorf(core.CodeBadArgument, "extent has %d disks for %d replicas", len(p.Disks), len(p.Replicas))
	}
	e.Disks = make([]core.DiskID, len(p.Disks))
	for i, b := range p.Disks {
		if len(b) == 0 {
			continue
		}
		var err error
		if e.Disks[i].ID, err = core.IDFromBytes(b); err != nil {
			return core.Extent{}, err
		}
	}
	return e, nil
}

func ExtentToProto(e core.Extent) *pb.Extent {
	p := &pb.Extent{
		Id: e.ID.ID[:], Queue: e.Queue.ID[:], Kind: string(e.Kind), Durability: string(e.Durability),
		Input: string(e.Input), InputRun: e.InputRun.ID[:], Token: e.Token.ID[:],
		Chain: e.Chain, Horizon: string(e.Horizon),
	}
	for _, r := range e.Replicas {
		p.Replicas = append(p.Replicas, string(r))
	}
	for _, d := range e.Disks {
		if d.IsZero() {
			p.Disks = append(p.Disks, nil)
		} else {
			p.Disks = append(p.Disks, d.ID[:])
		}
	}
	return p
}

// Identity reads a store's identity; empty ids stay zero ("any").
func Identity(p *pb.StoreIdentity) (core.StoreIdentity, error) {
	out := core.StoreIdentity{Store: core.HostID(p.GetStore())}
	var err error
	if len(p.GetDisk()) > 0 {
		if out.Disk.ID, err = core.IDFromBytes(p.Disk); err != nil {
			return out, err
		}
	}
	if len(p.GetRun()) > 0 {
		out.Run.ID, err = core.IDFromBytes(p.Run)
	}
	return out, err
}

func IdentityToProto(s core.StoreIdentity) *pb.StoreIdentity {
	return &pb.StoreIdentity{Store: string(s.Store), Disk: s.Disk.ID[:], Run: s.Run.ID[:]}
}

// FenceAnswer reads a store's answer.
func FenceAnswer(p *pb.FenceResponse) (core.FenceAnswer, error) {
	id, err := Identity(p.GetIdentity())
	return core.FenceAnswer{
		Identity: id, Health: core.Health(p.Health), Absent: p.Absent, Last: core.Seq(p.Last), Committed: core.Seq(p.Committed),
		Checksum: p.Checksum, Bytes: p.Bytes, Sealed: p.Sealed, L: core.Seq(p.L),
	}, err
}

func FenceAnswerToProto(a core.FenceAnswer) *pb.FenceResponse {
	return &pb.FenceResponse{
		Identity: IdentityToProto(a.Identity), Health: string(a.Health), Absent: a.Absent, Last: uint64(a.Last), Committed: uint64(a.Committed),
		Checksum: a.Checksum, Sealed: a.Sealed, L: uint64(a.L), Bytes: a.Bytes,
	}
}
