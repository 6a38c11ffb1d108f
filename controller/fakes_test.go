package controller

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// fakeStore keeps replicas in memory by the rules of a store. Each record is a batch of its own.
type fakeStore struct {
	columbav1connect.UnimplementedStoreServiceHandler
	r  *harness
	id core.HostID

	mu       sync.Mutex
	disk     core.DiskID
	run      core.RunID
	free     uint64 // percent
	refuses  bool
	full     bool
	replicas map[core.ExtentID]*fakeReplica
	position uint64
	removed  map[core.ExtentID]removal
	hung     chan struct{} // calls wait until it is closed
	calls    map[string]int
	listed   int  // replicas in answers about its inventory
	still    bool // its replicas change by changed alone
	digests  struct {
		all      []uint64 // of the inventory, when it was …
		position uint64   // … here
	}
}

type removal struct{ position, version uint64 }

type fakeReplica struct {
	tuple                         core.Extent
	opened, fenced, sealed, wrong bool // wrong: damaged
	header                        core.RunID
	l, committed                  core.Seq
	batches                       [][]byte
	version, position             uint64
}

func (x *fakeReplica) last() core.Seq { return core.Seq(len(x.batches)) }

func (x *fakeReplica) sum() uint32 { return sumOf(x.batches) }

func sumOf(batches [][]byte) uint32 {
	if len(batches) == 0 {
		return 0
	}
	b, _ := wire.DecodeBatch(batches[len(batches)-1])
	return b.Checksum
}

// batch is the one that holds record seq, after prefix. It is as old as may be.
func batch(seq core.Seq, text string, prefix uint32) []byte { return batchAt(seq, text, prefix, 1) }

// batchAt is a batch that was appended at an instant, unix µs.
func batchAt(seq core.Seq, text string, prefix uint32, at int64) []byte {
	record, err := wire.AppendRecord(nil, &wire.Record{Payload: []byte(text)})
	if err != nil {
		panic(err)
	}
	b := make([]byte, wire.BatchHeaderLen, wire.BatchHeaderLen+len(record))
	wire.PutBatchHeader(b, wire.BatchHeader{Count: 1, Base: seq, AppendTime: at, Checksum: wire.ExtendChecksum(prefix, record)})
	return append(b, record...)
}

func (s *fakeStore) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// changed moves the replica to the end of the inventory.
func (s *fakeStore) changed(x *fakeReplica) {
	s.position++
	x.position = s.position
}

// write appends records to the replica of an extent, opening it first: what a writer did.
func (s *fakeStore) write(e core.Extent, texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.replicas[e.ID]
	if x == nil {
		x = &fakeReplica{tuple: e, opened: true, header: s.run}
		s.replicas[e.ID] = x
		s.changed(x)
	}
	if x.fenced {
		panic("append to a fenced replica")
	}
	for _, text := range texts {
		x.batches = append(x.batches, batch(x.last()+1, text, x.sum()))
	}
}

// has answers what it holds of an extent; nil for nothing.
func (s *fakeStore) has(id core.ExtentID) *fakeReplica {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.replicas[id]; x != nil {
		out := *x
		out.batches = slices.Clone(x.batches)
		return &out
	}
	return nil
}

// edit changes a replica as a fault does.
func (s *fakeStore) edit(id core.ExtentID, f func(*fakeReplica)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.replicas[id])
	s.changed(s.replicas[id])
}

func (s *fakeStore) identity() *pb.StoreIdentity {
	return convert.IdentityToProto(core.StoreIdentity{Store: s.id, Disk: s.disk, Run: s.run})
}

