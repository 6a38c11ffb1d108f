package peer

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
)

// waitingOutput answers a pull when the test releases it.
type waitingOutput struct {
	columbav1connect.UnimplementedOutputServiceHandler
	came    chan struct{}
	release chan struct{}
}

func (w waitingOutput) Pull(context.Context, *connect.Request[columbav1.PullRequest]) (*connect.Response[columbav1.PullResponse], error) {
	w.came <- struct{}{}
	<-w.release
	return connect.NewResponse(&columbav1.PullResponse{}), nil
}

// Pulls of many groups wait at one host. Each with a connection of its own would take all descriptors of the process.
func TestPool_WaitingCallsShareConnections(t *testing.T) {
	const pulls = 600
	w := waitingOutput{came: make(chan struct{}, pulls), release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewOutputServiceHandler(w))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	var dialled atomic.Int64
	p := NewPool(Config{Log: slog.New(slog.DiscardHandler), NetDial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	defer p.Close()
	pull := func() {
		_, err := p.Waiting(srv.Listener.Addr().String()).Pull(t.Context(), connect.NewRequest(&columbav1.PullRequest{}))
		if err != nil {
			t.Error(err)
		}
	}
	var calls sync.WaitGroup
	for range pulls { // all at once, before the first has a connection
		calls.Go(pull)
	}
	for range pulls {
		<-w.came
	}
	if n := dialled.Load(); n > 6 {
		t.Errorf("%d pulls wait on %d connections, want at most 6", pulls, n)
	}
	close(w.release)
	calls.Wait()
}
