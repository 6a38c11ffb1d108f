package remote_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// TestHandler_KeepsTheRuleOfATable: a put would replace a row that others change by its version.
func TestHandler_KeepsTheRuleOfATable(t *testing.T) {
	s := serve(memory.New(), plain)
	defer s.Close()
	queues := metadata.Table{Name: metadata.Queues.Name, Rule: metadata.RulePut}
	if err := s.Put(t.Context(), queues, metadata.Key{Partition: "p", Row: "r"}, []byte("{}"), time.Now(), 0, metadata.Quorum); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("put of a row of table queues: %v", err)
	}
	audit := metadata.Table{Name: metadata.Audit.Name, Rule: metadata.RuleCAS}
	if err := s.Insert(t.Context(), audit, metadata.Key{Partition: "p", Row: "r"}, []byte("{}")); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("insert of a row of table audit: %v", err)
	}
}
