package cli

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/columbamq/columba/core"
)

// newHungServer is a server whose process is stopped: connections are accepted, and requests get no answer.
func newHungServer(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); accepting.Wait() })
	return l.Addr().String()
}

// Of several servers one is hung. A question goes on with the next one. A change does not, because its outcome is
// unknown: its error names the server that was asked, and no other.
func TestServers_OneIsHung(t *testing.T) {
	_, addr := newFakeServer(t)
	hung, another := newHungServer(t), newHungServer(t)
	for _, c := range []struct {
		addrs []string
		args  string
		code  int
		says  string
	}{
		{[]string{hung, addr}, "list hosts --timeout 1s", core.ExitOK, ""},
		{[]string{hung, another, addr}, "list hosts --timeout 2s", core.ExitOK, ""},
		{[]string{hung, another}, "list hosts --timeout 200ms", core.ExitUnavailable, "no answer from " + hung + "," + another + " within 200ms"},
		{[]string{hung, addr}, "create queue /a/b --timeout 200ms", core.ExitUnavailable, "no answer from " + hung + " within 200ms"},
		{[]string{addr, hung}, "create queue /a/c --timeout 10s", core.ExitOK, ""},
	} {
		_, stderr, code := runCLI(strings.Join(c.addrs, ","), strings.Fields(c.args), "")
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, stderr %q, want %d, %q", c.args, code, stderr, c.code, c.says)
		}
	}
}
