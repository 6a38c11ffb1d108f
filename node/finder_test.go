package node

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// holders are hosts that hold metadata, beside the one that looks for them.
func holders(ids ...core.HostID) []membership.Host {
	out := []membership.Host{{ID: "self"}}
	for _, id := range ids {
		out = append(out, membership.Host{ID: id, Roles: []string{membership.RoleMetadata}, Address: string(id) + ":1"})
	}
	return out
}

func newFinder(t *testing.T, ids ...core.HostID) (*finder, *static.Monitor) {
	t.Helper()
	hosts := holders(ids...)
	members, err := static.New(hosts[0], hosts[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return &finder{log: slog.New(slog.DiscardHandler), members: members}, members
}

// away fails like metadata that nobody holds.
type away struct{ metadata.Store }

func (away) List(context.Context, metadata.Table, string, string, int, metadata.Consistency) ([]metadata.Row, bool, error) {
	return nil, false, core.Errorf(core.CodeUnavailable, "nobody holds them")
}

func TestFinder_KeepsToTheHostItFound(t *testing.T) {
	f, members := newFinder(t, "a")
	store := memory.New()
	defer store.Close()
	if err := f.wait(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		there []core.HostID
		addr  string
		text  string
	}{
		{[]core.HostID{"a"}, "a:1", ""},
		{[]core.HostID{"a", "b"}, "a:1", ""},
		{[]core.HostID{"b"}, "", "b claims to hold them too and is not asked"},
		{nil, "", "no live host holds the cluster's metadata"},
		{[]core.HostID{"0", "a"}, "a:1", ""},
	} {
		if err := members.Set(holders(tc.there...)); err != nil {
			t.Fatal(err)
		}
		addr, err := f.locate()
		if addr != tc.addr {
			t.Errorf("%v: got %q, %v, want %q", tc.there, addr, err, tc.addr)
		}
		if tc.text != "" {
			wantCode(t, "nobody to ask", err, core.CodeUnavailable, tc.text)
		}
	}
}

func TestFinder_DoesNotChooseBetweenTwo(t *testing.T) {
	f, members := newFinder(t, "a", "b")
	_, err := f.locate()
	wantCode(t, "two", err, core.CodeUnavailable, "hosts a and b both claim")
	if err := members.Set(holders("b")); err != nil {
		t.Fatal(err)
	}
	if addr, err := f.locate(); addr != "b:1" {
		t.Errorf("one of them: got %q, %v, want b:1", addr, err)
	}
}

func TestFinder_WaitHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFinder(t)
		began := time.Now()
		err := f.wait(t.Context(), away{})
		wantCode(t, "the wait", err, core.CodeUnavailable, "were not found within 1m0s: nobody holds them; start the process with the role controller")
		if took := time.Since(began); took < metadataWait || took > metadataWait+metadataPause {
			t.Errorf("it took %s, want %s", took, metadataWait)
		}
	})
}

func TestHolder_EndsWhenAnOlderOneIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self := membership.Host{ID: "self", Roles: []string{membership.RoleMetadata}, Run: core.RunID{ID: core.NewID(time.Now())}}
		members, err := static.New(self)
		if err != nil {
			t.Fatal(err)
		}
		h := newHolder(&resources{members: members, failed: func() error { return nil }}, slog.New(slog.DiscardHandler))
		ended := make(chan error, 1)
		go func() { ended <- h.Run(t.Context()) }()
		other := membership.Host{ID: "other", Address: "other:1", Roles: self.Roles, Run: core.RunID{ID: core.NewID(time.Now().Add(time.Second))}}
		if err := members.Set([]membership.Host{self, other}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("it ended for a newer one: %v", <-ended)
		}
		other.Run = core.RunID{ID: core.NewID(time.Now().Add(-time.Hour))}
		if err := members.Set([]membership.Host{self, other}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "an older one", <-ended, core.CodeConflict, "host other at other:1 holds the embedded metadata")
	})
}
