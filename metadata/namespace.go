package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// NamespaceRecord has the limits of a namespace; a namespace without a record has none.
type NamespaceRecord struct {
	Spec    core.NamespaceSpec `json:"spec"`
	Created time.Time          `json:"created"`
}

// NamespaceKey is where Namespaces keeps the limits of a namespace.
func NamespaceKey(name string) Key { return Key{PartitionID, name} }
