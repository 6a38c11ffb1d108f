package inputhost

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// harness is an input host between publishers and fakes of stores and a controller, on an in-memory network in virtual
// time.
type harness struct {
	t        testing.TB
	listen   func(addr string) net.Listener      // nil: in memory
	over     func(metadata.Store) metadata.Store // nil: the host uses meta itself
	ahead    atomic.Int64                        // ns, of the host's clock
	host     *Host
	ctl      *controller
	more     int     // controllers beside the first; they share all but their address
	doors    []*door // of the controllers
	stores   []*store
	members  *static.Monitor
	meta     metadata.Store
	self     membership.Host
	pool     *peer.Pool
	registry *prometheus.Registry
	ctx      context.Context
	cancel   context.CancelFunc
	ran      chan struct{}
	wg       sync.WaitGroup
	mu       struct {
		sync.Mutex
		listeners map[string]net.Listener
		lines     []*line // that were dialled
		servers   []*http.Server
		acked     map[core.ExtentID]core.Seq // the highest acknowledged
		outcomes  map[string]outcome
		last      time.Time // the last acknowledgement
		gap       time.Duration
	}
}

type outcome struct {
	at  core.Receipt
	err error
}

const path = "/t/q"

// bubble runs f with a harness of so many stores.
func bubble(t *testing.T, stores int, edit func(*Config), f func(r *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &harness{t: t}
		r.start(stores, edit)
		defer r.stop()
		f(r)
	})
}

