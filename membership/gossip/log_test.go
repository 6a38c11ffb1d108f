package gossip

import (
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestHostilePeersDoNotFloodTheLog has 10,000 broken packets come, and as many hosts join and go.
func TestHostilePeersDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		m, err := New(Config{Self: host("a"), Bind: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		library := log.New(m.bridge(), "", 0)
		now := time.Now()
		for i := range 10_000 {
			library.Printf("[ERR] memberlist: Failed to decode from=192.0.2.1:%d", i)
			h := membership.Host{ID: core.HostID(fmt.Sprint("host-", i)), Address: fmt.Sprintf("192.0.2.%d:%d", i%256, i), Run: core.RunID{ID: core.ID{0: byte(i >> 8), 1: byte(i), 15: 1}}}
			m.tell(nil, []membership.Host{h})
			m.tell([]membership.Host{h}, nil)
			m.tellDoubles([]membership.Host{h}, now)
			m.tellDoubles([]membership.Host{h}, now.Add(time.Hour))
		}
		if n := strings.Count(out.String(), "\n"); n == 0 || n > 400 {
			t.Errorf("the log has %d lines, want some and at most 400", n)
		}
		for _, part := range []string{"msg=gossip text=\"memberlist: Failed to decode from=192.0.2.1:0\"", "host joined", "host is gone", "two live processes"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("the log lacks %q", part)
			}
		}
		out.Reset()
		time.Sleep(time.Hour)
		library.Printf("[ERR] memberlist: another error")
		if text := out.String(); !strings.Contains(text, "another error") || !strings.Contains(text, "suppressed=") {
			t.Errorf("an hour later the log says %q, want the line and how many were left out", text)
		}
	})
}
