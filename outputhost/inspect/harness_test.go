package inspect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heldTo is a store that has an extent up to a seq, one record in a batch.
type heldTo struct {
	columbav1connect.UnimplementedStoreServiceHandler
	last    core.Seq
	tail    core.Seq // so many of them are not known to be committed
	due     []int64  // of the records, unix ms
	damaged bool
	again   bool // it sends the first record, whatever it is asked for
	hangs   bool // it answers nothing
}

func (s *heldTo) GetReplica(ctx context.Context, _ *connect.Request[pb.GetReplicaRequest]) (*connect.Response[pb.Replica], error) {
	if s.hangs {
		<-ctx.Done()
	}
	return connect.NewResponse(&pb.Replica{Last: uint64(s.last), Committed: uint64(s.last - s.tail), Damaged: s.damaged}), nil
}

func (s *heldTo) ReadRange(ctx context.Context, req *connect.Request[pb.ReadRangeRequest]) (*connect.Response[pb.ReadRangeResponse], error) {
	if s.hangs {
		<-ctx.Done()
	}
	out := &pb.ReadRangeResponse{}
	from, upTo := core.Seq(req.Msg.From), min(s.last, core.Seq(req.Msg.UpTo))
	if s.again {
		from, upTo = 1, 1
	}
	for seq := from; seq <= upTo; seq++ {
		b, err := wire.AppendRecord(make([]byte, wire.BatchHeaderLen), &wire.Record{Payload: []byte{byte(seq)}})
		if err != nil {
			return nil, err
		}
		wire.PutBatchHeader(b, wire.BatchHeader{Count: 1, Base: seq})
		out.Batches = append(out.Batches, b...)
	}
	return connect.NewResponse(out), nil
}

func (s *heldTo) ListDue(_ context.Context, req *connect.Request[pb.ListDueRequest]) (*connect.Response[pb.ListDueResponse], error) {
	if core.Seq(req.Msg.UpTo) > s.last-s.tail {
		return nil, convert.RPCError(core.Errorf(core.CodeIncomplete, "known up to seq %d", s.last-s.tail))
	}
	out := &pb.ListDueResponse{}
	for i, due := range s.due {
		if due <= req.Msg.After {
			continue
		}
		record, err := wire.AppendRecord(nil, &wire.Record{DeliverAt: due, Payload: []byte{byte(i + 1)}})
		if err != nil {
			return nil, err
		}
		out.Records = append(out.Records, &pb.ListDueResponse_Record{Seq: uint64(i + 1), Due: due, Record: record})
	}
	slices.SortStableFunc(out.Records, func(a, b *pb.ListDueResponse_Record) int { return cmp.Compare(a.Due, b.Due) })
	return connect.NewResponse(out), nil
}

// harness is a host with stores and metadata, and without groups.
type harness struct {
	Host
	t      *testing.T
	meta   metadata.Store
	stores []core.HostID // that are live
	peers  *peer.Pool
}

func newHarness(t *testing.T) *harness {
	meta := memory.New()
	t.Cleanup(func() { meta.Close() })
	return &harness{t: t, meta: meta}
}

func (h *harness) Now() time.Time       { return time.Now() }
func (h *harness) Meta() metadata.Store { return h.meta }
func (h *harness) Store(address string) columbav1connect.StoreServiceClient {
	return h.peers.Store(address)
}

func (h *harness) Replicas(e core.Extent) []membership.Host { return h.Holders(e, nil) }

func (h *harness) Holders(e core.Extent, holders []core.HostID) (out []membership.Host) {
	others := slices.DeleteFunc(slices.Clone(e.Replicas), func(id core.HostID) bool { return slices.Contains(holders, id) })
	for _, id := range append(slices.Clone(holders), others...) {
		if slices.Contains(h.stores, id) {
			out = append(out, membership.Host{ID: id, Address: string(id) + ":1"})
		}
	}
	return out
}

// sealed writes the seal row of an extent.
func (h *harness) sealed(row metadata.SealRecord) {
	h.t.Helper()
	if err := metadata.Create(h.t.Context(), h.meta, metadata.Seals, metadata.SealKey(row.Extent.ID), row); err != nil {
		h.t.Fatal(err)
	}
}

// serve makes stores live that answer; nil is one whose address refuses.
func (h *harness) serve(stores map[core.HostID]*heldTo) {
	h.t.Helper()
	h.stores = nil
	listeners := make(map[string]*netmem.Listener)
	for id, s := range stores {
		h.stores = append(h.stores, id)
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
		h.t.Cleanup(func() {
			server.Close()
			serving.Wait()
		})
	}
	h.peers = peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler), NetDial: func(ctx context.Context, _, addr string) (net.Conn, error) {
		if l := listeners[addr]; l != nil {
			return l.Dial(ctx)
		}
		return nil, errors.New("refused")
	}})
	h.t.Cleanup(h.peers.Close)
}

// seqsOf are what a listing of an extent shows.
func (h *harness) seqsOf(e core.Extent) (seqs []core.Seq, err error) {
	_, err = New(Config{}, h).scanExtent(h.t.Context(), e, core.GroupID{}, 1, func(m stored) (bool, error) {
		seqs = append(seqs, m.at.Seq)
		return true, nil
	})
	return seqs, err
}
