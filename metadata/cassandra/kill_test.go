package cassandra

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// While all nodes are away calls end in time, and never with an answer that they do not have. The store goes on by
// itself when they are back, and what was acknowledged is there.
func TestStore_AllNodesAreKilled(t *testing.T) {
	if os.Getenv(addressEnv) != "" {
		t.Skip("the node is not one of this test")
	}
	s := open(t)
	defer s.Close()
	table, key := metadata.Names, metadata.NameKey("kept")
	if err := s.Insert(t.Context(), table, key, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Start(t) {
		node.Kill(t)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if _, err := s.Get(ctx, table, key, metadata.Serial); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("get: %v, want code %q", err, core.CodeUnavailable)
	}
	switch err := s.Insert(ctx, metadata.Seals, metadata.Key{Partition: "id", Row: "new"}, nil); core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeUnknown:
	default:
		t.Errorf("insert: %v, want code %q or %q", err, core.CodeUnavailable, core.CodeUnknown)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the calls took %s", took)
	}
	nodes.ReviveAll(t)
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var pace pacer
	for {
		row, err := s.Get(ctx, table, key, metadata.Serial)
		if err == nil && string(row.Value) == "x" {
			return
		}
		if core.CodeOf(err) != core.CodeUnavailable || pace.wait(ctx) != nil {
			t.Fatalf("got %q, %v; want what was acknowledged", row.Value, err)
		}
	}
}
