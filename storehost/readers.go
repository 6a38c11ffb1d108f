package storehost

import (
	"sync"

	"github.com/columbamq/columba/core"
)

// maxReaders is how many streams may read one extent: as many as a queue has groups in a large installation. Each costs
// the store's disk loop a wake, and the connection a frame, at each commit.
const maxReaders = 10_000

// readers counts the read streams of each extent. Safe for concurrent use.
type readers struct {
	mu       sync.Mutex
	byExtent map[core.ExtentID]int // those that are read
}

// enter admits a stream, which must leave; CodeThrottled.
func (r *readers) enter(id core.ExtentID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byExtent[id] >= maxReaders {
		return core.Errorf(core.CodeThrottled, "%d streams read extent %s, which is the limit; close some, and try again", maxReaders, id)
	}
	if r.byExtent == nil {
		r.byExtent = map[core.ExtentID]int{}
	}
	r.byExtent[id]++
	return nil
}

func (r *readers) leave(id core.ExtentID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byExtent[id]--; r.byExtent[id] == 0 {
		delete(r.byExtent, id)
	}
}
