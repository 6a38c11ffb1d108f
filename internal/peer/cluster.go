package peer

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
)

// ClusterHeader names the caller's cluster in every call and websocket between hosts. Clients do not send it.
const ClusterHeader = "Columba-Cluster"

// sayEvery is how often the log tells of callers of other clusters.
const sayEvery = time.Minute

// Cluster is which cluster this process belongs to. It is unknown until the process met metadata the first time, and
// never changes then. The zero Cluster is unknown. Safe for concurrent use.
type Cluster struct {
	id   atomic.Pointer[core.ID]
	said atomic.Int64 // when the log was told of another cluster; unix ns
}

// ID is the cluster's id; zero while it is unknown.
func (c *Cluster) ID() core.ID {
	if id := c.id.Load(); id != nil {
		return *id
	}
	return core.ID{}
}

// Set makes id the cluster's, unless another one is.
func (c *Cluster) Set(id core.ID) error {
	if c.id.CompareAndSwap(nil, &id) || *c.id.Load() == id {
		return nil
	}
	return core.Errorf(core.CodeConflict, "this host is of cluster %s and not of %s", c.ID(), id)
}

// mark puts the cluster into the header of a request to another host.
func (c *Cluster) mark(h http.Header) {
	if id := c.ID(); !id.IsZero() {
		h.Set(ClusterHeader, id.String())
	}
}

// Transport marks the calls that next sends.
func (c *Cluster) Transport(next http.RoundTripper) http.RoundTripper { return marked{next, c} }

type marked struct {
	http.RoundTripper
	c *Cluster
}

func (m marked) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	m.c.mark(r.Header)
	return m.RoundTripper.RoundTrip(r)
}

func (m marked) CloseIdleConnections() {
	if t, ok := m.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Guard refuses the calls and websockets of hosts of another cluster, with CodeUnavailable: what this host knows says
// nothing to them, least of all that something does not exist. Requests without a mark pass. A host that has not met
// its cluster yet refuses all that are marked: it must hold nothing of one cluster before it can no more become a
// member of another one.
func (c *Cluster) Guard(log *slog.Logger, next http.Handler) http.Handler {
	refusals := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		theirs, own := r.Header.Get(ClusterHeader), c.ID()
		if theirs == "" || theirs == own.String() {
			next.ServeHTTP(w, r)
			return
		}
		if own.IsZero() {
			refuse(refusals, w, r, core.Errorf(core.CodeUnavailable, "this host has not met the metadata of its cluster yet; start the process with the role controller, or look whether this host joins it"))
			return
		}
		err := core.Errorf(core.CodeUnavailable, "this host is of cluster %s, and the caller is of another one; see that each process joins hosts of its own cluster", own)
		now := time.Now().UnixNano()
		if said := c.said.Load(); now-said >= int64(sayEvery) && c.said.CompareAndSwap(said, now) {
			if len(theirs) > len(own.String()) {
				theirs = theirs[:len(own.String())]
			}
			log.Warn("a host of another cluster called and was refused; see that each process joins hosts of its own cluster with --join",
				telemetry.KeyPeer, r.RemoteAddr, "cluster", own, "other", theirs)
		}
		refuse(refusals, w, r, err)
	})
}

// refuse answers a call or a websocket with an error.
func refuse(calls *connect.ErrorWriter, w http.ResponseWriter, r *http.Request, err error) {
	if calls.IsSupported(r) && calls.Write(w, r, convert.RPCError(err)) == nil {
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
