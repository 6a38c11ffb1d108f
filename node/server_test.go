package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// servePages runs a server with pages on a port of its own until the test ends, and returns its address.
func servePages(t *testing.T, pages http.Handler, names ...string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	s := newServer(out, reg, newGuard(out, reg, names, maxConnections), pages, l)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return l.Addr().String()
}

func TestServer_PanicOfAPageEndsTheProcess(t *testing.T) {
	const child = "COLUMBA_TEST_PANIC"
	if os.Getenv(child) != "" {
		addr := servePages(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") }))
		_, err := http.Get("http://" + addr + "/any")
		fmt.Println("the process goes on:", err)
		os.Exit(1)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "a defect") {
		t.Errorf("the process ended with %v, want exit code 2 and the panic:\n%s", err, out)
	}
}

// do sends one request over a connection of its own.
func do(t *testing.T, method, addr, path string, change func(*http.Request)) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func okPage(w http.ResponseWriter, r *http.Request) { writeText(w, http.StatusOK, r.Proto) }

func TestForeignNameIsRefused(t *testing.T) {
	addr := servePages(t, http.HandlerFunc(okPage), "localhost", "queue.example.org")
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost": http.StatusOK, "LOCALHOST:1": http.StatusOK, "127.0.0.1": http.StatusOK, "127.9.9.9:80": http.StatusOK, "[::1]:4922": http.StatusOK,
		"queue.example.org": http.StatusOK, "Queue.Example.Org.:443": http.StatusOK, "localhost.": http.StatusOK,
		"evil.example.org": http.StatusMisdirectedRequest, "localhost.evil.org:4922": http.StatusMisdirectedRequest, "10.0.0.1": http.StatusMisdirectedRequest, "127.0.0.1.nip.io": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/any", "/metrics", "/healthz", "/debug/pprof/cmdline"} {
			if status, text := do(t, http.MethodGet, addr, path, func(r *http.Request) { r.Host = host }); status != want {
				t.Errorf("%s called %q: %d %s, want %d", path, host, status, text, want)
			}
		}
	}
	addr = servePages(t, http.HandlerFunc(okPage))
	if status, _ := do(t, http.MethodGet, addr, "/any", func(r *http.Request) { r.Host = "any.example.org" }); status != http.StatusOK {
		t.Errorf("a server that others reach refuses a name: %d", status)
	}
}

func TestWhichNamesAreTrusted(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HostNames = []string{"Queue.Example.Org"}
	if diff := cmp.Diff([]string{"localhost", "127.0.0.1", "queue.example.org"}, trustedNames(cfg, "127.0.0.1:4922")); diff != "" {
		t.Error(diff)
	}
	cfg.Listen = "10.0.0.7:4922"
	if names := trustedNames(cfg, "10.0.0.7:4922"); names != nil {
		t.Errorf("a server that others reach trusts %q only", names)
	}
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	addr := servePages(t, http.HandlerFunc(okPage))
	for _, c := range []struct {
		name, header, value string
		want                int
	}{
		{"curl", "", "", http.StatusOK},
		{"typed by a user", "Sec-Fetch-Site", "none", http.StatusOK},
		{"a page of its own", "Sec-Fetch-Site", "same-origin", http.StatusOK},
		{"a page of another site", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{"a page of another port", "Sec-Fetch-Site", "same-site", http.StatusForbidden},
		{"its own origin", "Origin", "http://" + addr, http.StatusOK},
		{"another origin", "Origin", "http://evil.example.org", http.StatusForbidden},
		{"no origin that can be told", "Origin", "null", http.StatusForbidden},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, path := range []string{"/any", "/debug/pprof/cmdline", "/v1/consume", "/metrics"} {
				status, text := do(t, method, addr, path, func(r *http.Request) {
					if c.header != "" {
						r.Header.Set(c.header, c.value)
					}
				})
				if status == http.StatusMethodNotAllowed {
					continue
				}
				if status != c.want {
					t.Errorf("%s of %s by %s: %d %s, want %d", method, path, c.name, status, text, c.want)
				}
			}
		}
	}
}

