package quota

import (
	"hash/fnv"

	"github.com/columbamq/columba/core"
)

// ranges is how many parts the namespaces are divided into. Hosts ask once a second for each order of controllers that
// the ranges have: however many namespaces and controllers there are, in no more than so many calls.
const ranges = 64

// Key is that of the range of a namespace. One controller at a time is responsible for it, and divides the limits of
// the namespace and those of its queues (docs/adr/0015).
func Key(namespace string) core.ID {
	h := fnv.New32a()
	h.Write([]byte(namespace))
	return core.ID{'q', 'u', 'o', 't', 'a', 15: byte(h.Sum32() % ranges)}
}
