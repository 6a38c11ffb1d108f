package gossip

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

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
