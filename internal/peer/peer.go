// Package peer owns the connections of this process to the other hosts of its cluster: RPC clients and shared websocket
// links.
package peer

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/duty"
	"github.com/columbamq/columba/wire/ws"
)

// Config of a Pool.
type Config struct {
	// Self is this process's own address; it is reached through SelfDial, in memory, instead of the network.
	Self     string
	SelfDial func(ctx context.Context) (net.Conn, error)
	// NetDial reaches the others; nil: the network.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Cluster is named in every call and link; nil: none is.
	Cluster *Cluster
	Log     *slog.Logger
}

const (
	dialTimeout = 2 * time.Second
	pingAfter   = 5 * time.Second // without a byte from a host on a shared connection
	pingTimeout = 10 * time.Second
	// callBytes bounds an answer; the largest are ranges of batches for copies and long lists of shares.
	callBytes = 64 << 20
)

// options of all RPC clients. Answers are small, or are records as they are: compressing them costs more than it saves.
var options = []connect.ClientOption{connect.WithReadMaxBytes(callBytes), connect.WithAcceptCompression("gzip", nil, nil)}

// Pool reaches hosts by address. Safe for concurrent use.
type Pool struct {
	cfg         Config
	client      *http.Client
	waiting     *http.Client    // for calls that wait at the other host
	ctx         context.Context // ends with Close; links live under it, and calls of Ask
	cancel      context.CancelCauseFunc
	wg          sync.WaitGroup
	controllers kept[columbav1connect.ControllerServiceClient]
	stores      kept[columbav1connect.StoreServiceClient]
	outputs     kept[columbav1connect.OutputServiceClient]
	pulls       kept[columbav1connect.OutputServiceClient]
	messages    kept[columbav1connect.MessageServiceClient]
	mu          struct {
		sync.Mutex
		links   map[linkKey]*dialing
		watched duty.Watch[string] // of controllers, by address
		closed  bool
	}
}

type linkKey struct{ addr, path string }

// dialing is a link, or the wait for one.
type dialing struct {
	done chan struct{} // closed when mux or err is set
	mux  *ws.Mux
	err  error
}

// ended reports whether the link was made and is over, though its goroutine may not have forgotten it yet.
func (d *dialing) ended() bool {
	select {
	case <-d.done:
		return d.err != nil || d.mux.Ended() != nil
	default:
		return false
	}
}

// NewPool makes a pool that has no connection yet.
func NewPool(cfg Config) *Pool {
	if cfg.Cluster == nil {
		cfg.Cluster = &Cluster{}
	}
	p := &Pool{cfg: cfg}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.mu.links = make(map[linkKey]*dialing)
	p.client = &http.Client{Transport: cfg.Cluster.Transport(&http.Transport{
		DialContext:         p.Dial,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	})}
	p.waiting = &http.Client{Transport: cfg.Cluster.Transport(p.sharing())}
	return p
}

// sharing is a transport whose calls to a host share connections of HTTP/2: up to 250 of them each, see the server's
// limit. It is for small calls that wait: large ones would hold up those that share their connection. The bound of one
// connection holds while calls find no stream free: calls that come at once wait for the same dial. A further
// connection is dialled when all streams of the others are in use. A connection on which nothing comes back is given up
// after pingAfter and pingTimeout.
func (p *Pool) sharing() *http.Transport {
	t := &http.Transport{
		DialContext:        p.Dial,
		IdleConnTimeout:    time.Minute,
		DisableCompression: true,
		Protocols:          new(http.Protocols),
		MaxConnsPerHost:    1,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// Dial opens a byte stream to a host: in memory when the address is this process's own.
func (p *Pool) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if addr == p.cfg.Self && p.cfg.SelfDial != nil {
		return p.cfg.SelfDial(ctx)
	}
	if p.cfg.NetDial != nil {
		return p.cfg.NetDial(ctx, network, addr)
	}
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, network, addr)
}

// Controller, Store, Output and Messages are RPC clients for the host at addr. They are kept.
func (p *Pool) Controller(addr string) columbav1connect.ControllerServiceClient {
	return p.controllers.at(addr, func() columbav1connect.ControllerServiceClient {
		return columbav1connect.NewControllerServiceClient(p.client, "http://"+addr, options...)
	})
}

