package static

import (
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/membershiptest"
)

func host(id core.HostID, roles ...string) membership.Host {
	return membership.Host{ID: id, Roles: roles, Address: string(id) + ":1"}
}

func newMonitor(t *testing.T, self membership.Host, others ...membership.Host) *Monitor {
	t.Helper()
	m, err := New(self, others...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// cluster lets the conformance suite change who is there.
type cluster struct {
	t *testing.T
	m *Monitor
}

func (c cluster) Monitor() membership.Monitor { return c.m }

func (c cluster) Add(h membership.Host) { c.set(append(c.m.Hosts(""), h)) }

func (c cluster) Remove(id core.HostID) {
	c.set(slices.DeleteFunc(c.m.Hosts(""), func(h membership.Host) bool { return h.ID == id }))
}

func (c cluster) set(hosts []membership.Host) {
	c.t.Helper()
	if err := c.m.Set(hosts); err != nil {
		c.t.Fatal(err)
	}
}

func TestMonitor_Conformance(t *testing.T) {
	membershiptest.Run(t, func(t *testing.T, self membership.Host, others ...membership.Host) membershiptest.Cluster {
		return cluster{t, newMonitor(t, self, others...)}
	})
}

func TestBadListsChangeNothing(t *testing.T) {
	m := newMonitor(t, host("a"), host("b"))
	defer m.Changed(func() { t.Error("woken by a list that was refused") })()
	for name, hosts := range map[string][]membership.Host{
		"without self": {host("b")},
		"twice":        {host("a"), host("b"), host("b")},
		"no id":        {host("a"), host("")},
	} {
		if err := m.Set(hosts); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%s: got %v, want %s", name, err, core.CodeBadArgument)
		}
	}
	if got := len(m.Hosts("")); got != 2 {
		t.Errorf("hosts after refused lists: got %d, want 2", got)
	}
	if _, err := New(host("")); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("new without an id: got %v, want %s", err, core.CodeBadArgument)
	}
}
