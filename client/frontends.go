package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

const (
	// firstLearn is how long a client waits before it asks who else is there: many end sooner.
	firstLearn = time.Second
	learnEvery = 30 * time.Second
	// attemptTimeout bounds one server's answer to a look-up while there is another server to ask.
	attemptTimeout = 3 * time.Second
	maxFrontends   = 64
)

// frontends are the servers that calls may go to: those that Dial was given, and the others of their cluster. All calls
// go to one of them until it fails. It is the RoundTripper of the calls; safe for concurrent use.
type frontends struct {
	base  http.RoundTripper
	given []string
	lost  chan struct{} // capacity 1: one has failed
	mu    struct {
		sync.Mutex
		all []string
		at  int // the one that calls go to
	}
}

// parseAddrs reads host:port, or several with commas between.
func parseAddrs(addr string) ([]string, error) {
	var out []string
	for a := range strings.SplitSeq(addr, ",") {
		a = strings.TrimSpace(a)
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, core.Errorf(core.CodeBadArgument, "address %q is not host:port: %w", a, err)
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, nil
}

func newFrontends(base http.RoundTripper, given []string, first int) *frontends {
	f := &frontends{base: base, given: given, lost: make(chan struct{}, 1)}
	f.mu.all, f.mu.at = given, first
	return f
}

func (f *frontends) current() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.all[f.mu.at]
}

func (f *frontends) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.all)
}

// failed moves on from a server.
func (f *frontends) failed(addr string) {
	f.mu.Lock()
	if f.mu.all[f.mu.at] == addr {
		f.mu.at = (f.mu.at + 1) % len(f.mu.all)
	}
	f.mu.Unlock()
	signal(f.lost)
}

// learn adds the cluster's servers to those given, and forgets others that it had learned.
func (f *frontends) learn(addrs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.mu.all[f.mu.at]
	all := slices.Clone(f.given)
	for _, a := range addrs {
		if a != "" && !slices.Contains(all, a) && len(all) < maxFrontends {
			all = append(all, a)
		}
	}
	f.mu.all = all
	f.mu.at = max(slices.Index(all, now), 0)
}

// RoundTrip implements http.RoundTripper: the request's host is replaced by the server's.
func (f *frontends) RoundTrip(req *http.Request) (*http.Response, error) {
	addr := f.current()
	to := req.Clone(req.Context())
	to.URL.Host, to.Host = addr, addr
	res, err := f.base.RoundTrip(to)
	if err != nil && !errors.Is(req.Context().Err(), context.Canceled) {
		f.failed(addr)
	}
	return res, err
}

// follow keeps the list of servers up to date until the client ends.
func (c *Client) follow() {
	timer := time.NewTimer(firstLearn)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
		case <-c.frontends.lost:
			if !pause(c.ctx, firstLearn) {
				return
			}
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.timeout)
		res, err := c.admin.ListHosts(ctx, connect.NewRequest(&pb.ListHostsRequest{}))
		cancel()
		if err == nil {
			var addrs []string
			for _, h := range res.Msg.Hosts {
				if slices.Contains(h.Roles, "frontend") && h.Since == nil { // it is there
					addrs = append(addrs, h.Addr)
				}
			}
			c.frontends.learn(addrs)
		}
		timer.Reset(learnEvery)
	}
}

// pause reports whether ctx lasted so long.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
