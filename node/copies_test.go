package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestCluster_ControllerOnACopyIsRefused starts a controller on a copy of another one's data directory, while that one
// runs.
func TestCluster_ControllerOnACopyIsRefused(t *testing.T) {
	cfg := clusterConfig(t, "controller,frontend")
	ctl := serveMember(t, cfg)
	input := serveMember(t, clusterConfig(t, RoleInput, ctl.at.Gossip))
	if err := ctl.end(); err != nil {
		t.Fatal(err)
	}
	copied := clusterConfig(t, "controller,frontend", input.at.Gossip)
	copied.Data = filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied.Data, os.DirFS(cfg.Data)); err != nil {
		t.Fatal(err)
	}
	cfg.Join = []string{input.at.Gossip}
	ctl = serveMember(t, cfg)
	waitUntil(t, "the controller is back", func() bool { return len(input.own.members.Hosts(membership.RoleMetadata)) == 1 })
	m := begin(t, copied)
	select {
	case err := <-m.ended:
		wantCode(t, "a controller on a copy", err, core.CodeConflict, "is a copy of its directory")
	case <-m.ready:
		t.Fatal("a controller on a copy serves beside the original")
	}
	wantFree(t, copied.Data)
	ctl.want("/readyz", 200, "ready")
}

// TestCopies has another run of the host answer for a time.
func TestCopies(t *testing.T) {
	older, self, newer := runOf("older:1", 1), runOf("self:1", 2), runOf("newer:1", 3)
	for name, x := range map[string]struct {
		other    membership.Host
		from, to time.Duration // when it answers
		met      time.Duration // when this process meets the cluster
		ends     time.Duration // -1: never
	}{
		"older one answers at the start":                     {other: older, to: time.Hour, ends: 0},
		"older one is met later":                             {other: older, from: time.Minute, to: time.Hour, met: time.Minute, ends: time.Minute},
		"older one is silent at the start and answers later": {other: older, from: copyDoubt, to: time.Hour, ends: -1},
		"older one that never answers":                       {other: older, ends: -1},
		"older one at the own address, before this serves":   {other: at(older, self.Address), to: 3 * time.Second, ends: -1},
		"older one at the own address":                       {other: at(older, self.Address), to: time.Hour, ends: 3 * time.Second},
		"newer one goes on to answer":                        {other: newer, from: time.Minute, to: time.Hour, ends: time.Minute + copyGrace},
		"newer one ends":                                     {other: newer, from: time.Minute, to: time.Minute + copyDoubt, ends: -1},
		"newer one that never answers":                       {other: newer, ends: -1},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Unix(1e9, 0)
			var now time.Duration
			c := &copies{
				dir: "/data", self: self, runs: func() []membership.Host { return []membership.Host{x.other} },
				met:     func() bool { return now >= x.met },
				answers: func(context.Context, membership.Host) bool { return now >= x.from && now < x.to },
			}
			ends := time.Duration(-1)
			for ; now < 2*time.Minute; now += time.Second {
				c.serving = now >= 3*time.Second
				if err := c.check(t.Context(), began.Add(now)); err != nil {
					wantCode(t, "the end", err, core.CodeConflict, x.other.Address)
					ends = now
					break
				}
			}
			if ends != x.ends {
				t.Errorf("the process ends after %s, want %s", ends, x.ends)
			}
		})
	}
}

// runOf is the nth run of host-1.
func runOf(addr string, n int64) membership.Host {
	return membership.Host{ID: "host-1", Address: addr, Run: core.RunID{ID: core.NewID(time.Unix(1e9+n, 0))}}
}

func at(h membership.Host, addr string) membership.Host {
	h.Address = addr
	return h
}
