package node

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// safeLog is a buffer that goroutines may share.
type safeLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeLog) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// servePages runs a server with pages on a port of its own until the test ends, and returns its address and its log.
func servePages(t *testing.T, pages http.Handler) (addr string, log *safeLog) {
	t.Helper()
	log = &safeLog{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry(), pages, l)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return l.Addr().String(), log
}

func TestPanicOfAPageIsAnErrorOfTheLog(t *testing.T) {
	addr, log := servePages(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") }))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if res, err := client.Get("http://" + addr + "/any"); err == nil {
		res.Body.Close()
		t.Errorf("a page that panicked answered %s", res.Status)
	}
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "a defect") {
		t.Errorf("the log has no error with the panic: %s", text)
	}
}
