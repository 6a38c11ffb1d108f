package node

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// TestNode_AllRolesStartAndStop starts what `serve` starts, twice on one directory: the second run takes over what the
// first left. TestMain fails when a goroutine is left.
func TestNode_AllRolesStartAndStop(t *testing.T) {
	cfg := testConfig(t)
	var host string
	for run := range 2 {
		readyAt := make(chan Ready, 1)
		n, err := New(cfg, Options{Ready: func(r Ready) { readyAt <- r }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		p := &process{t: t, address: receive(t, "ready", readyAt).Addr}
		p.want("/readyz", 200, "ready")
		_, metrics := p.get(http.DefaultClient, "/metrics")
		for _, role := range Roles {
			if !strings.Contains(metrics, "\ncolumba_"+role+"_") {
				t.Errorf("run %d: no metric of role %s", run, role)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := receive(t, "end of the process", ended); err != nil {
			t.Errorf("run %d: end: got %v, want nil", run, err)
		}
		d := openDir(t, cfg.Data)
		if got := string(d.host.Host); host != "" && got != host {
			t.Errorf("run %d: the host is %s, was %s", run, got, host)
		} else {
			host = got
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNode_SomeRoles builds those that were asked for, in the order of starting.
func TestNode_SomeRoles(t *testing.T) {
	cfg := testConfig(t)
	cfg.Roles = []string{RoleFrontend, RoleInput}
	n, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := n.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer res.close(nil)
	roles, err := n.buildRoles(res)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range roles {
		names = append(names, r.name)
	}
	if got := strings.Join(names, ","); got != "inputhost,frontend" {
		t.Errorf("got %s, want inputhost,frontend", got)
	}
}
