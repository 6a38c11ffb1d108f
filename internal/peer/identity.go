package peer

import (
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

// Identify puts a host and its run into the header of an answer. Whoever asks at an address cannot know otherwise who answers there.
func Identify(h http.Header, id core.HostID, run core.RunID) {
	h.Set(HostHeader, string(id))
	h.Set(RunHeader, run.String())
}

// IsFrom reports whether an answer is from that run of a host.
func IsFrom(h http.Header, id core.HostID, run core.RunID) bool {
	return h.Get(HostHeader) == string(id) && h.Get(RunHeader) == run.String()
}
