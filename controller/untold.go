package controller

import (
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// tellUntold is how often the log is told of a replica that cannot be told its end, while the reason stays the same.
	tellUntold = time.Minute
	// maxUntold bounds how many are remembered; of more the log is told again.
	maxUntold = 10_000
)

// untold are the replicas that could not be told their end, and why. Safe for concurrent use.
type untold struct {
	most int
	mu   struct {
		sync.Mutex
		of map[replica]refusal
	}
}

// replica of an extent.
type replica struct {
	extent core.ExtentID
	store  core.HostID
}

// refusal is a reason that came once or more in a row.
type refusal struct {
	why   string
	times int       // since the log was told
	told  time.Time // the log
}

func newUntold() *untold {
	u := &untold{most: maxUntold}
	u.mu.of = make(map[replica]refusal)
	return u
}

// failed notes that a replica was not told. It answers how many times that was so for this reason since the log was
// told; 0: it need not be told again.
func (u *untold) failed(x replica, why string, now time.Time) (times int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was, known := u.mu.of[x]
	if !known && len(u.mu.of) >= u.most {
		u.forgetLocked(now)
	}
	if was.why != why {
		was = refusal{why: why}
	}
	was.times++
	if was.told.IsZero() || now.Sub(was.told) >= tellUntold {
		times, was.times, was.told = was.times, 0, now
	}
	u.mu.of[x] = was
	return times
}

// forgetLocked makes room: of those that nobody tries to tell any more, or of all.
func (u *untold) forgetLocked(now time.Time) {
	for x, r := range u.mu.of {
		if now.Sub(r.told) > 2*tellUntold {
			delete(u.mu.of, x)
		}
	}
	if len(u.mu.of) >= u.most {
		clear(u.mu.of)
	}
}

// told forgets a replica that knows its end.
func (u *untold) told(x replica) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.mu.of, x)
}
