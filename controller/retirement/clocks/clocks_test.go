package clocks

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/membership"
)

// TestClocks_Gaps asks one host that is ahead, one that agrees, one that says nothing of the time, and one that is not there.
func TestClocks_Gaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dates := map[string]func() []string{
			"ahead:1": func() []string { return []string{time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)} },
			"right:1": func() []string { return []string{time.Now().UTC().Format(http.TimeFormat)} },
			"mute:1":  func() []string { return nil },
		}
		listeners := make(map[string]*netmem.Listener)
		var serving sync.WaitGroup
		defer serving.Wait()
		hosts := []membership.Host{{Address: "away:1"}}
		for addr, date := range dates {
			l := netmem.Listen(addr)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = date() })}
			serving.Go(func() { server.Serve(l) })
			defer server.Close()
			listeners[addr] = l
			hosts = append(hosts, membership.Host{Address: addr})
		}
		c := New(func(ctx context.Context, _, addr string) (net.Conn, error) {
			if l := listeners[addr]; l != nil {
				return l.Dial(ctx)
			}
			return nil, errors.New("refused")
		}, time.Now)
		defer c.Close()
		gaps, silent := c.Gaps(t.Context(), hosts)
		if slices.Sort(gaps); silent != 2 || !slices.Equal(gaps, []time.Duration{0, time.Hour}) {
			t.Errorf("gaps %v, %d silent; want 0 and an hour, 2 silent", gaps, silent)
		}
	})
}
