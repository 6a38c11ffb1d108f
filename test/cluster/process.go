package cluster

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/storehost/extentlog"
)

// process is what runs of a host.
type process struct {
	role     role
	server   *http.Server
	pool     *peer.Pool
	meta     *gate
	port     *port
	listener net.Listener
	log      extentlog.Log // of a store
	dead     atomic.Bool   // it was killed: what becomes of it is of no interest

	cancel context.CancelFunc // of the role's run
	ran    chan struct{}      // closed when it has returned
	wg     sync.WaitGroup
}

// begin serves and runs the started role; failed gets the error of its run.
func (p *process) begin(failed func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.ran = make(chan struct{})
	p.wg.Go(func() { p.server.Serve(p.listener) })
	p.wg.Go(func() {
		defer close(p.ran)
		if err := p.role.Run(ctx); err != nil && !p.dead.Load() {
			failed(err)
		}
	})
}

// drain lets the role finish what is under way.
func (p *process) drain() {
	p.cancel()
	<-p.ran
}

// end releases everything.
func (p *process) end(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.role.Stop(ctx); err != nil && !p.dead.Load() {
		t.Errorf("stop: %v", err)
	}
	p.cancel()
	p.server.Close()
	p.pool.Close()
	p.wg.Wait()
}
