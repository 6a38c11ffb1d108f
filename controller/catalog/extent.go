// Package catalog owns what a controller knows of extents, stores and shares: a cache of their rows and answers, with
// the sets that rounds ask for, and the lists that output hosts are sent. It reads nothing by itself; the seal row of
// an extent, the answer of a store, and the newest assignment of a share are the truth.
package catalog

import (
	"slices"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Extent is a live extent as this controller knows it. The seal row is the truth; this is its cache.
type Extent struct {
	metadata.ExtentRecord
	State    core.ExtentState
	Floor    core.Seq
	L        core.Seq
	Bytes    uint64 // up to its end
	Checksum uint32
	Version  uint64
	Kept     time.Time    // from when on retention counts; zero: it has no end
	Forced   bool         // an operator accepted its end
	Holders  []core.Place // replaced, never changed in place
	Told     bool         // every holder of the seal knows the end
	Home     core.Home    // who reads it now; that of ExtentRecord is who did at first
	Rate     int          // of those, messages per second; 0: no bound
	Removed  uint64       // messages that selections took of it
	LostFrom core.Seq     // what begins here is on no store any more, and was given up; 0: nothing was
	HeldTo   core.Seq     // how far a holder has it at least …
	HeldSum  uint32       // … its rolling checksum there …
	Spent    bool         // … and whether there is nothing of it to be held
	Released bool         // by the minority that made it: its shares may have owners
	Made     bool         // by this controller, which has written its rows: it may be given to a writer
}

// Reader is the queue whose groups read the extent; of one that nobody reads, its own.
func (e Extent) Reader() core.QueueID {
	if queue, ok := e.Home.Reader(e.Queue); ok {
		return queue
	}
	return e.Queue
}

// Copies is how many copies there should be.
func (e Extent) Copies() int { return max(e.Wanted, len(e.Replicas)) }

// Holds reports whether a store is a holder.
func (e Extent) Holds(id core.HostID) bool {
	return slices.ContainsFunc(e.Holders, func(x core.Place) bool { return x.Store == id })
}

// Took is e with what the row says, unless e knows better already: rows may be read late.
func (e Extent) Took(row metadata.SealRecord) Extent {
	if e.State.HasEnd() && !row.State.HasEnd() || row.Version < e.Version || e.State == core.ExtentRetired {
		return e
	}
	e.State, e.Floor, e.L, e.Bytes, e.Checksum, e.Version, e.Forced = row.State, row.Floor, row.L, row.Bytes, row.Checksum, row.Version, row.Forced
	e.Holders, e.Kept, e.Home, e.Rate, e.Removed = row.Places(), row.KeptFrom(), row.Home, row.Rate, row.RemovedCount
	e.LostFrom = row.LostFrom
	last, sum, some := row.HeldTo()
	e.HeldTo, e.HeldSum, e.Spent = last, sum, !some
	return e
}

// Alike reports whether its readers need to know nothing new.
func (e Extent) Alike(o Extent) bool {
	return e.State == o.State && e.L == o.L && e.Version == o.Version && e.Home == o.Home && e.Rate == o.Rate && e.Removed == o.Removed && e.LostFrom == o.LostFrom
}

// Due is by when all of a timer extent with an end is due.
func (e Extent) Due() time.Time {
	if e.Kind != core.KindTimer {
		return time.Time{}
	}
	return e.Kept
}

// Leaving reports whether the extent is being retired: a group that begins now gets nothing of it.
func (e Extent) Leaving() bool {
	return e.State == core.ExtentRetiring || e.State == core.ExtentRetired
}

// EndedBefore reports whether the end of the extent is known to have been fixed before an instant: all of its messages
// were published before.
func (e Extent) EndedBefore(at time.Time) bool {
	return !e.Kept.IsZero() && e.Kept.Before(at)
}

// Belies reports whether a replica cannot be that of a holder: it is damaged, or has other records than the row says.
func (e Extent) Belies(r *pb.Replica) bool {
	last := core.Seq(r.Last)
	return r.Damaged || last < e.HeldTo || r.Sealed && last == e.HeldTo && r.Checksum != e.HeldSum || r.Sealed && last == e.L && r.Checksum != e.Checksum
}
