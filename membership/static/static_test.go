package static

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

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

func newMonitor(t *testing.T, self membership.Host, others ...membership.Host) *Monitor {
	t.Helper()
	m, err := New(self, others...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestHostsByRoleSortedByID(t *testing.T) {
	m := newMonitor(t, host("b", "storehost", "controller"), host("c", "storehost"), host("a", "frontend"))
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
	if got := m.Self(); got.ID != "b" || !cmp.Equal(got.Roles, []string{"controller", "storehost"}) {
		t.Errorf("self: got %+v, want b with sorted roles", got)
	}
	if got, ok := membership.Find(m, "c"); !ok || got.ID != "c" {
		t.Errorf("find c: got %+v, %v", got, ok)
	}
	if got, ok := membership.Find(m, "bb"); ok {
		t.Errorf("find bb: got %+v, want none", got)
	}
}

func TestChangedWakesUntilStopped(t *testing.T) {
	m := newMonitor(t, host("a"))
	var first, second int
	stopFirst := m.Changed(func() { first++ })
	defer m.Changed(func() { second++ })()
	set := func(hosts ...membership.Host) {
		t.Helper()
		if err := m.Set(hosts); err != nil {
			t.Fatal(err)
		}
	}
	set(host("a"), host("b"))
	stopFirst()
	set(host("a"))
	if first != 1 || second != 2 {
		t.Errorf("wakes: got %d before its stop and %d, want 1 and 2", first, second)
	}
	if diff := cmp.Diff([]core.HostID{"a"}, ids(m.Hosts(""))); diff != "" {
		t.Errorf("hosts after the changes (-want +got):\n%s", diff)
	}
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
