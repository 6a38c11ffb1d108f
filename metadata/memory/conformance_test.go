package memory_test

import (
	"testing"

	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/metadata/metadatatest"
)

func TestStore(t *testing.T) {
	metadatatest.Run(t, func(*testing.T) metadata.Store { return memory.New() })
}