// guard makes calls wait while the store hangs, and counts them.
func (s *fakeStore) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.mu.Lock()
		s.calls[req.URL.Path]++
		hung := s.hung
		s.mu.Unlock()
		if hung != nil {
			select {
			case <-hung:
			case <-req.Context().Done():
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

func (s *fakeStore) check(expected *pb.StoreIdentity) error {
	want, err := convert.Identity(expected)
	if err != nil {
		return convert.RPCError(err)
	}
	if want.Store != "" && want.Store != s.id || !want.Disk.IsZero() && want.Disk != s.disk {
		return convert.RPCError(core.Errorf(core.CodeConflict, "another store or disk"))
	}
	return nil
}

func (s *fakeStore) Describe(context.Context, *connect.Request[pb.DescribeRequest]) (*connect.Response[pb.StoreDescription], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return connect.NewResponse(&pb.StoreDescription{Identity: s.identity(), FreeBytes: s.free, TotalBytes: 100, RefusesAppends: s.refuses, Full: s.full}), nil
}

func (s *fakeStore) Fence(_ context.Context, req *connect.Request[pb.FenceRequest]) (*connect.Response[pb.FenceResponse], error) {
	e, err := convert.Extent(req.Msg.Extent)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.Disk(s.id).IsZero() && len(req.Msg.Expected.GetDisk()) == 0 {
		s.r.t.Errorf("store %s is fenced without a word which disk is meant", s.id)
	}
	if g, ok := s.removed[e.ID]; ok && req.Msg.Version <= g.version {
		return nil, convert.RPCError(core.Errorf(core.CodeConflict, "removed"))
	}
	x := s.replicas[e.ID]
	if x == nil {
		x = &fakeReplica{tuple: e}
		s.replicas[e.ID] = x
	}
	delete(s.removed, e.ID)
	if !x.fenced {
		x.fenced = true
		s.changed(x)
	}
	a := core.FenceAnswer{
		Identity: core.StoreIdentity{Store: s.id, Disk: s.disk, Run: s.run}, Health: core.HealthOK, Absent: !x.opened && x.last() == 0,
		Last: x.last(), Committed: x.committed, Checksum: x.sum(), Bytes: uint64(len(x.batches)), Sealed: x.sealed, L: x.l,
	}
	want, _ := convert.Identity(req.Msg.Expected)
	switch {
	case !want.Disk.IsZero() && want.Disk != s.disk:
		a.Health, a.Last, a.Checksum = core.HealthSuspect, 0, 0
	case x.wrong:
		a.Health = core.HealthSuspect
	case !x.opened, x.header != s.run:
		a.Health = core.HealthWeak
	}
	return connect.NewResponse(convert.FenceAnswerToProto(a)), nil
}

func (s *fakeStore) Seal(ctx context.Context, req *connect.Request[pb.SealReplicaRequest]) (*connect.Response[pb.SealReplicaResponse], error) {
	// A store asks of most ends that are not its own; this one asks of all.
	if _, err := s.r.asked().ConfirmEnd(ctx, connect.NewRequest(&pb.ConfirmEndRequest{
		Extent: req.Msg.Extent.Id, L: req.Msg.L, Checksum: req.Msg.Checksum, Version: req.Msg.Version,
	})); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(req.Msg.Expected); err != nil {
		return nil, err
	}
	id, l := core.ExtentID{ID: core.ID(req.Msg.Extent.Id)}, core.Seq(req.Msg.L)
	x := s.replicas[id]
	switch {
	case x == nil:
		return nil, convert.RPCError(core.Errorf(core.CodeNotFound, "no such extent"))
	case x.wrong:
		return nil, convert.RPCError(core.Errorf(core.CodeCorrupt, "damaged"))
	case x.sealed && x.l != l:
		return nil, convert.RPCError(core.Errorf(core.CodeConflict, "sealed at %d", x.l))
	case l < x.committed:
		return nil, convert.RPCError(core.Errorf(core.CodeConflict, "%d is known to be committed", x.committed))
	case x.last() >= l && sumOf(x.batches[:l]) != req.Msg.Checksum:
		x.wrong = true
		s.changed(x)
		return nil, convert.RPCError(core.Errorf(core.CodeCorrupt, "checksum differs at %d", l))
	}
	if x.last() > l {
		x.batches = x.batches[:l]
	}
	x.fenced, x.sealed, x.l, x.version = true, true, l, max(x.version, req.Msg.Version)
	s.changed(x)
	if x.last() < l {
		return nil, convert.RPCError(core.Errorf(core.CodeIncomplete, "ends at %d", x.last()))
	}
	return connect.NewResponse(&pb.SealReplicaResponse{}), nil
}

func (s *fakeStore) ReadRange(_ context.Context, req *connect.Request[pb.ReadRangeRequest]) (*connect.Response[pb.ReadRangeResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(req.Msg.Expected); err != nil {
		return nil, err
	}
	x := s.replicas[core.ExtentID{ID: core.ID(req.Msg.Extent)}]
	switch {
	case x == nil:
		return nil, convert.RPCError(core.Errorf(core.CodeNotFound, "no such extent"))
	case x.wrong:
		return nil, convert.RPCError(core.Errorf(core.CodeCorrupt, "damaged"))
	case !req.Msg.Copy && (!x.sealed || core.Seq(req.Msg.From) > x.l):
		return nil, convert.RPCError(core.Errorf(core.CodeConflict, "not for readers"))
	case core.Seq(req.Msg.From) > x.last():
		return nil, convert.RPCError(core.Errorf(core.CodeIncomplete, "ends at %d", x.last()))
	}
	out := &pb.ReadRangeResponse{}
	for _, b := range x.batches[req.Msg.From-1 : min(uint64(x.last()), req.Msg.UpTo, req.Msg.From+1)] { // two at a time
		out.Batches = append(out.Batches, b...)
	}
	return connect.NewResponse(out), nil
}

func (s *fakeStore) Copy(_ context.Context, req *connect.Request[pb.CopyRequest]) (*connect.Response[pb.CopyResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(req.Msg.Expected); err != nil {
		return nil, err
	}
	x := s.replicas[core.ExtentID{ID: core.ID(req.Msg.Extent)}]
	if x == nil || !x.fenced {
		return nil, convert.RPCError(core.Errorf(core.CodeConflict, "not fenced"))
	}
	for rest := req.Msg.Batches; len(rest) > 0; {
		b, after, err := wire.NextBatch(rest)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		if b.Base != x.last()+1 || x.sealed && b.Last() > x.l || wire.ExtendChecksum(x.sum(), b.Records) != b.Checksum {
			return nil, convert.RPCError(core.Errorf(core.CodeGap, "batch %d does not follow %d", b.Base, x.last()))
		}
		x.batches, rest = append(x.batches, slices.Clone(b.Bytes)), after
	}
	s.changed(x)
	return connect.NewResponse(&pb.CopyResponse{Last: uint64(x.last())}), nil
}

func (s *fakeStore) GetReplica(_ context.Context, req *connect.Request[pb.GetReplicaRequest]) (*connect.Response[pb.Replica], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(req.Msg.Expected); err != nil {
		return nil, err
	}
	x := s.replicas[core.ExtentID{ID: core.ID(req.Msg.Extent)}]
	if x == nil {
		return nil, convert.RPCError(core.Errorf(core.CodeNotFound, "no such extent"))
	}
	return connect.NewResponse(x.proto()), nil
}

func (x *fakeReplica) proto() *pb.Replica {
	return &pb.Replica{
		Extent: convert.ExtentToProto(x.tuple), Opened: x.opened, Fenced: x.fenced, Sealed: x.sealed, L: uint64(x.l), Last: uint64(x.last()),
		Committed: uint64(x.committed), Checksum: x.sum(), Damaged: x.wrong, Version: x.version,
	}
}

func (s *fakeStore) Remove(ctx context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	s.mu.Lock()
	is := s.identity()
	s.mu.Unlock()
	if _, err := s.r.asked().ConfirmRemoval(ctx, connect.NewRequest(&pb.ConfirmRemovalRequest{Extent: req.Msg.Extent, Version: req.Msg.Version, Store: is})); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(req.Msg.Expected); err != nil {
		return nil, err
	}
	id := core.ExtentID{ID: core.ID(req.Msg.Extent)}
	if x := s.replicas[id]; x != nil && req.Msg.Version < x.version {
		return nil, convert.RPCError(core.Errorf(core.CodeConflict, "version %d is known here", x.version))
	}
	delete(s.replicas, id)
	s.position++
	s.removed[id] = removal{s.position, req.Msg.Version}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

func (s *fakeStore) Inventory(_ context.Context, req *connect.Request[pb.InventoryRequest]) (*connect.Response[pb.InventoryResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := max(3, len(s.replicas)/10)
	since := req.Msg.Since
	if len(req.Msg.Buckets) > 0 {
		since = req.Msg.After
	}
	if !slices.Equal(req.Msg.Run, s.run.ID[:]) || since > s.position {
		since = 0
	}
	out := &pb.InventoryResponse{Identity: s.identity(), Position: s.position, FromStart: since == 0}
	var changed []*fakeReplica
	for id, x := range s.replicas {
		if since == s.position {
			break
		}
		if x.position > since && (len(req.Msg.Buckets) == 0 || slices.Contains(req.Msg.Buckets, uint32(core.InventoryBucket(id)))) {
			changed = append(changed, x)
		}
	}
	slices.SortFunc(changed, func(a, b *fakeReplica) int { return cmp.Compare(a.position, b.position) })
	if len(changed) > page {
		changed, out.More = changed[:page], true
		out.Position = changed[page-1].position
	} else { // they are read of the last page
		out.Digests = s.digestsLocked()
	}
	for _, x := range changed {
		out.Replicas = append(out.Replicas, x.proto())
	}
	s.listed += len(changed)
	for id, g := range s.removed {
		if g.position > since && g.position <= out.Position && (len(req.Msg.Buckets) == 0 || slices.Contains(req.Msg.Buckets, uint32(core.InventoryBucket(id)))) {
			out.Removed = append(out.Removed, id.ID[:])
		}
	}
	return connect.NewResponse(out), nil
}

// count is how many calls came whose path ends so.
func (s *fakeStore) count(suffix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for path, calls := range s.calls {
		if strings.HasSuffix(path, suffix) {
			n += calls
		}
	}
	return n
}
