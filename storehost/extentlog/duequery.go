package extentlog

import (
	"math"
	"slices"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
)

// DueKey is a record's place in the order of a timer extent: by due time, unix ms, then by seq.
type DueKey struct {
	At  int64
	Seq core.Seq
}

// Beyond reports whether k comes after o.
func (k DueKey) Beyond(o DueKey) bool { return k.At > o.At || k.At == o.At && k.Seq > o.Seq }

// DueThrough is the last place of what is due at or before a time.
func DueThrough(at int64) DueKey { return DueKey{at, math.MaxUint64} }

// DueQuery asks for records of a timer extent in the order in which they are due.
type DueQuery struct {
	After    DueKey           // those beyond it …
	Until    int64            // … that are due at or before, unix ms …
	UpTo     core.Seq         // … of seqs up to this …
	Known    *acklevel.Window // … but these
	MaxBytes int              // to look at before it stops; at least one record is looked at
	Start    DueStart         // of the run before, that ended at After
}

// DueRecord is valid during the call that yields it.
type DueRecord struct {
	DueKey
	Enqueued int64 // its batch's append time, unix µs
	Record   []byte
}

// DueRun says how far a query came.
type DueRun struct {
	Passed DueKey   // every record up to here was looked at
	More   bool     // it stopped at MaxBytes, or is not ready: ask on from Passed
	Next   int64    // when the first record behind Until is due, unix ms; NeverDue: there is none, or More
	Start  DueStart // where the index holds what is beyond Passed
}

// DueStart is where the index of an extent holds what a query did not pass, but for what is added later: see Lower. The
// zero DueStart does not know.
type DueStart struct {
	From DueKey    // in rows that begin there or beyond …
	Open []OpenRow // … and in these, that begin before it
}

// OpenRow is a row of the index that a query did not pass whole.
type OpenRow struct {
	First DueKey // where the row begins
	left  dueRow // what is left of it; without a record if it has to be read again
}

// Lower has a query look at rows from a place on, too.
func (s *DueStart) Lower(to DueKey) {
	if !s.From.Beyond(to) {
		return
	}
	s.From = to
	s.Open = slices.DeleteFunc(s.Open, func(r OpenRow) bool { return !to.Beyond(r.First) })
}

// IndexFrom is where the index may begin to hold what is due at a time.
func IndexFrom(at int64) DueKey { return DueKey{At: max(at-dueSpan+1, 0)} }

// NeverDue is when a record is due that is not there.
const NeverDue = math.MaxInt64
