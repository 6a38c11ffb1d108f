package clienttest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/outputhost"
	"github.com/columbamq/columba/storehost"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
)

const hostID core.HostID = "broker"

// role is a part of the process.
type role interface {
	Routes(mux *http.ServeMux)
	Start(ctx context.Context) error
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// process is one life of the broker: all roles, in the order in which they start, and what they stand on.
type process struct {
	pool   *peer.Pool
	meta   *gate
	server *http.Server
	mux    *http.ServeMux
	roles  []*running
	tasks  sync.WaitGroup
}

// part is a role under the name of the configuration.
type part struct {
	name string
	role
}

// running is a role that has started.
type running struct {
	part
	cancel context.CancelFunc
	ran    chan struct{} // closed when its Run has returned, with err set
	err    error
}

const (
	startTimeout = 10 * time.Second
	// stopTimeout bounds the drain of a role, and its stop.
	stopTimeout = 10 * time.Second
)

// start starts a process on the disk and the metadata as they are, and lets clients in when it is ready.
func (b *Broker) start() error {
	p := &process{meta: &gate{Store: b.meta}, mux: http.NewServeMux()}
	self := membership.Host{
		ID: hostID, Address: Addr, Run: core.RunID{ID: core.NewID(time.Now())},
		Roles: []string{"storehost", "controller", "outputhost", "inputhost", "frontend"},
	}
	members, err := static.New(self)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(b.log, nil))
	inner := netmem.Listen(Addr) // for the roles, from the start
	p.pool = peer.NewPool(peer.Config{Self: Addr, SelfDial: inner.Dial, Log: log})
	roles, err := b.roles(p, log, self, members)
	if err != nil {
		p.pool.Close()
		return err
	}
	p.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not serving; try again", http.StatusServiceUnavailable)
	})
	p.server = &http.Server{Handler: serving.EndOnPanic(p.mux), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	p.server.Protocols = new(http.Protocols)
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetUnencryptedHTTP2(true)
	p.tasks.Go(func() { _ = p.server.Serve(inner) }) // until it is closed
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, r := range roles {
		if err := p.begin(ctx, r); err != nil {
			return errors.Join(err, p.stop())
		}
	}
	outer := b.net.listen()
	p.tasks.Go(func() { _ = p.server.Serve(outer) })
	b.process = p
	return nil
}

// roles are those of one process with everything, as `columba serve` has them.
func (b *Broker) roles(p *process, log *slog.Logger, self membership.Host, members membership.Monitor) ([]part, error) {
	reg := prometheus.NewRegistry()
	stores := storehost.DefaultConfig()
	stores.Dir = memdisk.Dir
	open := func(_ string, o extentlog.Options) (extentlog.Log, error) { return b.disk.Open(o) }
	store, serr := storehost.New(stores, storehost.Deps{Log: log, Metrics: reg, Self: self.ID, Run: self.Run, Open: open, Confirm: storehost.Controllers{Peers: p.pool, Members: members}})
	cfg := controller.DefaultConfig()
	cfg.Alone = true
	control, cerr := controller.New(cfg, controller.Deps{Log: log, Metrics: reg, Meta: p.meta, Peers: p.pool, Members: members})
	output, oerr := outputhost.New(outputhost.DefaultConfig(), outputhost.Deps{Log: log, Metrics: reg, Meta: p.meta, Peers: p.pool, Members: members})
	input, ierr := inputhost.New(inputhost.DefaultConfig(), inputhost.Deps{Log: log, Metrics: reg, Meta: p.meta, Peers: p.pool, Members: members})
	front, ferr := frontend.New(frontend.DefaultConfig(), frontend.Deps{Log: log, Metrics: reg, Meta: p.meta, Peers: p.pool, Members: members})
	return []part{
		{"storehost", store}, {"controller", control}, {"inputhost", input}, {"outputhost", output}, {"frontend", front},
	}, errors.Join(serr, cerr, oerr, ierr, ferr)
}

// begin starts a role, opens its pages and runs it.
func (p *process) begin(ctx context.Context, r part) error {
	if err := r.Start(ctx); err != nil {
		return core.Errorf(core.CodeOf(err), "start %s: %w", r.name, err)
	}
	r.Routes(p.mux)
	run, cancel := context.WithCancel(context.Background())
	a := &running{part: r, cancel: cancel, ran: make(chan struct{})}
	p.roles = append(p.roles, a)
	p.tasks.Go(func() {
		defer close(a.ran)
		a.err = r.Run(run)
	})
	return nil
}

// stop drains and ends the roles in the reverse order of their start, and releases everything.
func (p *process) stop() error {
	var errs []error
	for i := len(p.roles) - 1; i >= 0; i-- {
		r := p.roles[i]
		r.cancel()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		select {
		case <-r.ran:
			errs = append(errs, r.err)
		case <-ctx.Done():
			errs = append(errs, core.Errorf(core.CodeDeadline, "%s does not end", r.name))
		}
		errs = append(errs, r.Stop(ctx))
		cancel()
	}
	return errors.Join(append(errs, p.release())...)
}

// kill ends the process without letting it finish anything. Its last actions reach neither metadata nor clients.
func (p *process) kill() {
	p.meta.shut.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for i := len(p.roles) - 1; i >= 0; i-- {
		r := p.roles[i]
		_ = r.Stop(ctx) // nobody learns what went wrong
		r.cancel()
	}
	_ = p.release()
}

func (p *process) release() error {
	err := p.server.Close()
	p.pool.Close()
	p.tasks.Wait()
	return err
}
