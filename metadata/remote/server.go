package remote

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/metadata"
)

// Limits of one call, in bytes of values and in rows.
const (
	maxRequest  = 8 << 20
	maxPage     = 4 << 20
	maxPageRows = 1000
)

// beat is how often a watch shows that it lives.
const beat = 2 * time.Second

// NewHandler serves a store to other processes; it stays the caller's. The path is where the handler belongs in a mux.
func NewHandler(store metadata.Store) (path string, handler http.Handler) {
	return serving.Handler(columbav1connect.NewMetadataServiceHandler, columbav1connect.MetadataServiceHandler(&server{store}), serving.Options{Request: maxRequest})
}

type server struct{ store metadata.Store }

var _ columbav1connect.MetadataServiceHandler = (*server)(nil)

func (s *server) GetRow(ctx context.Context, req *connect.Request[pb.GetRowRequest]) (*connect.Response[pb.Row], error) {
	t, err := tableFromProto(req.Msg.Table)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	k := metadata.Key{Partition: string(req.Msg.Partition), Row: string(req.Msg.Row)}
	row, err := s.store.Get(ctx, t, k, consistencyFromProto(req.Msg.Consistency))
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(rowToProto(row)), nil
}

func (s *server) ListRows(ctx context.Context, req *connect.Request[pb.ListRowsRequest]) (*connect.Response[pb.ListRowsResponse], error) {
	t, err := tableFromProto(req.Msg.Table)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	limit := min(int(req.Msg.Limit), maxPageRows)
	rows, more, err := s.store.List(ctx, t, string(req.Msg.Partition), string(req.Msg.After), limit, consistencyFromProto(req.Msg.Consistency))
	if err != nil {
		return nil, convert.RPCError(err)
	}
	out := &pb.ListRowsResponse{More: more}
	size := 0
	for _, row := range rows {
		if size += len(row.Value); size > maxPage && len(out.Rows) > 0 {
			out.More = true
			break
		}
		out.Rows = append(out.Rows, rowToProto(row))
	}
	return connect.NewResponse(out), nil
}

func (s *server) ChangeRow(ctx context.Context, req *connect.Request[pb.ChangeRowRequest]) (*connect.Response[pb.ChangeRowResponse], error) {
	t, err := tableFromProto(req.Msg.Table)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	row := rowFromProto(req.Msg.Row)
	switch req.Msg.Change {
	case pb.RowChange_ROW_CHANGE_INSERT:
		err = s.store.Insert(ctx, t, row.Key, row.Value)
	case pb.RowChange_ROW_CHANGE_UPDATE:
		err = s.store.Update(ctx, t, row.Key, row.Version, row.Value, convert.Duration(req.Msg.Ttl))
	case pb.RowChange_ROW_CHANGE_DELETE:
		err = s.store.Delete(ctx, t, row.Key, row.Version)
	default:
		err = core.Errorf(core.CodeBadArgument, "change %d of a row is not known to this version", req.Msg.Change)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.ChangeRowResponse{}), nil
}

func (s *server) PutRows(ctx context.Context, req *connect.Request[pb.PutRowsRequest]) (*connect.Response[pb.PutRowsResponse], error) {
	t, err := tableFromProto(req.Msg.Table)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	c := consistencyFromProto(req.Msg.Consistency)
	rows := make([]metadata.Row, len(req.Msg.Rows))
	for i, p := range req.Msg.Rows {
		rows[i] = rowFromProto(p)
	}
	ttl := convert.Duration(req.Msg.Ttl)
	switch single := len(rows) == 1; {
	case !single && (req.Msg.Remove || ttl != 0):
		err = core.Errorf(core.CodeBadArgument, "removal and ttl need exactly one row, not %d", len(rows))
	case req.Msg.Remove:
		err = s.store.Remove(ctx, t, rows[0].Key, rows[0].Written, c)
	case single:
		err = s.store.Put(ctx, t, rows[0].Key, rows[0].Value, rows[0].Written, ttl, c)
	default:
		err = s.store.PutAll(ctx, t, rows, c)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.PutRowsResponse{}), nil
}

func (s *server) WatchPartition(ctx context.Context, req *connect.Request[pb.WatchPartitionRequest], stream *connect.ServerStream[pb.WatchPartitionResponse]) error {
	t, err := tableFromProto(req.Msg.Table)
	if err != nil {
		return convert.RPCError(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() { // joined below
		ended <- s.store.Watch(ctx, t, string(req.Msg.Partition), func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	live := time.NewTicker(beat)
	defer live.Stop()
	for err == nil {
		select {
		case err = <-ended:
			cancel()
			return convert.RPCError(err)
		case <-changed:
			err = stream.Send(&pb.WatchPartitionResponse{Changed: true})
		case <-live.C:
			err = stream.Send(&pb.WatchPartitionResponse{})
		}
	}
	cancel()
	<-ended
	return convert.RPCError(err)
}
