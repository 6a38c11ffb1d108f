package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// attemptTimeout bounds one server's answer to a question while there is another server to ask.
const attemptTimeout = 3 * time.Second

// servers are the addresses in --addr.
func (a *app) servers() []string { return strings.Split(a.addr, ",") }

// asked is the server that the last unary call went to.
func (a *app) asked() string {
	all := a.servers()
	return all[int(a.server.Load())%len(all)]
}

// dialAny connects to the server that unary calls go to, or to the next one that accepts a connection.
func (a *app) dialAny(one Dial) Dial {
	all := a.servers()
	if len(all) == 1 {
		return one
	}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		first := a.server.Load()
		var failed error
		for i := range all {
			at := (int(first) + i) % len(all)
			conn, err := one(ctx, network, all[at])
			if err == nil {
				a.server.CompareAndSwap(first, int32(at)) // another call may have gone on meanwhile
				return conn, nil
			}
			failed = cmp.Or(failed, err)
		}
		return nil, failed
	}
}

// question is once for a call that changes nothing. It goes on with the next server when one gives no answer, loses the
// connection, or is starting. Each server but the last has attemptTimeout, or less if --timeout does not allow as much.
func question[Req, Res any](ctx context.Context, a *app, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	if err := a.checkAddr(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var answer *Res
	err := a.whenServing(limited, func() (err error) {
		answer, err = inTurn(ctx, limited, a, call, req)
		return err
	})
	return answer, err
}

// inTurn asks each server once at most, until limited ends.
func inTurn[Req, Res any](ctx, limited context.Context, a *app, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	all := a.servers()
	var silent []string
	for left := len(all); ; left-- {
		attempt, done := limited, context.CancelFunc(func() {})
		if end, ends := limited.Deadline(); left > 1 && ends {
			attempt, done = context.WithTimeout(limited, min(attemptTimeout, time.Until(end)/time.Duration(left)))
		}
		at := a.server.Load()
		res, err := call(attempt, connect.NewRequest(req))
		late := attempt.Err() != nil
		done()
		if err == nil {
			return res.Msg, nil
		}
		asked := a.asked()
		if late && !slices.Contains(silent, asked) {
			silent = append(silent, asked)
		}
		if late {
			asked = strings.Join(silent, ",")
		}
		err = a.errorFrom(ctx, asked, err)
		another := late || errors.As(err, new(lostError)) || errors.As(err, new(startingError))
		if left <= 1 || limited.Err() != nil || !another {
			return nil, err
		}
		a.server.CompareAndSwap(at, (at+1)%int32(len(all)))
	}
}
