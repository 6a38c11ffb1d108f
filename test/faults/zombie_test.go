package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// extent is what `list extents` says.
type extent struct {
	Extent   string
	State    core.ExtentState
	Input    string
	Replicas []string
	Copies   []string
	LastSeq  core.Seq `json:"last_seq"`
}

func (r *run) extents() []extent {
	r.t.Helper()
	return process.Decode[extent](r.t, r.server.Ask("list", "extents", queue, "-o", "json"))
}

// writer is an input host with an open extent, and its id.
func (l *load) writer(c *process.Cluster) (*process.Server, string) {
	l.t.Helper()
	inputs := make(map[string]*process.Server)
	for _, h := range c.Hosts() {
		for _, s := range c.Inputs {
			if h.Addr == s.Addr {
				inputs[h.Host] = s
			}
		}
	}
	for _, e := range l.extents() {
		if s := inputs[e.Input]; s != nil && e.State == core.ExtentOpen {
			return s, e.Input
		}
	}
	l.t.Fatal("no input host has an open extent")
	return nil, ""
}

// TestClusterZombieInput stops an input host for 30 s, seals its extents meanwhile, and lets it go on: what it
// acknowledges then is in the sealed extents, whose replicas are the same to the byte.
func TestClusterZombieInput(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{})
	l := newLoad(t, c.Controller, 500)
	l.start(4, 2)
	l.goesOn(3000)
	zombie, id := l.writer(c)
	from := time.Now()
	zombie.Pause()
	over := time.After(30 * time.Second)
	var its []string
	for _, e := range l.extents() {
		if e.Input == id && !e.State.HasEnd() {
			its = append(its, e.Extent)
		}
	}
	if len(its) == 0 {
		t.Fatal("the input host has no open extent")
	}
	for _, e := range its {
		// The cluster may seal it by itself, since its writer does not answer: that is a conflict.
		if r := c.Controller.Run("", "seal", queue, e); r.Code != 0 && r.Code != 4 {
			t.Errorf("seal %s: exit code %d: %s", e, r.Code, r.Stderr)
		}
	}
	sealed := make(map[string]core.Seq)
	process.Eventually(t, "the extents of the stopped input host are sealed", func() bool {
		for _, e := range l.extents() {
			if slices.Contains(its, e.Extent) && e.State.HasEnd() {
				sealed[e.Extent] = e.LastSeq
			}
		}
		return len(sealed) == len(its)
	})
	l.goesOn(1000)
	<-over
	zombie.Continue()
	process.Eventually(t, "the zombie is ready again", zombie.Ready)
	l.away("SIGSTOP "+zombie.Name, from)
	l.goesOn(3000)
	l.finish()
	for e, last := range l.lastAcked {
		if end, ok := sealed[e.String()]; ok && last > end {
			t.Errorf("seq %d of extent %s was acknowledged, which was sealed at %d", last, e, end)
		}
	}
	n := l.compareReplicas(c)
	l.row("input host stopped for 30 s, its extents sealed meanwhile", fmt.Sprintf("%d of its extents; %d replicas compared, equal to the byte", len(its), n))
}

// compareReplicas stops the cluster and has `columba inspect` compare the holders' copies of every sealed extent, to
// the byte. It returns how many copies those were.
func (l *load) compareReplicas(c *process.Cluster) (replicas int) {
	l.t.Helper()
	stores := make(map[string]*process.Server)
	for _, h := range c.Hosts() {
		for _, s := range c.Stores {
			if h.Addr == s.Addr {
				stores[h.Host] = s
			}
		}
	}
	list := l.extents()
	for _, s := range slices.Backward(c.All()) {
		if code := s.Stop(); code != 0 {
			l.t.Errorf("%s ended with %d", s.Name, code)
		}
	}
	for _, e := range list {
		if !e.State.HasEnd() {
			continue
		}
		args := []string{"inspect", "extent", "-o", "json"}
		for _, h := range e.Copies {
			if stores[h] == nil {
				l.t.Fatalf("extent %s is held by %s, which is no store of the cluster", e.Extent, h)
			}
			args = append(args, stores[h].Data)
		}
		if len(e.Copies) < 2 {
			l.t.Errorf("extent %s has one copy", e.Extent)
			continue
		}
		r := c.Controller.Run("", append(args, e.Extent)...)
		if r.Code != 0 {
			l.t.Errorf("inspect extent %s: exit code %d\n%s%s", e.Extent, r.Code, r.Stdout, r.Stderr)
			continue
		}
		type replica struct {
			Verified core.Seq `json:"verified_seq"`
			Verdict  string
		}
		for _, got := range process.Decode[replica](l.t, r.Stdout) {
			if got.Verified != e.LastSeq || got.Verdict != "identical" {
				l.t.Errorf("extent %s, sealed at %d: %+v", e.Extent, e.LastSeq, got)
			}
			replicas++
		}
	}
	if replicas < 2 {
		l.t.Errorf("%d replicas compared", replicas)
	}
	return replicas
}
