package node

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/node/intake"
)

// guard is what all requests from outside pass on their way to the pages of a process: who may ask at all, how their
// bodies come in, and how long their answers may take. The process's own roles, which call in memory, do not pass it.
type guard struct {
	intake  *intake.Intake
	conns   *connections
	names   []string // by which the server may be called; nil: any
	refused *prometheus.CounterVec
}

// newGuard makes the guard of a process; all its servers share it. names are those that a request may call it by, nil
// any; connections is how many may be open at once.
func newGuard(log *slog.Logger, reg prometheus.Registerer, names []string, connections int) *guard {
	g := &guard{
		intake: intake.New(log, reg), conns: newConnections(log, reg, connections), names: names,
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "columba_server_requests_refused_total", Help: "Requests refused before they were handled, by reason.",
		}, []string{"reason"}),
	}
	reg.MustRegister(g.refused)
	return g
}

// trustedNames are the names of a server that only its machine reaches: others would be a web page's, whose name was
// made to point here. It is nil, which is any, for one that others reach.
func trustedNames(cfg Config, advertised string) []string {
	host, _, _ := net.SplitHostPort(cfg.Listen) // valid: Config.Validate
	if !loopback(host) {
		return nil
	}
	own, _, _ := net.SplitHostPort(advertised)
	names := []string{"localhost", strings.ToLower(own)}
	for _, n := range cfg.HostNames {
		names = append(names, strings.ToLower(n))
	}
	return names
}

// wrap puts the guard before pages.
func (g *guard) wrap(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*connID)
		if c != nil && c.own {
			pages.ServeHTTP(w, r)
			return
		}
		if !g.knows(r.Host) {
			g.refuse(w, r, "host", http.StatusMisdirectedRequest, "this server listens on its own machine only and is not called "+printableHost(r.Host)+"; call it localhost, or name it with --host-names")
			return
		}
		if crossSite(r) {
			g.refuse(w, r, "cross_site", http.StatusForbidden, "a web page of another site may not call this server")
			return
		}
		if r.Method == http.MethodGet && r.Body == http.NoBody && slices.Contains(websockets, r.URL.Path) && r.Header.Get("Upgrade") != "" {
			defer g.conns.handled(c)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(intake.AnswerTime)) // of a refusal; a websocket clears it
			pages.ServeHTTP(w, r)
			return
		}
		g.intake.Serve(w, r, addressOf(r), conn(c, r), pages)
	})
}

// websockets are the pages that take connections over. All others keep the limits of a request.
var websockets = []string{"/v1/publish", "/v1/consume", "/v1/store"}

// refusedTime is how long the server reads what a refused client still sends, so that the answer reaches it.
const refusedTime = 500 * time.Millisecond

func (g *guard) refuse(w http.ResponseWriter, r *http.Request, reason string, status int, text string) {
	g.refused.WithLabelValues(reason).Inc()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTime))
	w = intake.NewAnswer(w, r)
	w.Header().Set("Connection", "close")
	writeText(w, status, text)
}

// printableHost is a name that a client sent, for an answer in plain text.
func printableHost(host string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, host[:min(len(host), 100)])
}

// knows reports whether a request may call the server by that name. One without a name is of HTTP/1.0, which no browser
// sends.
func (g *guard) knows(hostport string) bool {
	if g.names == nil || hostport == "" {
		return true
	}
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return slices.Contains(g.names, host)
}

// crossSite reports whether a browser sends the request for a page of another origin. Other clients send neither
// header.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

// conn is what the budget knows a request's connection by.
func conn(c *connID, r *http.Request) any {
	if c == nil {
		return r.RemoteAddr
	}
	return c
}

// addressOf is the address of the client, without its port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
