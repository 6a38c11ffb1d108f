// Package membershiptest owns the conformance suite of membership.Monitor.
package membershiptest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// Cluster is a membership that a test changes. Add and Remove return when the Monitor's view has it.
type Cluster interface {
	Monitor() membership.Monitor
	Add(membership.Host)
	Remove(core.HostID)
}

const patience = 30 * time.Second

// Run runs the suite over clusters that begin makes: of self, whose view is looked at, and others.
func Run(t *testing.T, begin func(t *testing.T, self membership.Host, others ...membership.Host) Cluster) {
	t.Run("HostsByRoleSortedByID", func(t *testing.T) {
		hostsByRole(t, begin(t, host("b", "storehost", "controller"), host("c", "storehost"), host("a", "frontend")))
	})
	t.Run("ChangedWakesUntilStopped", func(t *testing.T) { changed(t, begin(t, host("a"))) })
	t.Run("GoneAreRememberedUntilTheyAreBack", func(t *testing.T) { gone(t, begin(t, host("a"), host("b"), host("c"))) })
	t.Run("AnswersAreTheCallers", func(t *testing.T) { callers(t, begin(t, host("a"), host("b"))) })
}

func host(id core.HostID, roles ...string) membership.Host {
	return membership.Host{ID: id, Roles: roles, Address: string(id) + ":1"}
}

func ids(hosts []membership.Host) []core.HostID {
	var out []core.HostID
	for _, h := range hosts {
		out = append(out, h.ID)
	}
	return out
}

func hostsByRole(t *testing.T, c Cluster) {
	m := c.Monitor()
	for role, want := range map[string][]core.HostID{
		"":           {"a", "b", "c"},
		"storehost":  {"b", "c"},
		"frontend":   {"a"},
		"outputhost": nil,
	} {
		if diff := cmp.Diff(want, ids(m.Hosts(role))); diff != "" {
			t.Errorf("hosts of role %q (-want +got):\n%s", role, diff)
		}
	}
	if got := m.Self(); got.ID != "b" || !slices.Equal(got.Roles, []string{"controller", "storehost"}) {
		t.Errorf("self: got %+v, want b with sorted roles", got)
	}
	if got, ok := membership.Find(m, "c"); !ok || got.ID != "c" || got.Address != "c:1" {
		t.Errorf("find c: got %+v, %v", got, ok)
	}
	if got, ok := membership.Find(m, "bb"); ok {
		t.Errorf("find bb: got %+v, want none", got)
	}
}

func changed(t *testing.T, c Cluster) {
	first, second := make(chan struct{}, 100), make(chan struct{}, 100)
	stop := c.Monitor().Changed(func() { first <- struct{}{} })
	defer c.Monitor().Changed(func() { second <- struct{}{} })()
	c.Add(host("b"))
	for name, woken := range map[string]chan struct{}{"first": first, "second": second} {
		select {
		case <-woken:
		case <-time.After(patience):
			t.Fatalf("the %s was not woken by a host that came", name)
		}
	}
	stop()
	for len(first) > 0 || len(second) > 0 {
		select {
		case <-first:
		case <-second:
		}
	}
	c.Remove("b")
	select {
	case <-second:
	case <-time.After(patience):
		t.Fatal("not woken by a host that went")
	}
	if len(first) > 0 {
		t.Error("woken after stop")
	}
	if diff := cmp.Diff([]core.HostID{"a"}, ids(c.Monitor().Hosts(""))); diff != "" {
		t.Errorf("hosts after the changes (-want +got):\n%s", diff)
	}
}

func callers(t *testing.T, c Cluster) {
	hosts := c.Monitor().Hosts("")
	clear(hosts)
	if diff := cmp.Diff([]core.HostID{"a", "b"}, ids(c.Monitor().Hosts(""))); diff != "" {
		t.Errorf("hosts after an answer was changed (-want +got):\n%s", diff)
	}
}

func gone(t *testing.T, c Cluster) {
	before := time.Now()
	if got := c.Monitor().Gone(); len(got) > 0 {
		t.Fatalf("gone at the start: %+v", got)
	}
	c.Remove("c")
	c.Remove("b")
	got := c.Monitor().Gone()
	if len(got) != 2 || got[0].ID != "b" || got[1].ID != "c" || got[0].Address != "b:1" || got[0].Since.Before(got[1].Since) || got[1].Since.Before(before) {
		t.Errorf("after c and then b were removed: gone %+v", got)
	}
	c.Add(host("b"))
	if got := c.Monitor().Gone(); len(got) != 1 || got[0].ID != "c" {
		t.Errorf("b is back: gone %+v, want c only", got)
	}
}
