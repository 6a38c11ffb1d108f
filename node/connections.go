package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/internal/netmem"
)

// maxConnections is how many connections the servers of a process have at once, at most. With few file descriptors it is less.
const maxConnections = 10_000

// addressConnections is the part of them that one address may have.
const addressConnections = 3.0 / 4

// connections counts those of all servers of a process. Safe for concurrent use.
type connections struct {
	log     *slog.Logger
	most    int
	refused *prometheus.CounterVec
	mu      struct {
		sync.Mutex
		open   int
		byHost map[string]int
		ids    map[net.Conn]*connID // of those from outside, until they are closed or taken over
		said   time.Time
	}
}

func newConnections(log *slog.Logger, reg prometheus.Registerer, most int) *connections {
	c := &connections{log: log, most: most, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "columba_server_connections_refused_total", Help: "Connections that were closed at once, by reason.",
	}, []string{"reason"})}
	c.mu.byHost, c.mu.ids = map[string]int{}, map[net.Conn]*connID{}
	reg.MustRegister(c.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_connections", Help: "Open connections to the servers of the process, websockets included.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.mu.open)
	}))
	return c
}

// limit is a listener whose connections are counted; one too many is closed at once. The server has to tell their states to context and changed,
// and handlers that take a connection over end with it: then it is left.
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
		if why := l.c.enter(host); why != "" {
			l.c.refuse(why, host)
			conn.Close()
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

// enter counts a connection; otherwise it says why not.
func (c *connections) enter(host string) (why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.open >= c.most:
		return "all"
	case c.mu.byHost[host] >= int(float64(c.most)*addressConnections):
		return "address"
	}
	c.mu.open++
	c.mu.byHost[host]++
	return ""
}

// leave makes room for another connection. With mu.
func (c *connections) leave(host string) {
	c.mu.open--
	if c.mu.byHost[host]--; c.mu.byHost[host] == 0 {
		delete(c.mu.byHost, host)
	}
}

// sayEvery bounds how often the log says that connections are refused.
const sayEvery = 10 * time.Second

func (c *connections) refuse(why, host string) {
	c.refused.WithLabelValues(why).Inc()
	c.mu.Lock()
	say := time.Since(c.mu.said) >= sayEvery
	if say {
		c.mu.said = time.Now()
	}
	c.mu.Unlock()
	if say {
		c.log.Warn("connections are refused: too many are open; raise the limit of open files, or look who opens them", "addr", host, "limit", c.most, "of", why)
	}
}

// connID identifies a connection.
type connID struct {
	own   bool   // of the process itself, in memory: it is not counted
	host  string // that of the client
	taken bool   // by a handler, for a websocket
}

// connKey is under which a connection's connID is in its requests' contexts.
type connKey struct{}

// context gives a connection its identity. It is the server's ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	id := &connID{host: hostOf(conn.RemoteAddr())}
	if _, id.own = conn.(*netmem.Conn); !id.own {
		c.mu.Lock()
		c.mu.ids[conn] = id
		c.mu.Unlock()
	}
	return context.WithValue(ctx, connKey{}, id)
}

// changed follows a connection to its end. It is the server's ConnState.
func (c *connections) changed(conn net.Conn, to http.ConnState) {
	if to != http.StateClosed && to != http.StateHijacked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.mu.ids[conn]
	delete(c.mu.ids, conn)
	switch {
	case id == nil:
	case to == http.StateHijacked:
		id.taken = true
	default:
		c.leave(id.host)
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
