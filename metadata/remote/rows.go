package remote

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// stepRows is how many rows a server has its store read at a time. Rows of the largest size fill one page: more would
// be read for nothing.
const stepRows = maxPage / metadata.MaxValue

var _ metadata.RowsGetter = (*Store)(nil)

// GetRows implements metadata.RowsGetter.
func (s *Store) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	for _, k := range keys {
		if err := metadata.CheckKey(t, k); err != nil {
			return nil, err
		}
	}
	rows := make([]metadata.Row, 0, len(keys))
	for len(keys) > 0 {
		req := &pb.GetRowsRequest{Table: tableToProto(t), Consistency: consistencyToProto(c)}
		for _, k := range keys[:min(len(keys), maxPageRows)] {
			req.Keys = append(req.Keys, &pb.RowKey{Partition: []byte(k.Partition), Row: []byte(k.Row)})
		}
		resp, err := call(ctx, s, false, s.rpc.GetRows, req)
		if err != nil {
			return nil, err
		}
		if resp.Looked < 1 || int(resp.Looked) > len(req.Keys) {
			return nil, core.Errorf(core.CodeUnavailable, "metadata at %s looked up %d rows of %d", s.base, resp.Looked, len(req.Keys))
		}
		for _, p := range resp.Rows {
			rows = append(rows, rowFromProto(p))
		}
		keys = keys[resp.Looked:]
	}
	return rows, nil
}

func (s *server) GetRows(ctx context.Context, req *connect.Request[pb.GetRowsRequest]) (*connect.Response[pb.GetRowsResponse], error) {
	t, err := tableFromProto(req.Msg.Table)
	if err == nil && len(req.Msg.Keys) > maxPageRows {
		err = core.Errorf(core.CodeBadArgument, "%d rows are asked for at once; at most %d are allowed", len(req.Msg.Keys), maxPageRows)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	keys := make([]metadata.Key, len(req.Msg.Keys))
	for i, k := range req.Msg.Keys {
		keys[i] = metadata.Key{Partition: string(k.GetPartition()), Row: string(k.GetRow())}
	}
	c, out, size := consistencyFromProto(req.Msg.Consistency), &pb.GetRowsResponse{}, 0
	for len(keys) > 0 && size < maxPage {
		step := keys[:min(len(keys), stepRows)]
		keys = keys[len(step):]
		rows, err := metadata.GetRows(ctx, s.store, t, step, c)
		if err != nil {
			return nil, convert.RPCError(err)
		}
		for _, k := range step {
			if size >= maxPage {
				break // the client asks for the rest again
			}
			if len(rows) > 0 && rows[0].Key == k {
				size += len(rows[0].Value)
				out.Rows = append(out.Rows, rowToProto(rows[0]))
				rows = rows[1:]
			}
			out.Looked++
		}
	}
	return connect.NewResponse(out), nil
}
