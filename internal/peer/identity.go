package peer

import (
	"context"
	"net/http"

	"github.com/columbamq/columba/core"
)

// HealthPath is the page by which a host says that it lives, and who it is.
const HealthPath = "/healthz"

// Headers of the answers of HealthPath.
const (
	HostHeader = "Columba-Host" // the id of the host
	RunHeader  = "Columba-Run"  // the id of its run
)

// Identify puts a host and its run into the header of an answer. A caller that knows only an address learns by it which
// host answers.
func Identify(h http.Header, id core.HostID, run core.RunID) {
	h.Set(HostHeader, string(id))
	h.Set(RunHeader, run.String())
}

// IsFrom reports whether an answer is from that run of a host.
func IsFrom(h http.Header, id core.HostID, run core.RunID) bool {
	return h.Get(HostHeader) == string(id) && h.Get(RunHeader) == run.String()
}

// Answers reports whether that run of a host answers at addr; the status does not matter. An answer that names nobody
// is another service's, which got the address.
func Answers(ctx context.Context, client *http.Client, addr string, id core.HostID, run core.RunID) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+HealthPath, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return IsFrom(resp.Header, id, run)
}
