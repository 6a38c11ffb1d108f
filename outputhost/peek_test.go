package outputhost

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// heldTo is a store that has an extent up to a seq, one record in a batch.
type heldTo struct {
	columbav1connect.UnimplementedStoreServiceHandler
	last    core.Seq
	damaged bool
}

func (s *heldTo) GetReplica(context.Context, *connect.Request[pb.GetReplicaRequest]) (*connect.Response[pb.Replica], error) {
	return connect.NewResponse(&pb.Replica{Last: uint64(s.last), Committed: uint64(s.last), Damaged: s.damaged}), nil
}

func (s *heldTo) ReadRange(_ context.Context, req *connect.Request[pb.ReadRangeRequest]) (*connect.Response[pb.ReadRangeResponse], error) {
	out := &pb.ReadRangeResponse{}
	for seq := core.Seq(req.Msg.From); seq <= min(s.last, core.Seq(req.Msg.UpTo)); seq++ {
		b, err := wire.AppendRecord(make([]byte, wire.BatchHeaderLen), &wire.Record{Payload: []byte{byte(seq)}})
		if err != nil {
			return nil, err
		}
		wire.PutBatchHeader(b, wire.BatchHeader{Count: 1, Base: seq})
		out.Batches = append(out.Batches, b...)
	}
	return connect.NewResponse(out), nil
}

// serveStores makes stores members that answer; nil is one whose address refuses.
func (b *bench) serveStores(stores map[core.HostID]*heldTo) {
	b.t.Helper()
	zones := make(map[core.HostID]string)
	listeners := make(map[string]*netmem.Listener)
	for id, s := range stores {
		zones[id] = ""
		if s == nil {
			continue
		}
		addr := string(id) + ":1"
		l := netmem.Listen(addr)
		listeners[addr] = l
		mux := http.NewServeMux()
		mux.Handle(columbav1connect.NewStoreServiceHandler(s))
		server := &http.Server{Handler: mux}
		var serving sync.WaitGroup
		serving.Go(func() { server.Serve(l) })
		b.t.Cleanup(func() {
			server.Close()
			serving.Wait()
		})
	}
	b.stores(zones)
	pool := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler), NetDial: func(ctx context.Context, _, addr string) (net.Conn, error) {
		if l := listeners[addr]; l != nil {
			return l.Dial(ctx)
		}
		return nil, errors.New("refused")
	}})
	b.t.Cleanup(pool.Close)
	b.deps.Peers = pool
}

// seqsOf are what a listing of an extent shows.
func (b *bench) seqsOf(e core.Extent) (seqs []core.Seq, err error) {
	_, err = b.scanExtent(b.t.Context(), e, core.GroupID{}, 1, func(m stored) (bool, error) {
		seqs = append(seqs, m.at.Seq)
		return true, nil
	})
	return seqs, err
}

// TestScan_AsFarAsAnyReplicaLetsItBeRead has one that is damaged, one that is behind, and one that is down.
func TestScan_AsFarAsAnyReplicaLetsItBeRead(t *testing.T) {
	b := newBench(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b", "c", "d"}}
	b.serveStores(map[core.HostID]*heldTo{"a": {last: 9, damaged: true}, "b": {last: 2}, "c": {last: 5}, "d": nil})
	if seqs, err := b.seqsOf(e); err != nil || len(seqs) != 5 {
		t.Errorf("%v, %v; want 1 to 5", seqs, err)
	}
	b.serveStores(map[core.HostID]*heldTo{"b": {last: 2}, "a": nil, "c": nil, "d": nil})
	if seqs, err := b.seqsOf(e); err != nil || len(seqs) != 2 {
		t.Errorf("%v, %v; want 1 and 2", seqs, err)
	}
	b.serveStores(map[core.HostID]*heldTo{"a": nil, "b": nil, "c": nil, "d": nil})
	if seqs, err := b.seqsOf(e); err == nil {
		t.Errorf("%v although no replica answers", seqs)
	}
}

// TestScan_HolderThatIsBehindIsNotTheEnd lists a sealed extent.
func TestScan_HolderThatIsBehindIsNotTheEnd(t *testing.T) {
	b := newBench(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
	b.write(metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 5, Holders: e.Replicas})
	for behind, whole := range map[core.HostID]core.HostID{"a": "b", "b": "a"} {
		b.serveStores(map[core.HostID]*heldTo{behind: {last: 2}, whole: {last: 5}})
		if seqs, err := b.seqsOf(e); err != nil || len(seqs) != 5 {
			t.Errorf("with %s behind: %v, %v; want 1 to 5", behind, seqs, err)
		}
	}
	b.serveStores(map[core.HostID]*heldTo{"a": {last: 2}, "b": nil})
	if seqs, err := b.seqsOf(e); err == nil {
		t.Errorf("%v without an error, want one: there are 5", seqs)
	}
}

// TestScan_RetiredExtentIsEmpty: it counts no more, though its stores may not have removed it yet.
func TestScan_RetiredExtentIsEmpty(t *testing.T) {
	b := newBench(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
	b.write(metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentRetired, L: 5, Holders: e.Replicas})
	for _, a := range []*heldTo{{last: 5}, nil} {
		b.serveStores(map[core.HostID]*heldTo{"a": a, "b": nil})
		if seqs, err := b.seqsOf(e); err != nil || len(seqs) > 0 {
			t.Errorf("%v, %v; want nothing", seqs, err)
		}
	}
}

// TestScan_GivenUpExtentEndsWhereItIsLost: nobody waits for what no store has any more.
func TestScan_GivenUpExtentEndsWhereItIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
		row := metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 5, Holders: []core.HostID{"c"}, Home: core.Home{Kind: core.HomeOwn}}
		if err := row.GiveUp(4, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
		b.write(metadata.Seals, metadata.SealKey(e.ID), row)
		b.serveStores(map[core.HostID]*heldTo{"a": {last: 2}, "b": {last: 3}, "c": {}})
		began := time.Now()
		if seqs, err := b.seqsOf(e); err != nil || len(seqs) != 3 || time.Since(began) > 2*time.Second {
			t.Errorf("%v, %v after %s; want 1 to 3 at once", seqs, err, time.Since(began))
		}
	})
}

// ListDue of a store that has not heard how far its extent goes.
func (s *heldTo) ListDue(_ context.Context, req *connect.Request[pb.ListDueRequest]) (*connect.Response[pb.ListDueResponse], error) {
	if core.Seq(req.Msg.UpTo) > s.last {
		return nil, convert.RPCError(core.Errorf(core.CodeIncomplete, "known up to %d", s.last))
	}
	return connect.NewResponse(&pb.ListDueResponse{}), nil
}

// TestListDue_OneIsBehind: whoever asks tries again while a holder has not heard of its end, whatever stores say that are no holders.
func TestListDue_OneIsBehind(t *testing.T) {
	b := newBench(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b", "c"}}
	b.serveStores(map[core.HostID]*heldTo{"a": {last: 2}, "b": nil, "c": nil})
	_, err := b.listDue(t.Context(), b.sources.All(e, []core.HostID{"a"}, time.Now()), &pb.ListDueRequest{Extent: e.ID.ID[:], UpTo: 5})
	if core.CodeOf(err) != core.CodeIncomplete {
		t.Errorf("%v, want that one is behind", err)
	}
}
