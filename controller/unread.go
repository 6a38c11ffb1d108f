package controller

import (
	"context"
	"log/slog"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// unread are the work hints, seal rows and create rows that could not be decoded when they were read last. Readings of
// many rows leave them out, so that a damaged row holds up its own extent alone. Safe for concurrent use.
type unread struct {
	log   *slog.Logger
	count prometheus.Gauge
	mu    struct {
		sync.Mutex
		rows    map[tableKey]uint64 // with the reading of all rows that left them out, or the last one before
		reading uint64
	}
}

type tableKey struct {
	table string
	metadata.Key
}

func newUnread(log *slog.Logger, count prometheus.Gauge) *unread {
	u := &unread{log: log, count: count}
	u.mu.rows = make(map[tableKey]uint64)
	return u
}

// skips reports whether err says that a row that was read is to be left out. The first time it is logged. A row that is
// read without an error counts no more.
func (u *unread) skips(t metadata.Table, k metadata.Key, err error) bool {
	skip := core.CodeOf(err) == core.CodeCorrupt && k != metadata.Key{}
	if err != nil && !skip {
		return skip
	}
	u.mu.Lock()
	key := tableKey{t.Name, k}
	_, was := u.mu.rows[key]
	if skip {
		u.mu.rows[key] = u.mu.reading
	} else if was {
		delete(u.mu.rows, key)
	}
	n := len(u.mu.rows)
	u.mu.Unlock()
	if skip == was {
		return skip
	}
	follows := "its extent is left out"
	if t == metadata.Extents {
		follows = "its extent goes on by its hint or seal row, or else is left out"
	}
	if u.count.Set(float64(n)); skip {
		u.log.Error("a row of the metadata cannot be decoded: it is damaged, or a newer version wrote it; "+follows+", and all others go on; upgrade this controller, or restore the row",
			"table", t.Name, "row", k.Row, "err", err)
	}
	return skip
}

// has reports whether a row was left out.
func (u *unread) has(t metadata.Table, k metadata.Key) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, out := u.mu.rows[tableKey{t.Name, k}]
	return out
}

// begin notes that a reading of all rows begins, and returns its number.
func (u *unread) begin() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.reading++
	return u.mu.reading
}

// end notes that a reading of all rows has come to its end. Rows that it has not met are not there any more, and count
// no more. It meets no create rows, see recheck.
func (u *unread) end(reading uint64) {
	u.mu.Lock()
	maps.DeleteFunc(u.mu.rows, func(k tableKey, met uint64) bool { return met < reading && k.table != metadata.Extents.Name })
	n := len(u.mu.rows)
	u.mu.Unlock()
	u.count.Set(float64(n))
}

// forget removes a row that is not there any more.
func (u *unread) forget(k tableKey) {
	u.mu.Lock()
	delete(u.mu.rows, k)
	n := len(u.mu.rows)
	u.mu.Unlock()
	u.count.Set(float64(n))
}

// createRows are the create rows that were left out.
func (u *unread) createRows() (out []tableKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for k := range u.mu.rows {
		if k.table == metadata.Extents.Name {
			out = append(out, k)
		}
	}
	return out
}

// recheck reads the create rows again that were left out, since a reading of all extents meets none of them.
func (h *Host) recheck(ctx context.Context) {
	for _, k := range h.unread.createRows() {
		row, err := h.deps.Meta.Get(ctx, metadata.Extents, k.Key, metadata.Quorum)
		switch {
		case err == nil:
			_, err = metadata.DecodeExtent(metadata.Extents, row)
			h.unread.skips(metadata.Extents, k.Key, err)
		case core.CodeOf(err) == core.CodeNotFound:
			h.unread.forget(k)
		default:
			return // the next reading goes on
		}
	}
}

// tellDamage remembers and logs a create row that cannot be decoded. A row that is whole counts no more.
func (h *Host) tellDamage(r metadata.ExtentRow) { h.unread.skips(metadata.Extents, r.Key, r.Damage) }
