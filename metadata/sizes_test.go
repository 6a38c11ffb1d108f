package metadata

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// The page for operators of Cassandra computes how much the rows of an extent take. Its sizes are those of the records.
func TestRecords_HaveTheSizesThatThePageSays(t *testing.T) {
	now := time.Date(2031, 5, 1, 12, 0, 0, 123456000, time.UTC)
	var last byte
	id := func() core.ID { last++; return core.ID{15: last} }
	host := func() core.HostID { return core.HostID(id().String()) }
	e := core.Extent{
		ID: core.ExtentID{ID: id()}, Queue: core.QueueID{ID: id()}, Kind: core.KindLog, Durability: core.DurabilityFsync,
		Input: host(), InputRun: core.RunID{ID: id()}, Token: core.WriterToken{ID: id()},
		Replicas: []core.HostID{host(), host(), host()}, Disks: []core.DiskID{{ID: id()}, {ID: id()}, {ID: id()}},
	}
	page, err := os.ReadFile("../docs/operations/cassandra.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, record := range map[string]any{
		"create row": ExtentRecord{Extent: e, Created: now, Wanted: 3},
		"seal row": SealRecord{
			Extent: e, State: core.ExtentSealed, Floor: 100_000, L: 100_000, Checksum: 4_000_000_000, Bytes: 256 << 20,
			Holders: e.Replicas, HolderDisks: e.Disks, Version: 1, Reason: "size", Attempt: id(), Changed: now, Ended: now,
		},
		"assignment": AssignmentRecord{
			Group: core.GroupID{ID: id()}, Queue: e.Queue, Name: "billing", Extent: e, Counter: 1,
			By: host(), ByRun: core.RunID{ID: id()}, Owner: host(), Run: core.RunID{ID: id()},
		},
		"done row": DoneRecord{L: 100_000},
	} {
		b, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("| %s | %d |", row, len(b)); !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
