package frontend

import (
	"strings"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
)

func TestListHosts(t *testing.T) {
	c := newHarness(t, nil)
	c.addOutput("b")
	l := must(call(t, c.admin.ListHosts, &pb.ListHostsRequest{}))(t)
	if len(l.Hosts) != 2 || l.Hosts[0].Host != "a" || len(l.Hosts[0].Roles) != 5 || l.Hosts[0].Zone != "z" || l.Hosts[1].Roles[0] != "outputhost" {
		t.Errorf("got %v", l)
	}
}

func TestListHosts_GoneStayForAnHour(t *testing.T) {
	c := newHarness(t, nil)
	c.addOutput("b")
	before := time.Now()
	self := c.members.Hosts("")[:1]
	if err := c.members.Set(self); err != nil {
		t.Fatal(err)
	}
	l := must(call(t, c.admin.ListHosts, &pb.ListHostsRequest{}))(t)
	if len(l.Hosts) != 2 || l.Hosts[0].Host != "a" || l.Hosts[0].Since != nil {
		t.Fatalf("got %v, want a, which is there, and b", l)
	}
	if b := l.Hosts[1]; b.Host != "b" || b.State != "down" || b.Since.AsTime().Before(before) || b.Roles[0] != "outputhost" {
		t.Errorf("got %v, want b, down since its removal", b)
	}
	c.addOutput("b")
	l = must(call(t, c.admin.ListHosts, &pb.ListHostsRequest{}))(t)
	if len(l.Hosts) != 2 || l.Hosts[1].State != "up" || l.Hosts[1].Since != nil {
		t.Errorf("back again: got %v, want b, up", l)
	}
}

// TestListHosts_KnownSince: a frontend knows of the hosts that are gone since its start, and for an hour at most.
func TestListHosts_KnownSince(t *testing.T) {
	began := time.Now()
	s := &service{began: began}
	for after, want := range map[time.Duration]time.Time{time.Minute: began, time.Hour: began, 3 * time.Hour: began.Add(2 * time.Hour)} {
		s.now = func() time.Time { return began.Add(after) }
		if got := s.knownSince(); !got.Equal(want) {
			t.Errorf("%s after the start: since %s, want %s", after, got, want)
		}
	}
	before := time.Now()
	c := newHarness(t, nil)
	l := must(call(t, c.admin.ListHosts, &pb.ListHostsRequest{}))(t)
	if since := l.GetKnownSince().AsTime(); since.Before(before) || since.After(time.Now()) {
		t.Errorf("a frontend that started just now says %s", since)
	}
}

func TestListHosts_Clocks(t *testing.T) {
	c := newHarness(t, nil)
	c.addOutput("b").ahead.Store(int64(-time.Hour))
	c.addOutput("c")
	l := must(call(t, c.admin.ListHosts, &pb.ListHostsRequest{}))(t)
	differs := func(i int, text string) bool { return strings.HasPrefix(l.Hosts[i].State, text) }
	if len(l.Hosts) != 3 || differs(0, "clock") || !differs(1, "clock -1h0m") && !differs(1, "clock -59m5") || l.Hosts[2].State != "up" {
		t.Errorf("got %v, want that b is an hour behind", l)
	}
}
