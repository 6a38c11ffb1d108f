package core_test

import (
	"testing"

	"github.com/columbamq/columba/core"
)

func TestReplicaDigest_DependsOnEveryPart(t *testing.T) {
	a, b := core.ExtentID{ID: core.ID{1}}, core.ExtentID{ID: core.ID{15: 1}}
	seen := make(map[uint64]string)
	for name, d := range map[string]uint64{
		"base":     core.ReplicaDigest(a, false, 0, 0, false),
		"extent":   core.ReplicaDigest(b, false, 0, 0, false),
		"sealed":   core.ReplicaDigest(a, true, 0, 0, false),
		"l":        core.ReplicaDigest(a, true, 1, 0, false),
		"checksum": core.ReplicaDigest(a, true, 1, 1, false),
		"damaged":  core.ReplicaDigest(a, true, 1, 1, true),
	} {
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
	if got := core.InventoryBucket(b); got != 1 {
		t.Errorf("bucket %d, want the last byte", got)
	}
}
