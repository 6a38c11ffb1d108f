package attack

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/wire"
)

// TestAttack_StoresDropNothingByACallersWord has an anonymous client tell a store ends and versions that are in no
// metadata, and remove what it has. With any answer of the store, no acknowledged message is lost.
func TestAttack_StoresDropNothingByACallersWord(t *testing.T) {
	for name, tell := range map[string]func(r *pb.Replica, before *wire.BatchHeader) *pb.SealReplicaRequest{
		"an end of nothing": func(*pb.Replica, *wire.BatchHeader) *pb.SealReplicaRequest {
			return &pb.SealReplicaRequest{Version: 1 << 60}
		},
		"an end beyond all": func(*pb.Replica, *wire.BatchHeader) *pb.SealReplicaRequest {
			return &pb.SealReplicaRequest{L: 1 << 40, Version: 1}
		},
		"its own end": func(r *pb.Replica, _ *wire.BatchHeader) *pb.SealReplicaRequest { return sealAt(r.Last, r.Checksum, 1) },
		"its own end, later": func(r *pb.Replica, _ *wire.BatchHeader) *pb.SealReplicaRequest {
			return sealAt(r.Last, r.Checksum, 1<<60)
		},
		"its end, other sum": func(r *pb.Replica, _ *wire.BatchHeader) *pb.SealReplicaRequest {
			return sealAt(r.Last, r.Checksum+1, 1)
		},
		"an end before its own": func(_ *pb.Replica, b *wire.BatchHeader) *pb.SealReplicaRequest {
			return sealAt(uint64(b.Last()), b.Checksum, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dropByWord(t, tell)
		})
	}
}

func sealAt(l uint64, checksum uint32, version uint64) *pb.SealReplicaRequest {
	return &pb.SealReplicaRequest{L: l, Checksum: checksum, Version: version}
}

func dropByWord(t *testing.T, tell func(*pb.Replica, *wire.BatchHeader) *pb.SealReplicaRequest) {
	s := process.StartServer(t)
	v := &victim{s, &http.Client{Timeout: process.Patience, Transport: &http.Transport{}}}
	s.Must("", "create", "queue", "/t/victim")
	s.Must("", "create", "group", "/t/victim", "g")
	const messages = 20
	for range messages {
		if err := v.call(t.Context(), "MessageService/Publish", `{"queue":"/t/victim","messages":[{"payload":"aGVsbG8="}]}`); err != nil {
			t.Fatal(err)
		}
	}
	store := columbav1connect.NewStoreServiceClient(v.client, "http://"+s.Addr)
	attacked := 0
	for _, r := range replicas(t, store) {
		if r.Last == 0 {
			continue
		}
		attacked++
		seal := tell(r, batchBeforeLast(t, store, r))
		seal.Extent = r.Extent
		_, serr := store.Seal(t.Context(), connect.NewRequest(seal))
		_, rerr := store.Remove(t.Context(), connect.NewRequest(&pb.RemoveRequest{Extent: r.Extent.Id, Version: seal.Version}))
		t.Logf("extent with %d records: seal %v, removal %v", r.Last, serr, rerr)
		if core.CodeOf(convert.FromRPC(rerr)) != core.CodeConflict {
			t.Errorf("a removal by a version of nobody: %v, want %s", rerr, core.CodeConflict)
		}
	}
	if attacked == 0 {
		t.Fatal("the store has no extent with messages")
	}
	if got := pullAll(t, v, s.Addr, messages); got != messages {
		t.Errorf("a consumer gets %d of %d messages", got, messages)
	}
	s.Must("", "delete", "queue", "/t/victim", "--yes")
	process.Eventually(t, "the extents of the deleted queue are removed", func() bool { return len(replicas(t, store)) == 0 })
}

// pullAll counts the messages that a group gets, until it has enough or none came for a while.
func pullAll(t *testing.T, v *victim, addr string, enough int) (n int) {
	t.Helper()
	client := columbav1connect.NewMessageServiceClient(v.client, "http://"+addr)
	for n < enough {
		res, err := client.Pull(t.Context(), connect.NewRequest(&pb.PullRequest{Queue: "/t/victim", Group: "g", MaxMessages: int32(enough), Wait: durationpb.New(10 * time.Second)}))
		if err != nil {
			t.Error(err)
		}
		if err != nil || len(res.Msg.Messages) == 0 {
			return n
		}
		n += len(res.Msg.Messages)
	}
	return n
}

func replicas(t *testing.T, store columbav1connect.StoreServiceClient) []*pb.Replica {
	t.Helper()
	res, err := store.Inventory(t.Context(), connect.NewRequest(&pb.InventoryRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.Replicas
}

// batchBeforeLast is the header of the last batch but one of a replica, as an attacker reads it; the first one when
// there is one only.
func batchBeforeLast(t *testing.T, store columbav1connect.StoreServiceClient, r *pb.Replica) *wire.BatchHeader {
	t.Helper()
	res, err := store.ReadRange(t.Context(), connect.NewRequest(&pb.ReadRangeRequest{Extent: r.Extent.Id, From: 1, UpTo: r.Committed, MaxBytes: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	var all []wire.BatchHeader
	for rest := res.Msg.Batches; len(rest) > 0; {
		var b wire.Batch
		if b, rest, err = wire.NextBatch(rest); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.BatchHeader)
	}
	return &all[max(0, len(all)-2)]
}
