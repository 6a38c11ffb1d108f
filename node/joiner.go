package node

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/columbamq/columba/core"
)

// Bounds of the look at the addresses to join.
const (
	joinLook      = 2 * time.Second // how often, while nobody was met
	joinLookLimit = time.Second     // of one address
)

// joiner ends a process that has met nobody because --join names the one port of a server instead of its gossip
// address: it would be alone for ever, and with the role controller a cluster of its own. It looks only until another
// host was met.
type joiner struct {
	own  *resources
	join []string
}

var _ role = (*joiner)(nil)

func newJoiner(own *resources, join []string) *joiner { return &joiner{own: own, join: join} }

// Routes has none.
func (j *joiner) Routes(*http.ServeMux) {}

// Start has nothing to acquire.
func (j *joiner) Start(context.Context) error { return nil }

// Run returns what is wrong with an address to join, or nil when ctx ends.
func (j *joiner) Run(ctx context.Context) error {
	select {
	case <-j.own.gossip.Tried():
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(joinLook)
	defer tick.Stop()
	for !j.met() {
		if err := j.check(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// Stop has nothing to release.
func (j *joiner) Stop(context.Context) error { return nil }

// met reports whether a host of another process is there.
func (j *joiner) met() bool {
	for _, h := range j.own.members.Hosts("") {
		mine := h.ID == j.own.self.ID || slices.ContainsFunc(j.own.stores, func(s *extraStore) bool { return s.self.ID == h.ID })
		if !mine {
			return true
		}
	}
	return false
}

// check refuses an address that answers as the one port of a server; nil once somebody was met meanwhile.
func (j *joiner) check(ctx context.Context) error {
	for _, addr := range j.join {
		if ctx.Err() == nil && isOnePort(ctx, addr) && !j.met() {
			return core.Errorf(core.CodeBadArgument, "join %s is where a server takes clients, not where it gossips; "+
				"name the address after gossip= in its ready line%s (if there is none, start it with --gossip)", addr, usually(addr))
		}
	}
	return nil
}

// usually is where a server with that one port gossips by default.
func usually(addr string) string {
	host, text, _ := net.SplitHostPort(addr) // valid: Config.Validate
	port, _ := strconv.Atoi(text)
	if port += gossipOffset; port > 65535 {
		return ""
	}
	return ", by default " + net.JoinHostPort(host, strconv.Itoa(port))
}

// isOnePort reports whether a server of Columba answers by HTTP at an address.
func isOnePort(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, joinLookLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	direct := &http.Transport{DisableKeepAlives: true}
	res, err := direct.RoundTrip(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	line, _ := bufio.NewReader(io.LimitReader(res.Body, 64)).ReadString('\n')
	return line == "starting\n" || line == "ready\n" || line == "draining\n"
}
