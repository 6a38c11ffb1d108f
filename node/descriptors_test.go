package node

import (
	"strings"
	"testing"

	"github.com/columbamq/columba/core"
)

// TestFilesAreShared: whatever the limit of open files is, the parts of a process fit below it together, or it does not
// start and says which limit it needs.
func TestFilesAreShared(t *testing.T) {
	for databases := range MaxStores + 2 {
		for _, limit := range []uint64{0, 16, 64, 80, 96, 128, 256, 1024, 2100, 4096, 20_000, 1 << 20, 1 << 63} {
			d, err := share(limit, databases)
			if err != nil {
				if core.CodeOf(err) != core.CodeUnavailable || int(limit) >= limitFor(databases, fewestTables) || !strings.Contains(err.Error(), "ulimit -n") {
					t.Errorf("%d databases with a limit of %d: %v", databases, limit, err)
				}
				continue
			}
			if databases > 0 && d.tables < fewestTables || d.tables > mostTables || d.connections > maxConnections {
				t.Errorf("%d databases with a limit of %d: %+v", databases, limit, d)
			}
			all := uint64(d.connections)
			if databases > 0 {
				all += uint64(ownFiles + databases*(databaseFiles+d.tables))
			}
			if all > limit {
				t.Errorf("%d databases with a limit of %d have %d files open: %+v", databases, limit, all, d)
			}
		}
	}
}

func TestEnoughFilesAreNotLow(t *testing.T) {
	for databases := 1; databases <= MaxStores+1; databases++ {
		enough := uint64(limitFor(databases, mostTables))
		if d, err := share(enough, databases); err != nil || d.low() {
			t.Errorf("%d databases with %d files: %+v, %v; want enough", databases, enough, d, err)
		}
		if d, err := share(enough-4*uint64(databases), databases); err != nil || !d.low() {
			t.Errorf("%d databases with fewer than %d files: %+v, %v; want few", databases, enough, d, err)
		}
		if d, err := share(uint64(limitFor(databases, fewestTables)), databases); err != nil {
			t.Errorf("%d databases with the fewest files: %+v, %v", databases, d, err)
		}
	}
	if d, err := share(128, 2); err != nil { // metadata and a store
		t.Errorf("a server alone with 128 files: %+v, %v", d, err)
	}
}
