package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
)

// maxAnswer bounds the answer to a call, in bytes, as it arrives and unpacked: no server sends more.
const maxAnswer = 64 << 20

// Client talks to one Columba server or cluster. Safe for concurrent use; make one and share it.
type Client struct {
	opts      options
	http      *http.Client
	frontends *frontends
	admin     columbav1connect.AdminServiceClient
	msgs      columbav1connect.MessageServiceClient
	links     *links
	closeIdle func() // connections of calls

	ctx    context.Context // of everything the client started; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		closed bool
	}
}

// Dial makes a client for a cluster. addr is host:port of a server with the role frontend, or several separated by
// commas ("a:4922,b:4922"). Dial tries the addresses in turn and fails with ErrUnavailable when no server listens at
// any of them. Calls go to one server and move on to the next one when it is away; the client also learns the other
// servers of the cluster. The client makes connections for messages when they are needed, and makes lost ones again.
//
// There is no TLS and no authentication yet. WithNetDial can replace the TCP connections by others.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	o := options{
		name:    fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid()),
		log:     slog.New(slog.DiscardHandler),
		netDial: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		timeout: 30 * time.Second,
		answer:  maxAnswer,
	}
	for _, opt := range opts {
		opt(&o)
	}
	addrs, err := parseAddrs(addr)
	if err != nil {
		return nil, err
	}
	first, err := probe(ctx, o, addrs)
	if err != nil {
		return nil, core.Errorf(core.CodeUnavailable, "no server answers at %s; start one or check the address: %w", addr, err)
	}
	c := &Client{opts: o}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	transport := &http.Transport{DialContext: o.netDial, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}
	c.frontends = newFrontends(transport, addrs, first)
	c.http = &http.Client{Transport: c.frontends}
	c.admin = columbav1connect.NewAdminServiceClient(c.http, "http://"+addrs[first], connect.WithReadMaxBytes(o.answer))
	c.msgs = columbav1connect.NewMessageServiceClient(c.http, "http://"+addrs[first], connect.WithReadMaxBytes(o.answer))
	c.closeIdle = transport.CloseIdleConnections
	c.links = newLinks(c.ctx, c.start, o)
	return c, c.start(c.follow)
}

// probe is the index of the first address where somebody listens.
func probe(ctx context.Context, o options, addrs []string) (first int, err error) {
	for i, addr := range addrs {
		dctx, cancel := ctx, context.CancelFunc(func() {})
		if i < len(addrs)-1 {
			dctx, cancel = context.WithTimeout(ctx, attemptTimeout)
		}
		conn, derr := o.netDial(dctx, "tcp", addr)
		cancel()
		if derr == nil {
			conn.Close()
			return i, nil
		}
		if err == nil {
			err = derr
		} else {
			err = fmt.Errorf("%w; %w", err, derr)
		}
	}
	return 0, err
}

// Admin manages queues and groups and looks into them.
func (c *Client) Admin() *Admin { return &Admin{c: c} }

// Close ends every connection and waits for the client's goroutines. Close publishers and consumers first. Otherwise
// messages that a publisher still holds fail with ErrUnknownOutcome or ErrUnavailable, and messages that a consumer
// holds are delivered again after the lock timeout. A call after Close fails with ErrUnavailable.
func (c *Client) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.closeIdle()
	return nil
}

// open fails once the client is closed. A call after that would make a connection that nobody closes.
func (c *Client) open() error {
	if c.ctx.Err() != nil {
		return core.Errorf(core.CodeUnavailable, "client is closed")
	}
	return nil
}

// start runs f on a goroutine that Close waits for.
func (c *Client) start(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return core.Errorf(core.CodeUnavailable, "client is closed")
	}
	c.wg.Go(f)
	return nil
}

// withTimeout bounds a context that has no deadline.
func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.opts.timeout)
}
