package clocks

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// TestClocks_Read asks one host that is ahead, one that agrees, one that says nothing of the time, and one that is not
// there.
func TestClocks_Read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dates := map[string]func() []string{
			"ahead:1": func() []string { return []string{time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)} },
			"right:1": func() []string { return []string{time.Now().UTC().Format(http.TimeFormat)} },
			"mute:1":  func() []string { return nil },
		}
		listeners := make(map[string]*netmem.Listener)
		var serving sync.WaitGroup
		defer serving.Wait()
		hosts := []membership.Host{{ID: "away", Address: "away:1"}}
		for addr, date := range dates {
			l := netmem.Listen(addr)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = date() })}
			serving.Go(func() { server.Serve(l) })
			defer server.Close()
			listeners[addr] = l
			hosts = append(hosts, membership.Host{ID: core.HostID(strings.TrimSuffix(addr, ":1")), Address: addr})
		}
		c := New(func(ctx context.Context, _, addr string) (net.Conn, error) {
			if l := listeners[addr]; l != nil {
				return l.Dial(ctx)
			}
			return nil, errors.New("refused")
		}, time.Now)
		defer c.Close()
		members, err := static.New(membership.Host{ID: "self", Address: "self:1"}, hosts...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // dates are cut
		readings, silent := c.Read(t.Context(), members)
		want := map[core.HostID]skew.Reading{
			"self": {}, "right": {Ahead: 200 * time.Millisecond, Within: 500 * time.Millisecond}, "ahead": {Ahead: time.Hour + 200*time.Millisecond, Within: 500 * time.Millisecond},
		}
		if silent != 2 || !maps.Equal(readings, want) {
			t.Errorf("read %v, %d silent; want %v, 2 silent", readings, silent, want)
		}
	})
}
