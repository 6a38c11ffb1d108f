package node

import (
	"bytes"
	"context"
	"errors"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/membership"
)

// Limits of a connection to the one port.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	maxStreams    = 250       // calls at once on one HTTP/2 connection
	streamBuffer  = 256 << 10 // bytes of a connection that no handler has read yet
	maxScrapes    = 4         // metrics pages at once
	// firstRequest is how long a server that stops waits for the first request of a new connection. Clients keep some in
	// reserve, on which none comes; net/http alone would wait for 5 s.
	firstRequest = 100 * time.Millisecond
)

// phase is where a process is in its life; it only goes up.
type phase = int32

const (
	starting phase = iota
	ready
	draining
)

// server is the one HTTP server of a process. The same pages are served on the network and, for the process's own
// roles, on a listener in memory.
type server struct {
	name      string
	log       *slog.Logger
	listeners []net.Listener
	http      *http.Server
	guard     *guard
	phase     atomic.Int32
	unused    struct {
		sync.Mutex
		conns map[net.Conn]bool // on which no request has come
	}
	failing func() error          // why a role takes nothing new; nil while all do
	dead    func() error          // why the metadata of this process refuse everything; nil while they work
	failure atomic.Pointer[error] // that stops the process, from then on; nil while there is none
	self    membership.Host       // named in the answers of the health page
}

// works says that nothing has failed.
func works() error { return nil }

// newServer serves pages of roles, and health, metrics and profiles, behind a guard.
func newServer(log *slog.Logger, metrics *prometheus.Registry, g *guard, pages http.Handler, listeners ...net.Listener) *server {
	s := &server{name: "server", log: log, listeners: listeners, guard: g, failing: works, dead: works}
	if p, ok := pages.(interface{ failing() error }); ok {
		s.failing = p.failing
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.HandleFunc("GET "+peer.HealthPath, func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), MaxRequestsInFlight: maxScrapes,
	}))
	profiles := &profiles{}
	mux.Handle("/debug/pprof/", profiles.one(pprof.Index))
	mux.Handle("/debug/pprof/cmdline", profiles.one(pprof.Cmdline))
	mux.Handle("/debug/pprof/profile", profiles.one(pprof.Profile))
	mux.Handle("/debug/pprof/symbol", profiles.one(pprof.Symbol))
	mux.Handle("/debug/pprof/trace", profiles.one(pprof.Trace))
	s.http = &http.Server{
		Handler:           serving.EndOnPanic(s.identify(g.wrap(mux))),
		ConnContext:       g.conns.context,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: streamBuffer, MaxReceiveBufferPerStream: streamBuffer,
		},
		ErrorLog: stdlog.New(errorLog{log}, "", 0),
	}
	s.unused.conns = make(map[net.Conn]bool)
	s.http.ConnState = func(c net.Conn, state http.ConnState) {
		g.conns.changed(c, state)
		s.follow(c, state)
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// identify names the host in each answer of the health page, also when the guard refuses the request: the controller
// asks there whether the host lives.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == peer.HealthPath {
			peer.Identify(w.Header(), s.self.ID, s.self.Run)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) Name() string { return s.name }

// Start has nothing to acquire: the listeners are open.
func (s *server) Start(context.Context) error { return nil }

// Run serves until ctx ends, then waits for the calls under way. Websockets are their roles' to end.
func (s *server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range s.listeners {
		if _, own := l.(*netmem.Listener); !own {
			l = s.guard.conns.limit(l)
		}
		group.Go(func() error {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout/2)
		defer cancel()
		spare := time.AfterFunc(firstRequest, s.closeUnused)
		defer spare.Stop()
		if err := s.http.Shutdown(grace); err != nil {
			s.log.Warn("calls broken off by the stop", "err", err)
			return s.http.Close()
		}
		return nil
	})
	return group.Wait()
}

// follow notes which connections have had no request.
func (s *server) follow(c net.Conn, state http.ConnState) {
	s.unused.Lock()
	defer s.unused.Unlock()
	if state == http.StateNew {
		s.unused.conns[c] = true
	} else {
		delete(s.unused.conns, c)
	}
}

// closeUnused closes the connections on which no request has come.
func (s *server) closeUnused() {
	s.unused.Lock()
	defer s.unused.Unlock()
	for c := range s.unused.conns {
		c.Close()
	}
}

// Stop closes what Run has left.
func (s *server) Stop(context.Context) error { return s.http.Close() }

func (s *server) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := s.dead(); err != nil {
		writeText(w, http.StatusServiceUnavailable, "failed: "+err.Error())
		return
	}
	switch s.phase.Load() {
	case ready:
		if err := s.failing(); err != nil {
			writeText(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		writeText(w, http.StatusOK, "ready")
	case draining:
		if err := s.failure.Load(); err != nil {
			writeText(w, http.StatusServiceUnavailable, "failed: "+(*err).Error())
			return
		}
		writeText(w, http.StatusServiceUnavailable, "draining")
	default:
		writeText(w, http.StatusServiceUnavailable, "starting")
	}
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the caller has gone when it fails
}

// errorLog takes the lines of the library that serves HTTP. Trouble of the listener, like too many open files, is a
// warning; everything else is what clients do wrong, and only for who debugs.
type errorLog struct{ log *slog.Logger }

// Write implements io.Writer; the library writes one line, or one stack, at a time.
func (e errorLog) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(line, []byte("Accept error")) || bytes.Contains(line, []byte("superfluous")) {
		level = slog.LevelWarn
	}
	e.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

// maxProfile is the longest profile or trace: each slows the server down while it is taken.
const maxProfile = 60 * time.Second

// profiles serves one profile at a time.
type profiles struct{ mu sync.Mutex }

// one serves a page of profiles unless another is served.
func (p *profiles) one(page http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("seconds"); text != "" {
			s, err := strconv.ParseFloat(text, 64)
			if err != nil || !(s >= 0 && s <= maxProfile.Seconds()) { // also refuses NaN
				writeText(w, http.StatusBadRequest, "seconds is not a number in 0 … 60; take several profiles one after another")
				return
			}
		}
		if !p.mu.TryLock() {
			w.Header().Set("Retry-After", "1")
			writeText(w, http.StatusTooManyRequests, "another profile is being taken; try again when it is done")
			return
		}
		defer p.mu.Unlock()
		page(w, r)
	})
}
