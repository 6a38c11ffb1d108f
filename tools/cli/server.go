package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

const (
	dialTimeout = 5 * time.Second
	// answerBytes bounds one answer: a page of dead letters or stored messages is the largest.
	answerBytes = 256 << 20
)

// httpClient is for one invocation; proxies of the environment are not asked: servers are named directly.
func (a *app) httpClient() *http.Client {
	one := a.netDial
	if one == nil {
		one = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return &http.Client{Transport: &http.Transport{DialContext: a.dialAny(one), MaxIdleConnsPerHost: 8}}
}

// admin is the queues' and groups' API of the server at --addr.
func (a *app) admin() columbav1connect.AdminServiceClient {
	return columbav1connect.NewAdminServiceClient(a.httpClient(), a.baseURL(), connect.WithReadMaxBytes(answerBytes))
}

// messages is the tokens' API of the server at --addr.
func (a *app) messages() columbav1connect.MessageServiceClient {
	return columbav1connect.NewMessageServiceClient(a.httpClient(), a.baseURL(), connect.WithReadMaxBytes(answerBytes))
}

func (a *app) baseURL() string {
	if strings.HasPrefix(a.addr, "http://") || strings.HasPrefix(a.addr, "https://") {
		return strings.TrimSuffix(a.addr, "/")
	}
	first, _, _ := strings.Cut(a.addr, ",") // of several the first that answers is connected to: see httpClient
	return "http://" + first
}

// checkAddr refuses an address that no server can have, and says where it came from.
func (a *app) checkAddr() error {
	u, err := url.Parse(a.baseURL())
	good := err == nil && u.Hostname() != "" && (isPort(u.Port()) || u.Port() == "" && u.Scheme == "https")
	if _, more, several := strings.Cut(a.addr, ","); good && several {
		for addr := range strings.SplitSeq(more, ",") {
			host, port, err := net.SplitHostPort(addr)
			good = good && err == nil && host != "" && isPort(port)
		}
	}
	if good {
		return nil
	}
	from := "--addr"
	if v, _ := a.lookupEnv("COLUMBA_ADDR"); v == a.addr {
		from = "environment variable COLUMBA_ADDR"
	}
	return core.Errorf(core.CodeBadArgument, "%s: address %q is not HOST:PORT; write it like %s, or several with commas between", from, clip(a.addr), DefaultAddr)
}

// isPort reports whether a server can be reached at a port.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// ask asks a question, which changes nothing, within --timeout: a server that cannot answer just now is asked again for
// a while. Its errors are of the catalogue.
func ask[Req, Res any](ctx context.Context, a *app, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	for until := time.Now().Add(min(a.patience, a.timeout)); ; {
		res, err := question(ctx, a, call, req)
		if core.CodeOf(err) == core.CodeDeadline {
			return nil, core.Errorf(core.CodeDeadline, "%w; ask again, or allow more with --timeout", err)
		}
		var answered answeredError
		if !errors.As(err, &answered) || !time.Now().Add(retryEach).Before(until) {
			return res, err
		}
		select {
		case <-time.After(retryEach):
		case <-ctx.Done():
			return nil, context.Canceled
		}
	}
}

// once makes one unary call within --timeout, when the server has started.
func once[Req, Res any](ctx context.Context, a *app, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	if err := a.checkAddr(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var answer *Res
	err := a.whenServing(limited, func() (err error) {
		answer, err = send(ctx, limited, a, call, req)
		return err
	})
	return answer, err
}

// send makes one unary call that ends with limited. ctx is the command's own, without a timeout.
func send[Req, Res any](ctx, limited context.Context, a *app, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	res, err := call(limited, connect.NewRequest(req))
	if err != nil {
		return nil, a.errorFrom(ctx, a.asked(), err)
	}
	return res.Msg, nil
}

// lostError is the cause of a connection that was lost after it had been made.
type lostError struct{ error }

// unreachableError is why no connection to a server could be made.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

// answeredError is of a server that answered that it cannot tell just now.
type answeredError struct{ error }

func (e answeredError) Unwrap() error { return e.error }

const (
	// retryTime is how long a question is asked again that a server cannot answer just now: an output host's messages are
	// another's after two seconds or three.
	retryTime = 5 * time.Second
	retryEach = 250 * time.Millisecond
)

// notReady is how a server refuses what it does not serve yet, or any more: nothing was done.
const notReady = "503 Service Unavailable"

func lost(server string, cause error) error {
	return core.Errorf(core.CodeUnavailable, "the connection to %s was lost: %w", server, lostError{rootCause(cause)})
}

// dial connects the client library to the server at --addr. The caller closes it.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	if err := a.checkAddr(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	options := []client.Option{client.WithTimeout(a.timeout), client.WithLogger(slog.New(&talk{a: a}))}
	if a.netDial != nil {
		options = append(options, client.WithNetDial(a.netDial))
	}
	var c *client.Client
	err := a.whenServing(limited, func() (err error) {
		if c, err = client.Dial(limited, strings.TrimSuffix(strings.TrimPrefix(a.addr, "http://"), "/"), options...); err != nil {
			return a.callError(ctx, err)
		}
		return nil
	})
	return c, err
}

// change is ask for a call that changes something: when its answer is lost, what it did is unknown.
func change[Req, Res any](ctx context.Context, a *app, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	res, err := once(ctx, a, call, req)
	var lost lostError
	if errors.As(err, &lost) {
		return nil, core.Errorf(core.CodeUnknown, "the connection to %s was lost before the answer: %w", a.asked(), lost)
	}
	return res, err
}

// callError tells apart what happened to a call of the client library, which may have asked any of the servers. ctx is
// the command's own, without the request's timeout.
func (a *app) callError(ctx context.Context, err error) error {
	return a.errorFrom(ctx, a.addr, err)
}

// errorFrom is callError for a call to one server.
func (a *app) errorFrom(ctx context.Context, server string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return core.Errorf(core.CodeUnavailable, "server at %s cannot be reached: %w", a.dialled(dial), unreachableError{rootCause(dial.Err)})
	}
	var known *core.Error
	if !errors.As(err, &known) {
		err = convert.FromRPC(err)
	}
	var ce *connect.Error // the server's own errors do not keep it: see convert.FromRPC
	if !errors.As(err, &ce) {
		if core.CodeOf(err) == core.CodeUnavailable {
			return core.Errorf(core.CodeUnavailable, "%w", answeredError{err})
		}
		return err
	}
	if ce.Code() == connect.CodeUnimplemented {
		return core.Errorf(core.CodeUnimplemented, "the server at %s does not know this request; name one with the role frontend with --addr, or use a later version of the server", server)
	}
	switch core.CodeOf(err) {
	case core.CodeDeadline:
		if ce.Code() == connect.CodeCanceled {
			return lost(server, ce) // not by us: Connect takes some broken connections for cancelled calls
		}
		return core.Errorf(core.CodeDeadline, "no answer from %s within %s", server, a.timeout)
	case core.CodeUnavailable:
		if convert.OtherService(ce) {
			return core.Errorf(core.CodeUnavailable, "the server at %s is not a Columba server: it answered %s; name another one with --addr", server, ce.Message())
		}
		if ce.Message() == notReady {
			return core.Errorf(core.CodeUnavailable, "%w; try again in a moment, and see its log", startingError{fmt.Errorf("the server at %s is starting or stopping", server)})
		}
		return lost(server, ce)
	}
	return err
}

// dialled is where a connection could not be made: at --addr, or at another server that one there has named.
func (a *app) dialled(failed *net.OpError) string {
	if failed.Addr == nil {
		return a.addr
	}
	_, port, _ := net.SplitHostPort(failed.Addr.String())
	for addr := range strings.SplitSeq(a.addr, ",") {
		if strings.HasSuffix(addr, ":"+port) {
			return a.addr
		}
	}
	return failed.Addr.String()
}

func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
