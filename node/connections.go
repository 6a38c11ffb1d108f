package node

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/internal/netmem"
)

// maxConnections is how many connections the servers of a process have at once, at most. With few file descriptors it
// is less.
const maxConnections = 10_000

// addressConnections is the part of them that one address may have.
const addressConnections = 3.0 / 4

// spareAfter is how long a connection is idle between two requests before it may have to make room for another of its
// address. One on which no request has come need only be firstRequest old.
const spareAfter = time.Second

// connections counts those of all servers of a process. Safe for concurrent use.
type connections struct {
	log     *slog.Logger
	most    int
	now     func() time.Time
	refused *prometheus.CounterVec
	spared  prometheus.Counter
	mu      struct {
		sync.Mutex
		open   int
		byHost map[string]*hostConnections
		ids    map[net.Conn]*connID // of those from outside, until they are closed or taken over
		said   time.Time
	}
}

// hostConnections are those from one address.
type hostConnections struct {
	open int
	idle list.List // of *connID: those without a request under way, the longest idle first
}

func newConnections(log *slog.Logger, reg prometheus.Registerer, most int) *connections {
	c := &connections{log: log, most: most, now: time.Now, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "columba_server_connections_refused_total", Help: "Connections that were closed at once, by reason.",
	}, []string{"reason"}), spared: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "columba_server_connections_idle_closed_total", Help: "Idle connections that were closed to make room for new ones of their address.",
	})}
	c.mu.byHost, c.mu.ids = map[string]*hostConnections{}, map[net.Conn]*connID{}
	reg.MustRegister(c.refused, c.spared, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_connections", Help: "Open connections to the servers of the process, websockets included.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.mu.open)
	}))
	return c
}

// limit is a listener whose connections are counted. One too many takes the place of an idle one of its address;
// without such a one it is closed at once. The server has to tell their states to context and changed, and handlers
// that take a connection over end with it: then it is left.
func (c *connections) limit(l net.Listener) net.Listener { return &limited{Listener: l, c: c} }

type limited struct {
	net.Listener
	c *connections
}

// Accept returns the next connection that may be open.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostOf(conn.RemoteAddr())
		full, idle := l.c.enter(host)
		switch {
		case idle != nil:
			idle.Close()
			l.c.spared.Inc()
			l.c.say("idle connections are closed for new ones: too many are open; raise the limit of open files, or look who opens them", host, full)
		case full != "":
			conn.Close()
			l.c.refused.WithLabelValues(full).Inc()
			l.c.say("connections are refused: too many are open; raise the limit of open files, or look who opens them", host, full)
			continue
		}
		return conn, nil // itself: writes of several buffers at once need its own type
	}
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// enter counts a connection unless all that there may be, or those that its address may have, are open: full says
// which. Then the connection gets the place of idle, which the caller closes; if that is nil it gets none.
func (c *connections) enter(host string) (full string, idle net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.mu.byHost[host]
	if h == nil {
		h = &hostConnections{}
	}
	switch {
	case c.mu.open >= c.most:
		full = "all"
	case h.open >= int(float64(c.most)*addressConnections):
		full = "address"
	}
	if full != "" {
		spare := c.spare(h)
		if spare == nil {
			return full, nil
		}
		idle = spare.conn
		c.drop(spare)
	}
	c.mu.open++
	h.open++
	c.mu.byHost[host] = h
	return full, idle
}

// spare is the connection of h that is idle for longest, if that is long enough for it to make room; otherwise nil.
// With mu.
func (c *connections) spare(h *hostConnections) *connID {
	first := h.idle.Front()
	if first == nil {
		return nil
	}
	id, least := first.Value.(*connID), spareAfter
	if id.unused {
		least = firstRequest
	}
	if c.now().Sub(id.since) < least {
		return nil
	}
	return id
}

// drop ends the account of a connection that is not taken over. With mu.
func (c *connections) drop(id *connID) {
	delete(c.mu.ids, id.conn)
	c.busy(id)
	c.leave(id.host)
}

// busy takes a connection from the idle ones. With mu.
func (c *connections) busy(id *connID) {
	if id.idle != nil {
		c.mu.byHost[id.host].idle.Remove(id.idle)
		id.idle = nil
	}
}

// leave makes room for another connection. With mu.
func (c *connections) leave(host string) {
	c.mu.open--
	h := c.mu.byHost[host]
	if h.open--; h.open == 0 {
		delete(c.mu.byHost, host)
	}
}

// sayEvery bounds how often the log says that there are too many connections.
const sayEvery = 10 * time.Second

func (c *connections) say(what, host, full string) {
	c.mu.Lock()
	now := c.now()
	say := now.Sub(c.mu.said) >= sayEvery
	if say {
		c.mu.said = now
	}
	c.mu.Unlock()
	if say {
		c.log.Warn(what, "addr", host, "limit", c.most, "of", full)
	}
}

// connID identifies a connection.
type connID struct {
	own   bool   // of the process itself, in memory: it is not counted
	host  string // that of the client
	taken bool   // by a handler, for a websocket

	// Of a connection that is counted, guarded by connections.mu:
	conn   net.Conn
	idle   *list.Element // its place among the idle ones of its address; nil while a request is under way
	since  time.Time     // when it became idle
	unused bool          // no request has come yet
}

// connKey is under which a connection's connID is in its requests' contexts.
type connKey struct{}

// context gives a connection its identity. It is the server's ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	id := &connID{host: hostOf(conn.RemoteAddr())}
	if _, id.own = conn.(*netmem.Conn); !id.own {
		id.conn = conn
		c.mu.Lock()
		c.mu.ids[conn] = id
		c.mu.Unlock()
	}
	return context.WithValue(ctx, connKey{}, id)
}

// changed follows a connection to its end. It is the server's ConnState.
func (c *connections) changed(conn net.Conn, to http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.mu.ids[conn]
	if id == nil { // of the process itself, or it has made room
		return
	}
	c.busy(id)
	switch to {
	case http.StateNew, http.StateIdle:
		id.unused, id.since = to == http.StateNew, c.now()
		id.idle = c.mu.byHost[id.host].idle.PushBack(id)
	case http.StateHijacked:
		delete(c.mu.ids, conn)
		id.taken = true
	case http.StateClosed:
		c.drop(id)
	}
}

// handled ends a request: a connection that its handler took over is at its end.
func (c *connections) handled(id *connID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id != nil && id.taken {
		id.taken = false
		c.leave(id.host)
	}
}
