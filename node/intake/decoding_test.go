package intake

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/serving"
)

// publisher's calls work until they may end.
type publisher struct {
	columbav1connect.UnimplementedMessageServiceHandler
	work chan struct{}
}

func (p *publisher) Publish(ctx context.Context, _ *connect.Request[pb.PublishRequest]) (*connect.Response[pb.PublishResponse], error) {
	select {
	case <-p.work:
	case <-ctx.Done():
	}
	return connect.NewResponse(&pb.PublishResponse{}), nil
}

// TestLargeBodiesAreDecodedInTurn has other bodies take all turns to decode: a large one waits, a small one does not,
// and a call that works has no turn any more.
func TestLargeBodiesAreDecodedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := New(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		service := &publisher{work: make(chan struct{})}
		mux := http.NewServeMux()
		mux.Handle(serving.Handler(columbav1connect.NewMessageServiceHandler, columbav1connect.MessageServiceHandler(service),
			serving.Options{Request: 32 << 20, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}))
		l := netmem.Listen("server")
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { in.Serve(w, r, "client", r.RemoteAddr, mux) })}
		go s.Serve(l)
		client := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
		defer s.Close()
		defer client.CloseIdleConnections()
		send := func(size int) <-chan int {
			done := make(chan int, 1)
			req := post(t, publish, "application/proto", bytes.NewReader(message(t, size)))
			go func() {
				res, err := client.RoundTrip(req)
				if err != nil {
					t.Error(err)
					close(done)
					return
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				done <- res.StatusCode
			}()
			synctest.Wait()
			return done
		}
		for range cap(in.decoding) {
			in.decoding <- struct{}{}
		}
		refused := send(1 << 20)
		waits := in.public.limits.Wait
		time.Sleep(waits / 2)
		small := send(100)
		service.work <- struct{}{}
		if status := <-small; status != http.StatusOK {
			t.Errorf("a small request: %d", status)
		}
		if status := <-refused; status != http.StatusTooManyRequests {
			t.Errorf("a large request without a turn: %d, want 429 after %s", status, waits)
		}
		waiting := send(1 << 20)
		in.decoding.end()
		service.work <- struct{}{}
		if status := <-waiting; status != http.StatusOK {
			t.Errorf("a large request in its turn: %d", status)
		}
		working := send(1 << 20)
		if n := len(in.decoding); n != cap(in.decoding)-1 {
			t.Errorf("a call that works keeps its turn to decode")
		}
		service.work <- struct{}{}
		<-working
		if n := in.public.Held(); n != 0 || len(in.decoding) != cap(in.decoding)-1 {
			t.Errorf("after all calls %d bytes and %d turns are taken", n, len(in.decoding))
		}
	})
}
