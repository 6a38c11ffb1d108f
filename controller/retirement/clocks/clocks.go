// Package clocks compares a host's clock with those of its peers, by the date that every HTTP answer carries.
package clocks

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/membership"
)

const (
	askTimeout = 500 * time.Millisecond
	asksAtOnce = 32
)

// Clocks asks hosts for their time. Safe for concurrent use.
type Clocks struct {
	transport *http.Transport
	client    *http.Client
	now       func() time.Time
}

// New reaches hosts by dial; now is this host's clock.
func New(dial func(ctx context.Context, network, addr string) (net.Conn, error), now func() time.Time) *Clocks {
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &Clocks{transport: transport, client: &http.Client{Transport: transport, Timeout: askTimeout}, now: now}
}

// Close ends the connections.
func (c *Clocks) Close() { c.transport.CloseIdleConnections() }

// Gaps are how far the clocks of the hosts that answer are ahead of this host's, give or take a second; silent is how many did not.
func (c *Clocks) Gaps(ctx context.Context, hosts []membership.Host) (gaps []time.Duration, silent int) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for _, m := range hosts {
		g.Go(func() error {
			gap, ok := c.gap(ctx, m.Address)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				gaps = append(gaps, gap)
			} else {
				silent++
			}
			return nil
		})
	}
	g.Wait()
	return gaps, silent
}

func (c *Clocks) gap(ctx context.Context, addr string) (time.Duration, bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", nil)
	if err != nil {
		return 0, false
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, false
	}
	resp.Body.Close()
	date, err := http.ParseTime(resp.Header.Get("Date"))
	return date.Sub(c.now()), err == nil
}
