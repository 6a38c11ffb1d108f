package cassandra

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// While the only node is away calls end in time, and never with an answer that they do not have. The store goes on by
// itself when the node is back, and what was acknowledged is there.
func TestStore_NodeIsKilled(t *testing.T) {
	s := open(t)
	defer s.Close()
	if nodes.Missing() {
		t.Skip("the node is not one of this test")
	}
	table, key := metadata.Names, metadata.NameKey("kept")
	if err := s.Insert(t.Context(), table, key, []byte("x")); err != nil {
		t.Fatal(err)
	}
	nodes.Kill()
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
	nodes.Revive(t)
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
