package frontend

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHost_DrainEndsLongPolls(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	polling := make(chan struct{})
	c.out.onPull = func(ctx context.Context, _ *pb.PullRequest) (*pb.PullResponse, error) {
		close(polling)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	type result struct {
		resp *pb.PullResponse
		err  error
	}
	pulled := make(chan result, 1)
	go func() {
		resp, err := call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(15 * time.Second)})
		pulled <- result{resp, err}
	}()
	<-polling
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- c.host.Run(ctx) }()
	cancel()
	select {
	case r := <-pulled:
		if r.err != nil || len(r.resp.Messages) > 0 {
			t.Errorf("got %v, %v, want an empty answer", r.resp, r.err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the long poll did not end")
	}
	if err := <-ran; err != nil {
		t.Errorf("run: %v", err)
	}
	must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"}))(t) // others may still need it
	_, err := call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g"})
	wantCode(t, "pull from a draining frontend", err, core.CodeDraining)
	for range 2 {
		if err := c.host.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	_, err = call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"})
	wantCode(t, "call of a stopped frontend", err, core.CodeDraining)
}

func TestHost_PanicIsAnInternalErrorOfOneCall(t *testing.T) {
	c := newHarness(t, nil)
	real := c.host.svc.now
	c.host.svc.now = func() time.Time { panic("inside") }
	_, err := call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a"}})
	wantCode(t, "a call that panics", err, core.CodeInternal)
	if err != nil && strings.Contains(err.Error(), "inside") {
		t.Errorf("%q shows the server's inside", err)
	}
	c.host.svc.now = real
	c.createQueue("/t/a")
}

func TestHost_BoundsCalls(t *testing.T) {
	c := newHarness(t, nil, func(cfg *Config) { cfg.MaxCalls = 1 })
	if err := c.host.svc.calls.Enter(gate.Call{}); err != nil {
		t.Fatal(err)
	}
	_, err := call(t, c.admin.ListHosts, &pb.ListHostsRequest{})
	wantCode(t, "one call too many", err, core.CodeThrottled)
	c.host.svc.calls.Leave(gate.Call{})
	must(call(t, c.admin.ListHosts, &pb.ListHostsRequest{}))(t)
}

func TestHost_SpeaksPlainJSON(t *testing.T) {
	c := newHarness(t, nil)
	post := func(method, body string) (int, map[string]any) {
		t.Helper()
		resp, err := http.Post(c.url+"/columba.v1."+method, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%s: %q is not JSON: %v", method, text, err)
		}
		return resp.StatusCode, out
	}
	if status, out := post("AdminService/CreateQueue", `{"spec":{"path":"/t/a"}}`); status != 200 || out["id"] == "" {
		t.Errorf("create: %d %v", status, out)
	}
	if status, out := post("MessageService/Publish", `{"queue":"/t/a","messages":[{"payload":"aGk="}]}`); status != 200 || out["results"] == nil {
		t.Errorf("publish: %d %v", status, out)
	}
	if status, out := post("AdminService/GetQueue", `{"path":"/t/none"}`); status != 404 || !strings.Contains(out["message"].(string), "/t/none") {
		t.Errorf("look up none: %d %v", status, out)
	}
	for _, bad := range []string{``, `{`, `[]`, `{"path":7}`, "\x00\xff", `{"nonsense":1}`} {
		if status, out := post("AdminService/GetQueue", bad); status != 400 || out["code"] == "" {
			t.Errorf("%q: %d %v", bad, status, out)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	cfg := DefaultConfig()
	flags := flag.NewFlagSet("t", flag.ContinueOnError)
	cfg.Register(flags, "frontend-")
	if err := flags.Parse([]string{"--frontend-replicas=3", "--frontend-call-timeout=5s"}); err != nil || cfg.Replicas != 3 || cfg.CallTimeout != 5*time.Second {
		t.Errorf("flags: %v, %+v", err, cfg)
	}
	for name, change := range map[string]func(*Config){
		"replicas":     func(c *Config) { c.Replicas = 8 },
		"min-replicas": func(c *Config) { c.MinReplicas = 2 },
		"call-timeout": func(c *Config) { c.CallTimeout = 0 },
		"drain":        func(c *Config) { c.DrainTimeout = -1 },
		"max-request":  func(c *Config) { c.MaxRequest = 1 },
		"max-calls":    func(c *Config) { c.MaxCalls = 0 },
		"max-polls":    func(c *Config) { c.MaxPolls = 0 },
		"publishers":   func(c *Config) { c.MaxPublishers = 0 },
		"idle":         func(c *Config) { c.PublisherIdle = 0 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		wantCode(t, name, cfg.Validate(), core.CodeBadArgument)
		if _, err := New(cfg, Deps{}); err == nil {
			t.Errorf("%s: New took a bad configuration", name)
		}
	}
}
