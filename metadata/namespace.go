package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// NamespaceRecord is what limits the queues of a namespace; one without a record has no limits.
type NamespaceRecord struct {
	Spec    core.NamespaceSpec `json:"spec"`
	Created time.Time          `json:"created"`
}

// NamespaceKey is where Namespaces keeps the limits of a namespace.
func NamespaceKey(name string) Key { return Key{PartitionID, name} }