func (p *Pool) Store(addr string) columbav1connect.StoreServiceClient {
	return p.stores.at(addr, func() columbav1connect.StoreServiceClient {
		return columbav1connect.NewStoreServiceClient(p.client, "http://"+addr, options...)
	})
}

func (p *Pool) Output(addr string) columbav1connect.OutputServiceClient {
	return p.outputs.at(addr, func() columbav1connect.OutputServiceClient {
		return columbav1connect.NewOutputServiceClient(p.client, "http://"+addr, options...)
	})
}

// Waiting is Output for calls that wait for messages: they cost no connection each.
func (p *Pool) Waiting(addr string) columbav1connect.OutputServiceClient {
	return p.pulls.at(addr, func() columbav1connect.OutputServiceClient {
		return columbav1connect.NewOutputServiceClient(p.waiting, "http://"+addr, options...)
	})
}

func (p *Pool) Messages(addr string) columbav1connect.MessageServiceClient {
	return p.messages.at(addr, func() columbav1connect.MessageServiceClient {
		return columbav1connect.NewMessageServiceClient(p.client, "http://"+addr, options...)
	})
}

// Link is the one websocket of this process to addr and path, shared by all streams. It is dialled on demand; after it
// has ended the next call dials again.
func (p *Pool) Link(ctx context.Context, addr, path string) (*ws.Mux, error) {
	key := linkKey{addr, path}
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return nil, core.Errorf(core.CodeUnavailable, "link to %s%s: this process is stopping", addr, path)
	}
	d := p.mu.links[key]
	if d == nil || d.ended() {
		d = &dialing{done: make(chan struct{})}
		p.mu.links[key] = d
		p.wg.Go(func() { p.keep(key, d) })
	}
	p.mu.Unlock()
	select {
	case <-d.done:
		return d.mux, d.err
	case <-ctx.Done():
		return nil, core.Errorf(core.CodeUnavailable, "link to %s%s: %w", addr, path, context.Cause(ctx))
	}
}

// keep dials, serves and finally forgets one link.
func (p *Pool) keep(key linkKey, d *dialing) {
	forget := func() {
		p.mu.Lock()
		if p.mu.links[key] == d { // else another was dialled meanwhile
			delete(p.mu.links, key)
		}
		p.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(p.ctx, 2*dialTimeout)
	header := make(http.Header)
	p.cfg.Cluster.mark(header)
	conn, err := ws.Dial(ctx, key.addr, key.path, ws.Options{NetDial: p.Dial, Header: header})
	cancel()
	if err != nil {
		d.err = core.Errorf(core.CodeUnavailable, "link to %s%s: %w", key.addr, key.path, err)
		forget()
		close(d.done)
		return
	}
	d.mux = ws.NewMux(conn, nil)
	close(d.done)
	if err := d.mux.Run(p.ctx); err != nil && p.ctx.Err() == nil {
		p.cfg.Log.Warn("link ended", "addr", key.addr, "path", key.path, "err", err)
	}
	forget()
}

// Close ends all links and joins their goroutines; calls under way end with them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.cancel(core.Errorf(core.CodeUnavailable, "this process is stopping"))
	p.wg.Wait()
	p.client.CloseIdleConnections()
	p.waiting.CloseIdleConnections()
}

// maxKept bounds the clients of one kind; hosts that move leave theirs behind.
const maxKept = 1024

// kept are clients by address: one costs more to make than a call. Safe for concurrent use.
type kept[T any] struct {
	mu struct {
		sync.Mutex
		byAddr map[string]T
	}
}

// at is the client for addr, made if it is not there.
func (k *kept[T]) at(addr string, make func() T) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, ok := k.mu.byAddr[addr]; ok {
		return c
	}
	if len(k.mu.byAddr) >= maxKept || k.mu.byAddr == nil {
		k.mu.byAddr = map[string]T{}
	}
	c := make()
	k.mu.byAddr[addr] = c
	return c
}
