package extentlog

import "sync/atomic"

// hurry is when somebody waits for tables, or soon will. What the log takes does not tell: it takes nothing while it waits.
type hurry struct {
	opening atomic.Bool // the database makes tables of what its logs hold
	behind  atomic.Bool // several memtables are written together
	stalled atomic.Bool // no memtable is free
}

func (h *hurry) now() bool { return h.opening.Load() || h.behind.Load() || h.stalled.Load() }
