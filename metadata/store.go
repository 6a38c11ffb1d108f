// Package metadata owns the cluster's records – queues, groups, extents, seals, assignments, checkpoints, operations –
// and the rules by which they change. A Store keeps them: in memory, in Pebble, or in another process.
package metadata

import (
	"context"
	"time"
)

// Consistency of a read or of a plain write. With metadata in one place all are the same. Decisions (seal, retire,
// head, operations) read Serial; caches read One.
type Consistency uint8

const (
	One    Consistency = iota // one copy answers, which may be old or lack the row
	Quorum                    // a majority of the copies answers; a change that is under way may be seen or not
	Serial                    // a majority that first finishes changes under way: no change can come before the answer later
)

// Rule says how the rows of a table may change. Rows of one table never change by two rules.
type Rule uint8

const (
	// RuleCAS: Insert creates if absent, Update and Delete compare the version (LWT).
	RuleCAS Rule = iota
	// RulePut: one writer per row; Put and Remove carry a timestamp, the highest wins (equal: the larger bytes).
	RulePut
)

// Table names a kind of record. Key parts must not be empty and hold no zero byte.
type Table struct {
	Name string
	Rule Rule
}

// Key is where a row is: Partition groups the rows that are listed together; Row orders them inside it.
type Key struct {
	Partition string
	Row       string
}

// Version of a CAS row. Insert gives it a first one, about the time in µs since 1970, and each Update adds 1. A row
// that is deleted and inserted again gets a higher version than it had before. 0 means "no such row".
type Version uint64

// Row is a stored record. Value is the caller's to keep.
type Row struct {
	Key     Key
	Value   []byte
	Version Version   // CAS tables
	Written time.Time // timestamp of the last Put; RulePut tables
}

// Limits that every store checks before it does anything.
const (
	MaxValue = 256 << 10 // bytes of a row's value; CodeTooLarge
	MaxKey   = 1 << 10   // bytes of a key's part; CodeBadArgument
)

// Tick is the resolution of a Put's timestamp: stores cut what is finer.
const Tick = time.Microsecond

// Store keeps rows. Safe for concurrent use. Every call ends by ctx's deadline (an implementation adds one of 10 s when
// there is none). Errors: core.CodeNotFound, CodeExists, CodeConflict (the version is another one), CodeUnavailable
// (nothing was done), CodeUnknown (it may have been done: read back, compare the value's attempt id), CodeTooLarge.
type Store interface {
	// Get reads one row; CodeNotFound when there is none.
	Get(ctx context.Context, t Table, k Key, c Consistency) (Row, error)
	// List reads up to limit rows of a partition in order of Row, those after the given one; more says that there are
	// others. A page of large values may hold fewer than limit with more true, never none.
	List(ctx context.Context, t Table, partition, after string, limit int, c Consistency) (rows []Row, more bool, err error)

	// Insert creates a row, CodeExists when there is one. CAS tables.
	Insert(ctx context.Context, t Table, k Key, value []byte) error
	// Update replaces the value of a row at version old. ttl 0 = for ever, also of a row that had an end; else the row is
	// gone when that time is over, as if it was deleted then. Only rows of some tables may get a ttl, see Table.Ends. CAS
	// tables.
	Update(ctx context.Context, t Table, k Key, old Version, value []byte, ttl time.Duration) error
	// Delete removes a row at version old. CAS tables.
	Delete(ctx context.Context, t Table, k Key, old Version) error

	// Put writes a row unless one with a later timestamp is there (that is no error). ttl 0 = for ever. Put tables.
	Put(ctx context.Context, t Table, k Key, value []byte, at time.Time, ttl time.Duration, c Consistency) error
	// PutAll is Put for many rows (Key, Value, Written) with one durable write where the store can. When it fails, some
	// of the rows may be written; an UnstoredError says which ones are, see Unstored. Put tables.
	PutAll(ctx context.Context, t Table, rows []Row, c Consistency) error
	// Remove deletes a row like a Put of nothing at that time; it wins over a Put of the same time. Put tables.
	Remove(ctx context.Context, t Table, k Key, at time.Time, c Consistency) error

	// Watch calls changed after rows of the partition changed, from one goroutine, never concurrently, until ctx ends.
	// At least one call comes after the last change. One call may stand for several changes, and does not say what has
	// changed. A store may poll. No call comes when a row expires. One call comes at the start, so that no change
	// between a first reading and the watch is missed.
	//
	// Watch blocks: the goroutine is the caller's. It returns the error of ctx when ctx ends, and CodeUnavailable when
	// the store closes.
	Watch(ctx context.Context, t Table, partition string, changed func()) error

	// Close releases everything; calls under way end, those after it get CodeUnavailable.
	Close() error
}
