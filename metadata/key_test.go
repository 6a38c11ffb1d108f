package metadata

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestKeys_AreTaken(t *testing.T) {
	now := time.Date(2026, 1, 2, 23, 4, 5, 0, time.FixedZone("", -3600))
	id := core.NewID(now)
	queue, group, extent, run := core.QueueID{ID: id}, core.GroupID{ID: id}, core.ExtentID{ID: id}, core.RunID{ID: id}
	label := strings.Repeat("x", core.MaxLabel)
	for table, k := range map[Table]Key{
		Names:       NameKey(strings.Repeat("/"+label, core.MaxPathLabels+1)),
		Queues:      QueueKey(queue),
		Groups:      GroupKey(queue, label),
		Extents:     ExtentKey(queue, extent),
		Seals:       SealKey(extent),
		Work:        HintKey(HintOpen, extent),
		Assignments: AssignmentKey(group, extent, Precedence{1, core.HostID(label), run}),
		Dones:       DoneKey(group, extent, 1),
		Checkpoints: CheckpointKey(group, extent, 1, run),
		Operations:  OperationKey(id),
		Audit:       AuditKey(now, id),
		Settings:    SettingKey("replicas"),
	} {
		if err := CheckKey(table, k); err != nil {
			t.Errorf("%s: %v", table.Name, err)
		}
	}
	if day := AuditKey(now, id).Partition; day != "2026-01-03" {
		t.Errorf("audit day is %s, want the UTC one", day)
	}
}

func TestKeys_OrderByNumber(t *testing.T) {
	var group core.GroupID
	var extent core.ExtentID
	var run core.RunID
	for _, pair := range [][2]uint64{{1, 2}, {9, 10}, {99, 1 << 63}} {
		if a, b := CheckpointKey(group, extent, pair[0], run), CheckpointKey(group, extent, pair[1], run); a.Row >= b.Row {
			t.Errorf("checkpoints: %s is not before %s", a.Row, b.Row)
		}
		if a, b := AssignmentKey(group, extent, Precedence{Counter: pair[0], By: "z"}), AssignmentKey(group, extent, Precedence{Counter: pair[1], By: "a"}); a.Row >= b.Row {
			t.Errorf("assignments: %s is not before %s", a.Row, b.Row)
		}
	}
}
