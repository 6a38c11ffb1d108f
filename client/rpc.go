package client

import (
	"context"
	"errors"
	"net"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

type method[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// read calls a method that changes nothing.
func read[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req) (*Res, error) {
	res, err := invoke(ctx, c, m, req)
	return res, convert.FromRPC(err)
}

// change calls a method that changes something: when the answer is lost, what it did is unknown.
func change[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req) (*Res, error) {
	res, err := invoke(ctx, c, m, req)
	if err == nil {
		return res, nil
	}
	out := convert.FromRPC(err)
	if core.CodeOf(out) == core.CodeUnavailable && !answered(err) && !undialed(err) {
		return nil, core.Errorf(core.CodeUnknown, "the answer was lost, the call may have been done: %w", err)
	}
	return nil, out
}

func invoke[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req) (*Res, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	res, err := m(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// answered reports whether the failure came from the server, which then knows what it did.
func answered(err error) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return false
	}
	for _, d := range ce.Details() {
		if v, derr := d.Value(); derr == nil {
			if _, ok := v.(*pb.Error); ok {
				return true
			}
		}
	}
	return false
}

// undialed reports whether the call failed before a connection was there.
func undialed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func timeFromProto(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// parseID reads an id that may be absent.
func parseID(s string) (core.ID, error) {
	if s == "" {
		return core.ID{}, nil
	}
	return core.ParseID(s)
}
