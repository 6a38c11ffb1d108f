package gossip

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// someHost draws a host whose tags fit.
func someHost(t *rapid.T) membership.Host {
	label := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.-]{0,63}`)
	var run core.RunID
	copy(run.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
	roles := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"controller", "frontend", "inputhost", "metadata", "outputhost", "storehost"}), 0, 6, rapid.ID).Draw(t, "roles")
	slices.Sort(roles)
	h := membership.Host{
		ID: core.HostID(label.Draw(t, "id")), Address: rapid.StringMatching(`[a-z0-9.]{1,100}:[0-9]{1,5}`).Draw(t, "address"),
		Zone: rapid.OneOf(rapid.Just(""), label).Draw(t, "zone"), Run: run,
	}
	if len(roles) > 0 {
		h.Roles = roles
	}
	return h
}

func TestTagsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := someHost(t)
		if err := checkTags(want); err != nil {
			t.Fatal(err)
		}
		got, err := hostOf(tags(want, core.NewID(time.Now())))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func TestTagsThatAreTooLong(t *testing.T) {
	h := host("a")
	h.Address = strings.Repeat("a", 500) + ":1"
	if _, err := New(Config{Self: h}); core.CodeOf(err) != core.CodeBadArgument || !strings.Contains(err.Error(), "shorten") {
		t.Errorf("got %v, want a refusal that says what to do", err)
	}
	if _, err := New(Config{Self: host("")}); err == nil {
		t.Error("a host without an id was taken")
	}
}

func TestTagsOfOthersAreRefused(t *testing.T) {
	good := tags(host("a"), core.ID{15: 1})
	for key := range map[string]bool{tagID: true, tagRun: true} {
		bad := map[string]string{}
		for k, v := range good {
			bad[k] = v
		}
		for _, v := range []string{"", "a b", strings.Repeat("x", 1000)} {
			bad[key] = v
			if h, err := hostOf(bad); err == nil {
				t.Errorf("%s=%.20q: got %+v, want an error", key, v, h)
			}
		}
	}
}

func TestViewHasTheNewestRunOfEachHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var live []membership.Host
		newest := make(map[core.HostID]byte)
		for range rapid.IntRange(0, 20).Draw(t, "members") {
			h := membership.Host{ID: rapid.SampledFrom([]core.HostID{"a", "b", "c"}).Draw(t, "id")}
			h.Run.ID[15] = byte(len(live) + 1)
			newest[h.ID] = h.Run.ID[15]
			live = append(live, h)
		}
		rand.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		hosts, doubles := view(slices.Clone(live))
		if len(hosts) != len(newest) || len(hosts)+len(doubles) != len(live) {
			t.Fatalf("%d members of %d hosts: got %d hosts and %d doubles", len(live), len(newest), len(hosts), len(doubles))
		}
		for i, h := range hosts {
			if i > 0 && hosts[i-1].ID >= h.ID {
				t.Fatalf("not sorted: %v", ids(hosts))
			}
			if h.Run.ID[15] != newest[h.ID] {
				t.Fatalf("%s: got run %d, want %d", h.ID, h.Run.ID[15], newest[h.ID])
			}
		}
	})
}
