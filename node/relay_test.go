package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
)

// relayHosts are hosts that relay to Cassandra, beside the one that looks for them.
func relayHosts(ids ...core.HostID) []membership.Host {
	out := []membership.Host{{ID: "self"}}
	for _, id := range ids {
		out = append(out, membership.Host{ID: id, Roles: []string{membership.RoleRelay}, Address: string(id) + ":1"})
	}
	return out
}

// failing answers no call, with this error, or all with that status.
type failing struct {
	err    error
	status int
}

func (f failing) RoundTrip(*http.Request) (*http.Response, error) {
	if f.err != nil {
		return nil, f.err
	}
	return &http.Response{StatusCode: f.status, Body: http.NoBody}, nil
}

// TestFinder_TurnsToTheNextRelay calls a relay until a call is not answered, and leaves one that has gone.
func TestFinder_TurnsToTheNextRelay(t *testing.T) {
	hosts := relayHosts("a", "b", "c")
	members, err := static.New(hosts[0], hosts[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	f := &finder{log: slog.New(slog.DiscardHandler), members: members}
	locate := func() string {
		t.Helper()
		addr, err := f.locate()
		if err != nil {
			t.Fatal(err)
		}
		return addr
	}
	call := func(addr string, err error, status int) {
		req, rerr := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if resp, err := f.watch(failing{err, status}).RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	first := locate()
	for range 10 {
		if again := locate(); again != first {
			t.Fatalf("it went from %s to %s by itself", first, again)
		}
	}
	call(first, context.Canceled, 0)
	call(first, nil, http.StatusOK)
	call(first, nil, http.StatusNotFound)
	if again := locate(); again != first {
		t.Errorf("a caller that gave up, or an answer, made it leave %s for %s", first, again)
	}
	seen := map[string]bool{first: true}
	for at := first; len(seen) < 3; {
		if len(seen) == 1 {
			call(at, context.DeadlineExceeded, 0)
		} else {
			call(at, nil, http.StatusServiceUnavailable)
		}
		call(at, errors.New("connection refused"), 0) // another call that was under way there
		next := locate()
		if seen[next] {
			t.Fatalf("after %s it asks %s again; asked so far: %v", at, next, seen)
		}
		seen[next] = true
		at = next
	}
	last := locate()
	var left []core.HostID
	for _, id := range []core.HostID{"a", "b", "c"} {
		if string(id)+":1" != last {
			left = append(left, id)
		}
	}
	if err := members.Set(relayHosts(left...)); err != nil {
		t.Fatal(err)
	}
	if next := locate(); next == last {
		t.Errorf("it goes on to ask %s, which has gone", last)
	}
}

// TestFinder_AsksARelayOfItsZone has relays in two zones. One of the other zone is asked only while the own one does
// not answer.
func TestFinder_AsksARelayOfItsZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := relayHosts("a", "b", "c", "d")
		for i := range hosts {
			hosts[i].Zone = "east"
		}
		hosts[0].Zone, hosts[3].Zone = "west", "west"
		members, err := static.New(hosts[0], hosts[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		f := &finder{log: slog.New(slog.DiscardHandler), members: members}
		wantAt := func(when, want string) {
			t.Helper()
			if addr, err := f.locate(); addr != want || err != nil {
				t.Errorf("%s it asks %s (%v), want %s", when, addr, err, want)
			}
		}
		wantAt("at first", "c:1")
		slow, answer := context.WithCancel(t.Context())
		defer answer()
		req, err := http.NewRequestWithContext(slow, http.MethodGet, "http://c:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if resp, err := f.watch(standing{}).RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		}()
		time.Sleep(relayPatience - time.Millisecond)
		wantAt("before its patience ends", "c:1")
		time.Sleep(2 * time.Millisecond)
		wantAt("beside a call that takes long", "d:1")
		answer()
		<-ended
		wantAt("after its caller gave up", "d:1")
		time.Sleep(relayHome)
		wantAt("after a minute", "c:1")
		if err := members.Set(append(hosts[:3:3], hosts[4])); err != nil {
			t.Fatal(err)
		}
		if addr, err := f.locate(); addr == "c:1" || err != nil {
			t.Errorf("without a relay in the zone it asks %s (%v)", addr, err)
		}
	})
}

// standing answers no call before its caller gives up.
type standing struct{}

func (standing) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestFinder_PrefersTheHolderOfEmbeddedMetadata has hosts of two kinds: one of them has all metadata by itself.
func TestFinder_PrefersTheHolderOfEmbeddedMetadata(t *testing.T) {
	hosts := append(holders("a"), relayHosts("b")[1:]...)
	members, err := static.New(hosts[0], hosts[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	f := &finder{log: slog.New(slog.DiscardHandler), members: members}
	if addr, err := f.locate(); addr != "a:1" || err != nil {
		t.Errorf("got %q, %v", addr, err)
	}
}

func TestConfig_WhoUsesCassandra(t *testing.T) {
	for _, tc := range []struct {
		roles               []string
		metadata            string
		uses, relays, holds bool
	}{
		{Roles, MetadataEmbedded, false, false, true},
		{Roles, "cassandra://a", true, true, false},
		{[]string{RoleController}, "cassandra://a", true, true, false},
		{[]string{RoleOutput}, "cassandra://a", true, false, false},
		{[]string{RoleFrontend}, "cassandra://a", true, false, false},
		{[]string{RoleInput}, "cassandra://a", false, false, false},
		{[]string{RoleStore, RoleInput}, "cassandra://a", false, false, false},
		{[]string{RoleOutput}, MetadataEmbedded, false, false, false},
	} {
		cfg := DefaultConfig()
		cfg.Roles, cfg.Metadata = tc.roles, tc.metadata
		if err := cfg.Validate(); err != nil {
			t.Errorf("%v with %s: %v", tc.roles, tc.metadata, err)
		}
		if cfg.usesCassandra() != tc.uses || cfg.relaysMetadata() != tc.relays || cfg.holdsMetadata() != tc.holds {
			t.Errorf("%v with %s: uses %t, relays %t, holds %t", tc.roles, tc.metadata, cfg.usesCassandra(), cfg.relaysMetadata(), cfg.holdsMetadata())
		}
	}
}

func TestConfig_RefusesMetadataElsewhere(t *testing.T) {
	for metadata, text := range map[string]string{
		"":                        "is neither embedded nor cassandra://",
		"etcd://a":                "is neither embedded nor cassandra://",
		"cassandra://":            "empty host",
		"cassandra://u:secret@a":  "password, which others can see",
		"cassandra://a?colour=no": "colour",
	} {
		cfg := DefaultConfig()
		cfg.Metadata = metadata
		wantCode(t, metadata, cfg.Validate(), core.CodeBadArgument, text)
	}
}
