package peer

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/convert"
)

// Call makes one call to a host that answers within timeout; 0: for as long as ctx lasts. Its error is of the
// catalogue.
func Call[Q, R any](ctx context.Context, timeout time.Duration, call func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) (*R, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	resp, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}
