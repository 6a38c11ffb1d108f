package controller

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// extent is a live extent as this controller knows it. The seal row is the truth; this is its cache.
type extent struct {
	metadata.ExtentRecord
	state    core.ExtentState
	floor    core.Seq
	l        core.Seq
	bytes    uint64 // up to its end
	checksum uint32
	version  uint64
	kept     time.Time    // from when on retention counts; zero: it has no end
	forced   bool         // an operator accepted its end
	holders  []core.Place // replaced, never changed in place
	told     bool         // every holder of the seal knows the end
	home     core.Home    // who reads it
	rate     int          // of those, messages per second; 0: no bound
	removed  uint64       // messages that selections took of it
	lostFrom core.Seq     // what begins here is on no store any more, and was given up; 0: nothing was
	heldTo   core.Seq     // how far a holder has it at least …
	heldSum  uint32       // … its rolling checksum there …
	spent    bool         // … and whether there is nothing of it to be held
}

// reader is the queue whose groups read the extent; of one that nobody reads, its own.
func (e extent) reader() core.QueueID {
	if queue, ok := e.home.Reader(e.Queue); ok {
		return queue
	}
	return e.Queue
}

// wanted is how many copies there should be.
func (e extent) wanted() int { return max(e.Wanted, len(e.Replicas)) }

// holds reports whether a store is a holder.
func (e extent) holds(id core.HostID) bool {
	return slices.ContainsFunc(e.holders, func(x core.Place) bool { return x.Store == id })
}

// took is e with what the row says, unless e knows better already: rows may be read late.
func (e extent) took(row metadata.SealRecord) extent {
	if e.state.HasEnd() && !row.State.HasEnd() || row.Version < e.version || e.state == core.ExtentRetired {
		return e
	}
	e.state, e.floor, e.l, e.bytes, e.checksum, e.version, e.forced = row.State, row.Floor, row.L, row.Bytes, row.Checksum, row.Version, row.Forced
	e.holders, e.kept, e.home, e.rate, e.removed = row.Places(), row.KeptFrom(), row.Home, row.Rate, row.RemovedCount
	e.lostFrom = row.LostFrom
	last, sum, some := row.HeldTo()
	e.heldTo, e.heldSum, e.spent = last, sum, !some
	return e
}