func TestProfilesAreShortAndOneAtATime(t *testing.T) {
	addr := servePages(t, http.HandlerFunc(okPage))
	for _, seconds := range []string{"61", "60.5", "-1", "x", "NaN", "1e9"} {
		for _, page := range []string{"profile", "trace", "heap", "goroutine"} {
			if status, _ := do(t, http.MethodGet, addr, "/debug/pprof/"+page+"?seconds="+seconds, nil); status != http.StatusBadRequest {
				t.Errorf("%s of %s seconds: %d, want 400", page, seconds, status)
			}
		}
	}
	p := &profiles{}
	begun, end := make(chan struct{}), make(chan struct{})
	slow := p.one(func(http.ResponseWriter, *http.Request) { close(begun); <-end })
	go slow.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	<-begun
	second := httptest.NewRecorder()
	p.one(okPage).ServeHTTP(second, httptest.NewRequest(http.MethodGet, "/", nil))
	if second.Code != http.StatusTooManyRequests || second.Header().Get("Retry-After") == "" {
		t.Errorf("a second profile: %d, want 429 with Retry-After", second.Code)
	}
	close(end)
}

// TestConnectionsAreCounted opens and ends connections of each kind.
func TestConnectionsAreCounted(t *testing.T) {
	taken := make(chan net.Conn, 1)
	pages := http.NewServeMux()
	pages.HandleFunc("GET /v1/publish", func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("take the connection over: %v", err)
			return
		}
		taken <- c
		io.Copy(io.Discard, c)
		c.Close()
	})
	pages.HandleFunc("/", okPage)
	log := slog.New(slog.DiscardHandler)
	g := newGuard(log, prometheus.NewRegistry(), nil, 4) // of which one address has 3
	g.conns.now = func() time.Time { return someTime }   // none is idle for long
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(log, prometheus.NewRegistry(), g, pages, l)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	open := func(want int) {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			g.conns.mu.Lock()
			n := g.conns.mu.open
			g.conns.mu.Unlock()
			if n == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d connections are open, want %d", n, want)
			}
			runtime.Gosched()
		}
	}
	url := "http://" + l.Addr().String()
	one := &http.Transport{}
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	for i, transport := range []*http.Transport{one, two} {
		res, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if want := fmt.Sprintf("HTTP/%d.%d\n", 2-(1-i), 1-i); string(text) != want {
			t.Errorf("answered by %q, want %q", text, want)
		}
		open(i + 1)
	}
	ws, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(ws, "GET /v1/publish HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	<-taken
	open(3)
	// The address has its part: another connection is closed at once.
	more, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	more.SetDeadline(time.Now().Add(patience))
	if n, err := more.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection too many: %d bytes, %v, want its end", n, err)
	}
	more.Close()
	ws.Close()
	open(2)
	one.CloseIdleConnections()
	open(1)
	two.CloseIdleConnections()
	open(0)
}

// shortOf is a listener that is out of descriptors some times.
type shortOf struct {
	net.Listener
	left atomic.Int32
}

func (l *shortOf) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestServer_OutOfDescriptors: a server that cannot accept connections tries again, with growing pauses, and ends
// neither itself nor the process.
func TestServer_OutOfDescriptors(t *testing.T) {
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &shortOf{Listener: own}
	l.left.Store(5)
	log := slog.New(slog.DiscardHandler)
	s := newServer(log, prometheus.NewRegistry(), newGuard(log, prometheus.NewRegistry(), nil, maxConnections), http.HandlerFunc(okPage), l)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	began := time.Now()
	go func() { ran <- s.Run(ctx) }()
	resp, err := http.Get("http://" + own.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if took := time.Since(began); took < 150*time.Millisecond { // 5, 10, 20, 40 and 80 ms
		t.Errorf("five times out of descriptors, it accepted a connection after %s: it does not pause", took)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// TestReadyNamesTheFailure: a process that a failed part stops says so, and one that was asked to stop does not.
func TestReadyNamesTheFailure(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s := newServer(log, prometheus.NewRegistry(), newGuard(log, prometheus.NewRegistry(), nil, maxConnections), http.HandlerFunc(okPage))
	s.phase.Store(draining)
	want := func(text string) {
		t.Helper()
		answer := httptest.NewRecorder()
		s.serveReady(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != text+"\n" {
			t.Errorf("got %d %q, want 503 %q", answer.Code, answer.Body, text)
		}
	}
	want("draining")
	err := errors.New("run storehost: a write hangs")
	s.failure.Store(&err)
	want("failed: run storehost: a write hangs")
}
