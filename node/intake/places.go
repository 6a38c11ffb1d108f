package intake

import (
	"strings"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// kind of a call. Each kind has places of its own: those that wait on purpose leave the places of the others free.
type kind int

const (
	publicCall kind = iota
	publicPull
	hostCall
	hostPull
	kinds
)

// labels are the kinds in metrics.
var labels = [kinds]string{"public", "public_pull", "host", "host_pull"}

// mostCalls are how many calls of each kind may be under way. A call of an HTTP/2 connection counts for its connection before: the protocol
// bounds their streams.
var mostCalls = [kinds]int{publicCall: 4000, publicPull: 4000, hostCall: 10_000, hostPull: 4000}

// kindOf is the kind of a procedure.
func kindOf(path string, public bool) kind {
	pull := strings.HasSuffix(path, "/Pull")
	switch {
	case public && pull:
		return publicPull
	case public:
		return publicCall
	case pull:
		return hostPull
	}
	return hostCall
}

// places counts the calls under way, from before anything is read of their bodies until they are answered. One address may have three quarters
// of each kind. Safe for concurrent use.
type places struct {
	most [kinds]int
	mu   struct {
		sync.Mutex
		taken     [kinds]int
		byAddress [kinds]map[string]int
	}
}

func newPlaces(most [kinds]int) *places {
	p := &places{most: most}
	for k := range p.mu.byAddress {
		p.mu.byAddress[k] = map[string]int{}
	}
	return p
}

// enter admits a call, which must leave; CodeThrottled.
func (p *places) enter(k kind, address string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch share := int(float64(p.most[k]) * addressShare); {
	case p.mu.byAddress[k][address] >= share:
		return tooMany(k, share, " of this address")
	case p.mu.taken[k] >= p.most[k]:
		return tooMany(k, p.most[k], "")
	}
	p.mu.taken[k]++
	p.mu.byAddress[k][address]++
	return nil
}

func (p *places) leave(k kind, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.taken[k]--
	if p.mu.byAddress[k][address]--; p.mu.byAddress[k][address] == 0 {
		delete(p.mu.byAddress[k], address)
	}
}

// under is how many calls of a kind are under way.
func (p *places) under(k kind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.taken[k]
}

func tooMany(k kind, limit int, whose string) error {
	what, advice := "calls", "make fewer at once, and try again in a second"
	if k == publicPull || k == hostPull {
		what, advice = "pulls", "pull with fewer at once, or consume with the client library, and try again in a second"
	}
	err := core.Errorf(core.CodeThrottled, "%d %s%s are under way, which is the limit; %s", limit, what, whose, advice)
	err.RetryAfter = time.Second
	return err
}
