package writer

import (
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Chunk is a run of records of one publisher's stream: appended together, answered together. Its bytes stay unchanged
// until it is answered, and longer while they are held.
type Chunk struct {
	Records []byte // encoded and checked
	Hold    Holder // keeps Records
	Count   uint32
	First   uint64 // the publisher's number of the first record
	Arrived time.Time
	From    Publisher
	Part    *Part // nil: it is all that came together, for a log extent
}

// Part is what a chunk has besides when its records are not all that came together, or are timed.
type Part struct {
	Runs []Run // the publisher's numbers of the records, in their order
	Due  int64 // when the last of them is due, in unix ms; 0: they are not for a timer extent
}

// Run is a run of a publisher's numbers.
type Run struct {
	First uint64
	Count uint32
}

// Holder is a reference-counted buffer.
type Holder interface {
	Retain()
	Release()
}

// Publisher is told, exactly once, what became of each of its chunks. Calls come from any goroutine and must not block.
type Publisher interface {
	Answer(c Chunk, o Outcome)
	// Gone reports that nobody waits for answers any more: what was not appended yet never will be.
	Gone() bool
}

// Outcome of a chunk. Extent and Base are set with wire.AckOK, Code otherwise.
type Outcome struct {
	Status wire.AckStatus
	Extent core.ExtentID
	Base   core.Seq
	Code   core.Code
}

// Refused is the outcome of what was definitely not appended.
func Refused(code core.Code) Outcome { return Outcome{Status: wire.AckRefused, Code: code} }

// Unknown is the outcome of what may or may not be in the extent.
func Unknown() Outcome { return Outcome{Status: wire.AckUnknown, Code: core.CodeUnknown} }
