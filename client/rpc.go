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

// read calls a method that changes nothing: at another server when one does not answer.
func read[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req) (*Res, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	res, err := invoke(ctx, c, m, req, attemptTimeout, func(err error) bool { return true })
	return res, convert.FromRPC(err)
}

// poll calls a method that may wait for long and that may be called again.
func poll[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req) (*Res, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	res, err := invoke(ctx, c, m, req, 0, func(err error) bool { return true })
	return res, convert.FromRPC(err)
}

// change calls a method that changes something: at another server only when nothing was done; when the answer is lost,
// what it did is unknown.
func change[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req) (*Res, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	res, err := invoke(ctx, c, m, req, 0, func(err error) bool { return undialed(err) || unserved(err) || answered(err) })
	return changed(res, err)
}

// repeat is change for a method that may be called again: also when the answer is lost.
func repeat[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req) (*Res, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	res, err := invoke(ctx, c, m, req, 0, func(error) bool { return true })
	return changed(res, err)
}

// changed is the answer of a call that changes something.
func changed[Res any](res *Res, err error) (*Res, error) {
	if err == nil {
		return res, nil
	}
	out := convert.FromRPC(err)
	if unserved(err) {
		return nil, core.Errorf(core.CodeUnavailable, "the server is starting or stopping, nothing was done; try again")
	}
	if core.CodeOf(out) == core.CodeUnavailable && !answered(err) && !undialed(err) {
		return nil, core.Errorf(core.CodeUnknown, "the answer was lost, the call may have been done: %w", err)
	}
	return nil, out
}

// invoke calls a method, at one server after another while the error says that another may do better and again allows
// it. Each gets attempt (0: all there is) while there is another one.
func invoke[Req, Res any](ctx context.Context, c *Client, m method[Req, Res], req *Req, attempt time.Duration, again func(error) bool) (*Res, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	servers := c.frontends.count()
	for n := 1; ; n++ {
		actx, done := ctx, context.CancelFunc(func() {})
		if attempt > 0 && n < servers {
			actx, done = context.WithTimeout(ctx, attempt)
		}
		addr := c.frontends.current()
		res, err := m(actx, connect.NewRequest(req))
		late := actx.Err() != nil
		done()
		if err == nil {
			return res.Msg, nil
		}
		if n >= servers || ctx.Err() != nil || !late && !away(convert.FromRPC(err)) || !again(err) {
			return nil, err
		}
		c.frontends.failed(addr)
	}
}

// away reports whether a server cannot answer for now: another one may do better, or the same one later.
func away(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeDraining:
		return true
	}
	return false
}

// unserved reports whether the server refused a call before any service saw it: it does not serve yet, or does not any
// more. A server's own errors have details.
func unserved(err error) bool {
	var ce *connect.Error
	return errors.As(err, &ce) && len(ce.Details()) == 0 && ce.Message() == unservedText
}

// unservedText is what the library makes of a status without an error of a service.
const unservedText = "503 Service Unavailable"

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
