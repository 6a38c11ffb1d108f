package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
)

// TestMain is a server instead of the tests when it is started as one: see startServer.
func TestMain(m *testing.M) {
	if data := os.Getenv("COLUMBA_TEST_SERVE"); data != "" {
		os.Exit(serveForTest(data))
	}
	goleak.VerifyTestMain(m)
}

const patience = 30 * time.Second

// fakeRole answers at /fake; each of its steps can be made to wait or to fail.
type fakeRole struct {
	startErr error
	starting chan struct{} // closed by Start, which then waits for started
	started  chan struct{}
	drained  chan struct{} // Run waits for it when its context has ended
	runErr   chan error
	metadata func() error // why the metadata refuses everything; nil leaves that to them
}

func newFakeRole() *fakeRole {
	f := &fakeRole{starting: make(chan struct{}), started: make(chan struct{}), drained: make(chan struct{}), runErr: make(chan error, 1)}
	close(f.started)
	close(f.drained)
	return f
}

func (f *fakeRole) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /fake/{name}", func(w http.ResponseWriter, r *http.Request) {
		writeText(w, http.StatusOK, r.Proto+" "+r.PathValue("name"))
	})
}

func (f *fakeRole) Start(ctx context.Context) error {
	close(f.starting)
	select {
	case <-f.started:
		return f.startErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fakeRole) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		<-f.drained
		return nil
	case err := <-f.runErr:
		return err
	}
}

func (f *fakeRole) Stop(context.Context) error { return nil }

// process is a Node that runs.
type process struct {
	t       *testing.T
	data    string
	res     chan *resources // one, when everything is open
	ready   chan Ready      // one, when it is ready
	cancel  context.CancelFunc
	ended   chan error
	address string
	self    membership.Host
	header  http.Header // of the last answer
}

func testConfig(t *testing.T) Config {
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Data = filepath.Join(t.TempDir(), "data")
	return cfg
}

// start runs a Node with one fake role and waits until its port answers.
func start(t *testing.T, cfg Config, f *fakeRole) *process {
	t.Helper()
	p := &process{t: t, data: cfg.Data, res: make(chan *resources, 1), ready: make(chan Ready, 1), ended: make(chan error, 1)}
	n, err := New(cfg, Options{Version: "v1", Ready: func(r Ready) { p.ready <- r }})
	if err != nil {
		t.Fatal(err)
	}
	n.build = func(res *resources) ([]namedRole, error) {
		if f.metadata != nil {
			res.failed = f.metadata
		}
		p.res <- res
		return []namedRole{{"fake", f}}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() { p.ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
	})
	return p
}

// get returns status and text of a page, at the address that the process advertises.
func (p *process) get(client *http.Client, path string) (int, string) {
	p.t.Helper()
	if p.address == "" {
		p.self = receive(p.t, "open resources", p.res).self
		p.address = p.self.Address
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	p.header = resp.Header
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSuffix(string(text), "\n")
}

func (p *process) want(path string, status int, text string) {
	p.t.Helper()
	if gotStatus, got := p.get(http.DefaultClient, path); gotStatus != status || got != text {
		p.t.Errorf("%s: got %d %q, want %d %q", path, gotStatus, got, status, text)
	}
}

func (p *process) end() error {
	p.t.Helper()
	p.cancel()
	return receive(p.t, "end of the process", p.ended)
}

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s after %s", what, patience)
		panic("unreachable")
	}
}

func TestNode_HealthAndReadinessOverItsLife(t *testing.T) {
	f := newFakeRole()
	f.started, f.drained = make(chan struct{}), make(chan struct{})
	p := start(t, testConfig(t), f)
	receive(t, "start of the role", f.starting)
	p.want("/healthz", 200, "ok")
	if self := p.self; self.ID == "" || !peer.IsFrom(p.header, self.ID, self.Run) {
		t.Errorf("the health page does not name host %s and run %s: %v", self.ID, self.Run, p.header)
	}
	p.want("/readyz", 503, "starting")
	p.want("/fake/a", 503, "fake is not serving; try again")

	close(f.started)
	r := receive(t, "ready", p.ready)
	p.want("/readyz", 200, "ready")
	p.want("/fake/a", 200, "HTTP/1.1 a")
	if want := "ready addr=" + p.address + " roles=all data=" + p.data; r.Line() != want || strings.HasSuffix(p.address, ":0") {
		t.Errorf("ready line: got %q, want %q with a real port", r.Line(), want)
	}
	p.want("/nothing", 404, "no such page; the metrics are at /metrics, the API is in docs/http.md")
	if status, text := p.get(http.DefaultClient, "/metrics"); status != 200 || !strings.Contains(text, `columba_build_info{go="go1`) ||
		!strings.Contains(text, "go_goroutines ") || !strings.Contains(text, "process_resident_memory_bytes ") {
		t.Errorf("/metrics: got %d %.300q", status, text)
	}
	if status, text := p.get(http.DefaultClient, "/debug/pprof/"); status != 200 || !strings.Contains(text, "goroutine") {
		t.Errorf("/debug/pprof/: got %d %.300q", status, text)
	}

	p.cancel()
	waitUntil(t, "draining", func() bool { status, _ := p.get(http.DefaultClient, "/readyz"); return status == 503 })
	p.want("/readyz", 503, "draining")
	p.want("/healthz", 200, "ok")
	p.want("/fake/b", 200, "HTTP/1.1 b") // what others still need is answered
	close(f.drained)
	if err := p.end(); err != nil {
		t.Errorf("end: got %v, want nil", err)
	}
}

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not %s after %s", what, patience)
		}
	}
}

