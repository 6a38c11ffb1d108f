package metadata

import (
	"sync"
	"time"
)

// Versions chooses the first versions of inserted rows for an embedded store. A row that is deleted and inserted again
// must not have a version of its earlier life: a change that began before the deletion would be stored in the new row.
// The first version is therefore the time of the insertion in µs since 1970, and above each version that this process
// chose or deleted. A clock that was set back makes the versions lower, and equal only if a change of the earlier life
// falls on the same microsecond. The zero Versions is ready; safe for concurrent use.
type Versions struct {
	mu   sync.Mutex
	last Version
}

// First returns the version of a row that is inserted at now, by the store's clock.
func (v *Versions) First(now time.Time) Version {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = max(v.last+1, Version(max(now.UnixMicro(), 0)))
	return v.last
}

// Deleted records the last version of a row that is deleted.
func (v *Versions) Deleted(last Version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = max(v.last, last)
}
