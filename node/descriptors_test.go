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
			members := max(1, databases) // in the largest cluster's process; fewer take no more
			d, err := share(limit, databases, members)
			if err != nil {
				if core.CodeOf(err) != core.CodeUnavailable || int(limit) >= limitFor(databases, fewestTables) || !strings.Contains(err.Error(), "ulimit -n") {
					t.Errorf("%d databases with a limit of %d: %v", databases, limit, err)
				}
				continue
			}
			if databases > 0 && d.tables < fewestTables || d.tables > mostTables || d.connections > maxConnections || d.gossip < fewestStreams || d.gossip > mostStreams {
				t.Errorf("%d databases with a limit of %d: %+v", databases, limit, d)
			}
			if databases == 0 && limit < 2*fewestStreams {
				continue // nothing works with so few
			}
			all := uint64(d.connections + members*d.gossip)
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
		if d, err := share(enough, databases, 1); err != nil || d.low() {
			t.Errorf("%d databases with %d files: %+v, %v; want enough", databases, enough, d, err)
		}
		if d, err := share(enough-4*uint64(databases), databases, 1); err != nil || !d.low() {
			t.Errorf("%d databases with fewer than %d files: %+v, %v; want few", databases, enough, d, err)
		}
		if d, err := share(uint64(limitFor(databases, fewestTables)), databases, 1); err != nil {
			t.Errorf("%d databases with the fewest files: %+v, %v", databases, d, err)
		}
	}
	if d, err := share(128, 2, 1); err != nil { // metadata and a store
		t.Errorf("a server alone with 128 files: %+v, %v", d, err)
	}
}

// With few files gossip has few streams, and never those of the disk.
func TestGossipStreamsAreShared(t *testing.T) {
	for _, tc := range []struct {
		limit             uint64
		members           int
		gossip, connected int
	}{{256, 0, 0, 128}, {128, 1, 4, 60}, {256, 1, 8, 120}, {1024, 1, 32, 480}, {1024, 4, 8, 480}, {1 << 20, 16, 32, maxConnections}} {
		d, err := share(tc.limit, 1, tc.members)
		if err != nil || d.gossip != tc.gossip || d.connections != tc.connected {
			t.Errorf("%d files, %d members: %+v, %v; want %d streams and %d connections", tc.limit, tc.members, d, err, tc.gossip, tc.connected)
		}
	}
}