func TestNode_OnePortSpeaksHTTP1AndHTTP2(t *testing.T) {
	p := start(t, testConfig(t), newFakeRole())
	receive(t, "ready", p.ready)
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	defer two.CloseIdleConnections()
	if status, text := p.get(&http.Client{Transport: two}, "/fake/a"); status != 200 || text != "HTTP/2.0 a" {
		t.Errorf("over HTTP/2 without TLS: got %d %q", status, text)
	}
	p.want("/fake/a", 200, "HTTP/1.1 a")
	two.CloseIdleConnections()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestNode_ReachesItselfInMemory(t *testing.T) {
	p := start(t, testConfig(t), newFakeRole())
	res := receive(t, "open resources", p.res)
	p.address = res.self.Address
	receive(t, "ready", p.ready)
	var network string
	own := &http.Transport{DialContext: func(ctx context.Context, net, addr string) (net.Conn, error) {
		conn, err := res.peers.Dial(ctx, net, addr)
		if err == nil {
			network = conn.RemoteAddr().Network()
		}
		return conn, err
	}}
	defer own.CloseIdleConnections()
	if status, text := p.get(&http.Client{Transport: own}, "/fake/a"); status != 200 || text != "HTTP/1.1 a" || network != "memory" {
		t.Errorf("got %d %q over %q, want the role's answer over memory", status, text, network)
	}
	own.CloseIdleConnections()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestNode_SecondOnOneDirectoryIsRefused(t *testing.T) {
	cfg := testConfig(t)
	p := start(t, cfg, newFakeRole())
	receive(t, "ready", p.ready)
	second, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a second server", second.Run(t.Context()), core.CodeLocked, cfg.Data+" is in use")
	p.want("/readyz", 200, "ready")
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestNode_TakenPortLeavesNothingBehind(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := testConfig(t)
	cfg.Listen = taken.Addr().String()
	n, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a taken port", n.Run(t.Context()), core.CodeConflict, "choose another with --listen")
	wantFree(t, cfg.Data)
}

// wantFree wants that another process could use the directory.
func wantFree(t *testing.T, data string) {
	t.Helper()
	d, err := openDataDir(t.Context(), data, someTime, nil)
	if err != nil {
		t.Fatalf("the directory afterwards: %v", err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}

func TestNode_FailedStartLeavesNothingBehind(t *testing.T) {
	f := newFakeRole()
	f.startErr = core.Errorf(core.CodeCorrupt, "extent 7 is damaged")
	cfg := testConfig(t)
	p := start(t, cfg, f)
	err := receive(t, "end of the process", p.ended)
	wantCode(t, "a failed start", err, core.CodeCorrupt, "start fake: extent 7 is damaged")
	wantFree(t, cfg.Data)
	address := receive(t, "open resources", p.res).self.Address
	if c, err := net.Dial("tcp", address); err == nil {
		t.Errorf("%s still answers", address)
		c.Close()
	}
	f2 := newFakeRole()
	p = start(t, cfg, f2)
	receive(t, "ready after the failure", p.ready)
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestNode_FailedRoleStopsTheProcess(t *testing.T) {
	f := newFakeRole()
	p := start(t, testConfig(t), f)
	receive(t, "ready", p.ready)
	broken := errors.New("fsync: input/output error")
	f.runErr <- broken
	if err := receive(t, "end of the process", p.ended); !errors.Is(err, broken) {
		t.Errorf("got %v, want the role's error", err)
	}
	wantFree(t, p.data)
}

// TestNode_EndsSoonWhenTheMetadataFail: a process whose metadata are dead says so at once, and does not wait for parts
// that cannot finish without them.
func TestNode_EndsSoonWhenTheMetadataFail(t *testing.T) {
	var dead atomic.Bool
	f := newFakeRole()
	f.drained = make(chan struct{})
	f.metadata = func() error {
		if dead.Load() {
			return core.Errorf(core.CodeUnavailable, "metadata in /data stopped: input/output error; repair the disk and restart the server")
		}
		return nil
	}
	p := start(t, testConfig(t), f)
	defer close(f.drained)
	receive(t, "ready", p.ready)
	p.want("/readyz", 200, "ready")
	began := time.Now()
	dead.Store(true)
	p.want("/readyz", 503, "failed: metadata in /data stopped: input/output error; repair the disk and restart the server")
	err := receive(t, "end of the process", p.ended)
	wantCode(t, "failed metadata", err, core.CodeUnavailable, "the process cannot go on: metadata in /data stopped")
	if strings.Contains(err.Error(), "not done") {
		t.Errorf("the error names parts that were given up on purpose: %v", err)
	}
	if took := time.Since(began); took > drainTimeout/2 {
		t.Errorf("it ended after %s", took)
	}
	wantFree(t, p.data)
}

func TestNode_RefusesABadConfig(t *testing.T) {
	cfg := testConfig(t)
	cfg.Listen = "0.0.0.0:0"
	_, err := New(cfg, Options{})
	wantCode(t, "every address", err, core.CodeBadArgument, "--insecure")
	if _, err := os.Stat(cfg.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory after a refusal: got %v, want none", err)
	}
}
