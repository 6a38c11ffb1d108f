// Package clocks reads the clocks of hosts, by the date that every HTTP answer carries.
package clocks

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/membership"
)

const (
	askTimeout = 500 * time.Millisecond
	asksAtOnce = 32
	unit       = time.Second // of a date, cut
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

// Read compares the clocks of all members with this host's, its own among them. silent is how many members did not
// answer.
func (c *Clocks) Read(ctx context.Context, members membership.Monitor) (readings map[core.HostID]skew.Reading, silent int) {
	self := members.Self().ID
	readings = map[core.HostID]skew.Reading{self: {}}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for _, m := range members.Hosts("") {
		if m.ID == self || m.Address == "" {
			continue
		}
		g.Go(func() error {
			r, ok := c.read(ctx, m.Address)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				readings[m.ID] = r
			} else {
				silent++
			}
			return nil
		})
	}
	_ = g.Wait()
	return readings, silent
}

// read asks one host. Its answer was dated somewhere on the way there and back.
func (c *Clocks) read(ctx context.Context, addr string) (r skew.Reading, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", nil)
	if err != nil {
		return r, false
	}
	from := c.now()
	resp, err := c.client.Do(req)
	if err != nil {
		return r, false
	}
	resp.Body.Close()
	half := c.now().Sub(from) / 2
	date, err := http.ParseTime(resp.Header.Get("Date"))
	return skew.Reading{Ahead: date.Add(unit / 2).Sub(from.Add(half)), Within: half + unit/2}, err == nil
}
