// Package extentlog owns the replicas of extents on one store's disk: headers, batches, fences and ends.
package extentlog

import (
	"context"

	"github.com/columbamq/columba/core"
)

// State is the state of one extent in the log.
type State struct {
	Extent    core.Extent
	Header    core.StoreIdentity // who wrote the header; its run is zero when there is none (fenced before opened)
	Opened    bool               // a header is there
	Fenced    bool
	Sealed    bool     // L is known …
	L         core.Seq // … and is this
	Last      core.Seq // last durable seq
	Committed core.Seq // highest committed seq heard of, in memory (and as of the last durable append)
	Checksum  uint32   // rolling, at Last
	Bytes     uint64
	Damaged   bool   // a checksum failed, or I/O errors persist: answers are suspect, reads are refused; until Verify finds it whole or it is removed
	Why       string // it is damaged
	Diverged  bool   // damaged, since its bytes are sound but other than its peers': Verify does not help
	Version   uint64 // highest version of the extent's holders that the store was told
}

// Appended is called once per Append, from the log's own goroutine, in order per extent: durable is the new last
// durable seq, or err says why the batch was not stored. It must not block. After a failure of the log, the errors of
// waiting batches may come from another goroutine, and before answers that were on their way.
type Appended func(durable core.Seq, err error)

// Log keeps the extents of a store. Safe for concurrent use; appends to one extent come from one goroutine. Errors from
// the catalogue: CodeFenced, CodeGap (base ≠ last+1), CodeExists, CodeNotFound, CodeCorrupt, CodeConflict,
// CodeUnavailable (closed), CodeNoSpace, CodeReadOnly.
type Log interface {
	// Identity of the directory and of this run.
	Identity() core.StoreIdentity
	// Open writes the extent's header durably. CodeExists: the log has a header of the extent. CodeFenced, for ever: it
	// has a fence, or had the extent before it was removed.
	Open(e core.Extent) error
	// Append stores one batch, whose bytes must stay unchanged until done is called; durable before done(…, nil). The log
	// checks base and the rolling checksum; the caller has checked the records. committed is kept for readers.
	Append(id core.ExtentID, batch []byte, committed core.Seq, done Appended)
	// AwaitRoom waits, until ctx ends at most, while so many bytes wait for the disk that appends may be refused soon.
	// A reader of a connection calls it before it reads on. So a disk that hangs for a moment ends no extent.
	AwaitRoom(ctx context.Context)
	// Commit records a committed seq (not durable by itself) and wakes followers.
	Commit(id core.ExtentID, committed core.Seq)
	// Fence makes the log refuse all further appends of the extent, durably and for ever, and returns the state after
	// it. Last includes every append that is answered without an error, before or after the fence. Fence overtakes
	// appends that wait for the disk; they are refused with CodeFenced. An unknown extent is registered from e. A
	// removed extent comes back only with a version of its holders above that of the removal, else CodeConflict.
	// Idempotent.
	Fence(e core.Extent, version uint64) (State, error)
	// Seal persists the end seq L of a fenced extent, and truncates the records beyond it. CodeIncomplete when Last <
	// L, CodeConflict when another L is known or L is below the known committed seq, CodeCorrupt when the checksum at L
	// differs (nothing is truncated then). The highest version of the holders is persisted, too, also on an extent that
	// is sealed already, and when a fenced extent cannot get this end.
	Seal(id core.ExtentID, l core.Seq, checksum uint32, version uint64) error
	// Copy appends batches fetched from a peer to a fenced, unsealed extent (or below a known L), at last+1 only, all or
	// none; the new last seq is durable on return.
	Copy(id core.ExtentID, batches []byte) (core.Seq, error)
	// Read returns whole batches from the one that holds from, at least one if there is any, up to maxBytes, none beyond
	// upTo (a batch that straddles upTo is left out unless upTo is a batch end). The bytes are verified; the caller may
	// keep them as long as it likes and must not change them, since other readers share them.
	Read(id core.ExtentID, from, upTo core.Seq, maxBytes int) ([]byte, error)
	// Due yields records of a timer extent in the order in which they are due, verified. It may have to rebuild the
	// index first, part by part: then DueRun.More is set and no record is yielded. CodeBadArgument for an extent of
	// another kind.
	Due(id core.ExtentID, q DueQuery, yield func(DueRecord)) (DueRun, error)
	// Seek is the first seq whose batch was appended at or after unix µs t; last+1 when there is none.
	Seek(id core.ExtentID, t int64) (core.Seq, error)
	// Verify reads every byte of a replica. It quarantines one whose checksums fail, and lifts the quarantine of one that
	// it finds whole, unless its records are other than its peers'. CodeUnavailable and CodeDeadline: nothing is decided.
	Verify(ctx context.Context, id core.ExtentID) (Verified, error)
	// State of one extent; CodeNotFound.
	State(id core.ExtentID) (State, error)
	// List calls yield for every extent, in order of id.
	List(yield func(State) bool) error
	// Follow calls wake (which must not block) after the durable, committed, fence or seal state of the extent changed,
	// until stop.
	Follow(id core.ExtentID, wake func()) (stop func())
	// Vitals returns the health of the log; cheap.
	Vitals() Vitals
	// Inventory answers which replicas changed, in memory alone.
	Inventory(q InventoryQuery) Inventory
	// Remove forgets the extent and gives its space back. version is that of the holders for which the removal was
	// decided; it must be the one that Seal told last. CodeConflict for another version, for an extent that takes appends,
	// and for one that was never told an end, or is not here. The log remembers the removal. So Remove is idempotent: no
	// CodeConflict for an extent that was removed by that version or a newer one.
	Remove(id core.ExtentID, version uint64) error
	// Failed is closed once the log has failed to write: it takes nothing more, answers everything that waits, and goes
	// on reading. The writes under way may be on the disk or not; the next Open of the directory finds out. The cause
	// is what all calls answer.
	Failed() <-chan struct{}
	// Probe writes, syncs and removes a small file beside the log: whether it is worth while to open a failed log anew. It
	// may hang with the disk.
	Probe() error
	// Close syncs and releases; appends waiting are answered first. A log that has failed is cut off from its files; so is
	// one whose disk hangs, and Close takes a minute at most. It may answer ErrHangs: the directory must not be opened
	// again by this process; or ErrLeft: it can be, but some memory is lost.
	Close() error
}
