package node

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/node/intake"
)

// TestClientThatStallsLosesItsConnection has clients send or read nothing any more, each behind a request that the
// guard treats in another way. The connections are in memory, but to the guard not the process's own.
func TestClientThatStallsLosesItsConnection(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		within  time.Duration
	}{
		"a body for a foreign name":                {"POST /any HTTP/1.1\r\nHost: evil.example.org\r\nContent-Length: 1000\r\n\r\n", time.Second},
		"a body from another site":                 {"POST /any HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example.org\r\nContent-Length: 1000\r\n\r\n", time.Second},
		"a large page":                             {"GET /any HTTP/1.1\r\nHost: localhost\r\n\r\n", intake.AnswerTime + time.Second},
		"a large page with an upgrade":             {"GET /any HTTP/1.1\r\nHost: localhost\r\nUpgrade: x\r\n\r\n", intake.AnswerTime + time.Second},
		"a refused upgrade of a websocket's page":  {"GET /v1/publish HTTP/1.1\r\nHost: localhost\r\nUpgrade: x\r\n\r\n", intake.AnswerTime + time.Second},
		"a refused upgrade of a consumer's stream": {"GET /v1/consume HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n", intake.AnswerTime + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slog.New(slog.DiscardHandler)
				g := newGuard(log, prometheus.NewRegistry(), []string{"localhost"}, maxConnections)
				ended := make(chan time.Time, 1)
				page := func(w http.ResponseWriter, _ *http.Request) {
					defer func() { ended <- time.Now() }()
					for range 64 << 20 / intake.AnswerPart {
						if _, err := w.Write(make([]byte, intake.AnswerPart)); err != nil {
							return
						}
					}
				}
				l := netmem.Listen("server")
				s := &http.Server{Handler: g.wrap(http.HandlerFunc(page)), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
				closed := make(chan time.Time, 1)
				go s.Serve(l)
				defer s.Close()
				conn, err := l.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				began := time.Now()
				if _, err := io.WriteString(conn, c.request); err != nil {
					t.Fatal(err)
				}
				if c.within < intake.AnswerTime { // this client reads
					go func() {
						_, _ = io.Copy(io.Discard, conn) // until the server closes it
						closed <- time.Now()
					}()
					ended = closed
				}
				select {
				case at := <-ended:
					if took := at.Sub(began); took > c.within {
						t.Errorf("the connection was held for %s, want at most %s", took, c.within)
					}
				case <-time.After(10 * time.Minute):
					t.Errorf("the connection is held for ever, want at most %s", c.within)
				}
			})
		})
	}
}