func (r *harness) start(stores int, edit func(*Config)) {
	r.meta, r.registry, r.ran = memory.New(), prometheus.NewRegistry(), make(chan struct{})
	r.mu.listeners = make(map[string]net.Listener)
	r.mu.acked = make(map[core.ExtentID]core.Seq)
	r.mu.outcomes = make(map[string]outcome)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.self = membership.Host{ID: "in", Roles: []string{"inputhost"}, Address: "in:1", Run: core.RunID{ID: core.NewID(time.Now())}}
	var others []membership.Host
	r.ctl = &controller{r: r, n: min(stores, 3), seals: make(map[core.ExtentID]*sealed)}
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewControllerServiceHandler(r.ctl))
	for i := range 1 + r.more {
		d := &door{Handler: mux, id: core.HostID("ctl" + strings.Repeat("l", i))}
		r.doors = append(r.doors, d)
		others = append(others, membership.Host{ID: d.id, Roles: []string{"controller"}, Address: string(d.id) + ":1"})
		r.serve(string(d.id)+":1", d)
	}
	for i := range stores {
		s := &store{r: r, id: core.HostID(fmt.Sprintf("s%d", i)), extents: make(map[core.ExtentID]*replica)}
		r.stores = append(r.stores, s)
		others = append(others, membership.Host{ID: s.id, Roles: []string{"storehost"}, Address: s.addr()})
		s.up()
	}
	var err error
	if r.members, err = static.New(r.self, others...); err != nil {
		r.t.Fatal(err)
	}
	r.queue(path)
	cfg := DefaultConfig()
	if edit != nil {
		edit(&cfg)
	}
	r.pool = peer.NewPool(peer.Config{NetDial: r.dial, Log: slog.New(slog.DiscardHandler)})
	meta := r.meta
	if r.over != nil {
		meta = r.over(meta)
	}
	r.host, err = New(cfg, Deps{Log: slog.New(slog.DiscardHandler), Metrics: r.registry, Meta: meta, Peers: r.pool, Members: r.members, Now: r.now})
	if err != nil {
		r.t.Fatal(err)
	}
	routes := http.NewServeMux()
	r.host.Routes(routes)
	r.serve(r.self.Address, routes)
	r.wg.Go(func() {
		defer close(r.ran)
		if err := r.host.Run(r.ctx); err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
}

// counter reads a counter of the host that has one label, with this value.
func (r *harness) counter(name, label string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// now is the host's clock.
func (r *harness) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }

func (r *harness) queue(path string) core.QueueID {
	r.t.Helper()
	id := core.QueueID{ID: core.NewID(time.Now())}
	spec := core.QueueSpec{Path: path}.WithDefaults(3, 2)
	if path == chainPath {
		spec.Consistency = core.CP
	}
	q := metadata.QueueRecord{ID: id, Spec: spec}
	if err := metadata.Create(context.Background(), r.meta, metadata.Queues, metadata.QueueKey(id), q); err != nil {
		r.t.Fatal(err)
	}
	n := metadata.NameRecord{Queue: id, Spec: spec}
	if err := metadata.Create(context.Background(), r.meta, metadata.Names, metadata.NameKey(path), n); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// serve listens until the harness stops, or the listener is closed.
func (r *harness) serve(addr string, h http.Handler) {
	srv := &http.Server{Handler: h}
	var l net.Listener
	if r.listen != nil {
		l = r.listen(addr)
	} else {
		l = netmem.Listen(addr)
	}
	r.mu.Lock()
	r.mu.listeners[addr] = l
	r.mu.servers = append(r.mu.servers, srv)
	r.mu.Unlock()
	r.wg.Go(func() { srv.Serve(l) })
}

func (r *harness) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	r.mu.Lock()
	l := r.mu.listeners[addr]
	r.mu.Unlock()
	if l == nil {
		return nil, core.Errorf(core.CodeUnavailable, "nothing listens at %s", addr)
	}
	if memory, ok := l.(*netmem.Listener); ok {
		conn, err := memory.Dial(ctx)
		if err != nil {
			return nil, err
		}
		c := &line{Conn: conn, addr: addr}
		r.mu.Lock()
		r.mu.lines = append(r.mu.lines, c)
		r.mu.Unlock()
		return c, nil
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
}

// line is a dialled connection that can go dead: nothing of what is sent arrives any more, and nobody is told.
type line struct {
	net.Conn
	addr string
	dead atomic.Bool
}

func (l *line) Write(b []byte) (int, error) {
	if l.dead.Load() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// goDead has all lines to an address that there are now go dead.
func (r *harness) goDead(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.mu.lines {
		if l.addr == addr {
			l.dead.Store(true)
		}
	}
}

func (r *harness) stop() {
	r.cancel()
	<-r.ran
	r.host.Stop(context.Background())
	r.pool.Close()
	for _, s := range r.stores {
		s.cut()
	}
	for _, s := range r.mu.servers {
		s.Close()
	}
	r.wg.Wait()
	r.meta.Close()
	r.ctl.check()
}

// publisher is one stream of messages.
type client struct {
	r    *harness
	pub  *publish.Publisher
	name string
	n    int
}

// publisher connects to the host.
func (r *harness) publisher(name, queue string) *client {
	r.t.Helper()
	p := r.unconnected(name, queue)
	if err := p.pub.Connect(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// unconnected is a publisher that does not wait for a session.
func (r *harness) unconnected(name, queue string) *client {
	p := publish.New(publish.Config{
		Queue: queue, Client: name,
		Route: func(context.Context) ([]publish.Host, error) {
			return []publish.Host{{ID: r.self.ID, Address: r.self.Address}}, nil
		},
		Dial: func(ctx context.Context, h publish.Host) (*ws.Mux, error) {
			return r.pool.Link(ctx, h.Address, "/v1/publish")
		},
	})
	r.wg.Go(func() { p.Run(r.host.tasks.Context()) })
	return &client{r: r, pub: p, name: name}
}

// send publishes a message; its outcome is noted.
func (p *client) send() {
	p.r.t.Helper()
	p.n++
	body := fmt.Sprintf("%s-%05d", p.name, p.n)
	err := p.pub.Append(p.r.t.Context(), &wire.Record{Payload: []byte(body)}, 0, publish.DoneFunc(func(_ core.MessageID, at core.Receipt, err error) {
		p.r.note(body, at, err)
	}))
	if err != nil {
		p.r.t.Fatal(err)
	}
}

// load sends every interval for a time.
func (p *client) load(d, every time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(every) {
		p.send()
	}
}

func (p *client) flush() {
	p.r.t.Helper()
	if err := p.pub.Flush(p.r.t.Context()); err != nil {
		p.r.t.Fatal(err)
	}
}

func (r *harness) note(body string, at core.Receipt, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.outcomes[body] = outcome{at, err}
	if err != nil {
		return
	}
	r.mu.acked[at.Extent] = max(r.mu.acked[at.Extent], at.Seq)
	now := time.Now()
	if !r.mu.last.IsZero() {
		r.mu.gap = max(r.mu.gap, now.Sub(r.mu.last))
	}
	r.mu.last = now
}

// all checks that so many messages were acknowledged, and none was not.
func (r *harness) all(n int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.outcomes) != n {
		r.t.Errorf("%d outcomes, want %d", len(r.mu.outcomes), n)
	}
	for body, o := range r.mu.outcomes {
		if o.err != nil {
			r.t.Errorf("%s: %v", body, o.err)
		}
	}
}

// gapUpTo checks the longest time without an acknowledgement.
func (r *harness) gapUpTo(most time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.gap > most {
		r.t.Errorf("%s without an acknowledgement, want at most %s", r.mu.gap, most)
	}
}

// open are the open extents of a queue as the host knows them.
func (r *harness) open(path string) (out []core.Extent) {
	for _, q := range r.host.list() {
		if q.path != path {
			continue
		}
		q.mu.Lock()
		for _, s := range q.mu.open.slots {
			out = append(out, s.w.Extent)
		}
		q.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b core.Extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
}

// homeOf is the extent that the only stream of the queue uses.
func (r *harness) homeOf(*client) *writer.Writer {
	for _, q := range r.host.list() {
		for _, p := range q.streams() {
			q.mu.Lock()
			defer q.mu.Unlock()
			return p.home.w
		}
	}
	r.t.Fatal("no stream")
	return nil
}

// sleep lets the time of the bubble pass. Outside of one, whose clock begins in 2000, it would be a real wait.
func sleep(d time.Duration) {
	if time.Now().Year() > 2020 {
		panic("sleep outside of a synctest bubble")
	}
	time.Sleep(d)
}
