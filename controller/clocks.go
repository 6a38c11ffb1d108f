package controller

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/retention"
	"github.com/columbamq/columba/membership"
)

// clocks compares this host's clock with its peers', by the date that every HTTP answer carries. One goroutine uses it.
type clocks struct {
	h         *Host
	transport *http.Transport
	client    *http.Client
	differ    bool
}

func newClocks(h *Host) *clocks {
	transport := &http.Transport{DialContext: h.deps.Peers.Dial, DisableKeepAlives: true}
	return &clocks{h: h, transport: transport, client: &http.Client{Transport: transport, Timeout: probeTimeout}}
}

func (c *clocks) close() { c.transport.CloseIdleConnections() }

// trusted asks all hosts, and reports whether anything may be retired by this host's clock.
func (c *clocks) trusted(ctx context.Context) bool {
	gaps, silent := []time.Duration{0}, 0 // its own
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(probesAtOnce)
	for _, m := range c.h.deps.Members.Hosts("") {
		if m.ID == c.h.deps.Members.Self().ID || m.Address == "" {
			continue
		}
		g.Go(func() error {
			gap, ok := c.gap(ctx, m)
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
	ok := retention.Trust(gaps, silent)
	if !ok && !c.differ && ctx.Err() == nil {
		c.h.log.Error("retention stops: the clocks of hosts differ, or too few hosts answer; look after the time service", "gaps", gaps, "silent", silent)
	} else if ok && c.differ {
		c.h.log.Info("retention goes on: the clocks agree")
	}
	c.differ = !ok
	c.h.metrics.retentionStopped.Set(float64(boolInt(!ok)))
	return ok
}

// gap is how far a host's clock is ahead, give or take a second; not ok when it did not say.
func (c *clocks) gap(ctx context.Context, m membership.Host) (time.Duration, bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Address+"/healthz", nil)
	if err != nil {
		return 0, false
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, false
	}
	resp.Body.Close()
	date, err := http.ParseTime(resp.Header.Get("Date"))
	return date.Sub(c.h.deps.now()), err == nil
}
