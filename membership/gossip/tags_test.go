package gossip

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

// TestHostOf_RefusesWhatNoAnswerCanName: the list of hosts, and every route, has to be text.
func TestHostOf_RefusesWhatNoAnswerCanName(t *testing.T) {
	good := map[string]string{tagID: "a", tagRoles: "storehost", tagAddress: "127.0.0.1:4922", tagZone: "rack-1", tagRun: core.ID{1}.String()}
	if _, err := hostOf(good); err != nil {
		t.Fatal(err)
	}
	for tag, value := range map[string]string{tagRoles: "store\xff", tagAddress: "127.0.0.1\xc3:4922", tagZone: "\xed\xa0\x80"} {
		bad := maps.Clone(good)
		bad[tag] = value
		if h, err := hostOf(bad); err == nil {
			t.Errorf("%s: %+v is taken for a host", tag, h)
		}
	}
}

// FuzzHostOf reads any tags: any process that reaches the gossip port sends some. An accepted host stays the same when
// its tags are written and read again.
func FuzzHostOf(f *testing.F) {
	id := core.ID{1, 2, 3}.String()
	f.Add("host-1", "storehost,inputhost", "127.0.0.1:4922", "rack-1", id)
	f.Add("", "", "", "", "")
	f.Add("a/b", ",,", "x\x00y", strings.Repeat("z", 500), "no id")
	f.Fuzz(func(t *testing.T, host, roles, addr, zone, run string) {
		h, err := hostOf(map[string]string{tagID: host, tagRoles: roles, tagAddress: addr, tagZone: zone, tagRun: run})
		if err != nil {
			return
		}
		again, err := hostOf(tags(h, core.ID{}))
		if err != nil {
			t.Fatalf("%+v does not come back: %v", h, err)
		}
		if diff := cmp.Diff(h, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
