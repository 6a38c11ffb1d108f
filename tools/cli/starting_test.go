package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// A command that is given while its server starts waits for it, also one that changes something: nothing is done
// before.
func TestCommands_WaitForTheStartOfAServer(t *testing.T) {
	s, addr := newFakeServer(t)
	var refused, unready atomic.Int32
	started := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if unready.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		to := r.Clone(r.Context())
		to.URL.Scheme, to.URL.Host, to.RequestURI = "http", addr, ""
		res, err := http.DefaultTransport.RoundTrip(to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(res.StatusCode)
		var body bytes.Buffer
		body.ReadFrom(res.Body)
		w.Write(body.Bytes())
	}))
	defer started.Close()
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		if refused.Add(-1) >= 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	for _, line := range []string{"create queue /a/b", "list queues", "delete queue /a/b --yes"} {
		refused.Store(2)
		unready.Store(2)
		var out, talk bytes.Buffer
		code := MainVia(t.Context(), dial, strings.Fields(line), strings.NewReader(""), &out, &talk, []string{"COLUMBA_ADDR=" + started.Listener.Addr().String()})
		if code != core.ExitOK {
			t.Errorf("%s: exit code %d, %q", line, code, talk.String())
		}
	}
	if len(s.queues) != 0 {
		t.Error("the queue was not created once and deleted once")
	}
}

// A consumer without an output host ends when --timeout or --idle says so, and not as if it had found nothing.
func TestConsume_EndsWithoutAnOutputHost(t *testing.T) {
	s, addr := newFakeServer(t)
	if err := s.setup("/a/b", "g"); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{"--timeout", "--idle"} {
		began := time.Now()
		_, stderr, code := runCLI(addr, []string{"consume", "/a/b", "g", limit, "1500ms"}, "")
		if took := time.Since(began); code != core.ExitUnavailable || took > 10*time.Second {
			t.Errorf("%s: exit code %d after %s, %q", limit, code, took, stderr)
		}
		if !strings.Contains(stderr, "for 1.5s no output host was known for group g of /a/b") || !strings.Contains(stderr, "note: no output host is known yet for group g of /a/b") {
			t.Errorf("%s: %q", limit, stderr)
		}
	}
}

// A consumer that cannot connect in an outage of the metadata says so, and not that the hosts are away.
func TestConsume_WithoutAMajority(t *testing.T) {
	s, addr := newFakeServer(t)
	if err := s.setup("/a/b", "g"); err != nil {
		t.Fatal(err)
	}
	s.outage.Store(true)
	for _, limit := range []string{"--timeout", "--idle"} {
		_, stderr, code := runCLI(addr, []string{"consume", "/a/b", "g", limit, "500ms"}, "")
		if code != core.ExitUnavailable || strings.Contains(stderr, "no output host") ||
			!strings.Contains(stderr, "no majority of the metadata answers, so this cannot be read (no_majority) – start the Cassandra nodes") {
			t.Errorf("%s: exit code %d, %q", limit, code, stderr)
		}
	}
}
