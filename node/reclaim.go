package node

import (
	"context"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/columbamq/columba/internal/lifecycle"
)

const (
	reclaimEvery = 2 * time.Second
	// reclaimFloor is the memory that a process may keep for its next peak.
	reclaimFloor = 256 << 20
	// A process is idle when it allocates less than this part of what it keeps between two looks.
	idleShare = 16
	// mostIdle is how many looks at an idle process pass at most until it is tried again to give memory back: two minutes,
	// after which Go's collector runs in any case.
	mostIdle = 60
)

// reclaimer decides when a process gives memory of a peak back. The collector alone runs when as much again is
// allocated as was live at its last run, so that after a peak the next run may be minutes away, and then it gives pages
// back slowly.
type reclaimer struct {
	allocated uint64 // in all, at the last look
	kept      uint64 // right after memory was given back; that much was live
	idle      int    // looks since then at which the process was idle
	again     int    // so many of them until it is tried again: a peak may have had an idle moment, and what was live then be garbage now
}

// usage is what a process has of memory, in bytes.
type usage struct {
	allocated uint64 // in all, since the start
	resident  uint64 // from the operating system, not given back
}

// due reports whether the process keeps much more than it needs, and is idle: a collection costs time in proportion to
// what is live, and pages that are given back cost time again when they are used, so that a busy process is left to the
// collector.
func (r *reclaimer) due(u usage) bool {
	idle := u.allocated-r.allocated < u.resident/idleShare
	r.allocated = u.allocated
	if !idle || u.resident <= reclaimFloor {
		return false
	}
	if u.resident > r.kept+r.kept/2 {
		r.again = 1
		return true
	}
	r.idle++
	return r.idle >= r.again
}

// gave notes how much memory was given back.
func (r *reclaimer) gave(before, after uint64) {
	r.kept, r.idle = after, 0
	if r.again = min(2*r.again, mostIdle); after < before-before/4 {
		r.again = 2
	}
}

// reclaim gives memory back after peaks until ctx ends.
func reclaim(ctx context.Context, log *slog.Logger) {
	r := &reclaimer{allocated: memoryUsage().allocated}
	lifecycle.Every(ctx, reclaimEvery, func(context.Context) {
		before := memoryUsage()
		if !r.due(before) {
			return
		}
		began := time.Now()
		debug.FreeOSMemory()
		r.gave(before.resident, memoryUsage().resident)
		log.Debug("memory of a peak is given back", "before", before.resident, "after", r.kept, "took", time.Since(began))
	})
}

func memoryUsage() usage {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return usage{allocated: s[0].Value.Uint64(), resident: s[1].Value.Uint64() - s[2].Value.Uint64()}
}
