// Package metadata owns the cluster's records – queues, groups, extents, seals, assignments, checkpoints, hosts,
// leases, operations – and the rules by which they change. Where they rest is a Store: in memory, in Pebble, behind
// another process, in Cassandra.
package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// Consistency of a read or of a plain write. Decisions (seal, retire, head, operations) read Serial; caches read One.
type Consistency uint8

const (
	One Consistency = iota
	Quorum
	Serial
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

// Version is the count of changes of a CAS row: 1 after Insert. 0 means "no such row".
type Version uint64

// Row is a stored record. Value is the caller's to keep.
type Row struct {
	Key     Key
	Value   []byte
	Version Version   // CAS tables
	Written time.Time // timestamp of the last Put; RulePut tables
}

// MaxValue bounds a row's value in bytes.
const MaxValue = 256 << 10

// Store keeps rows. Safe for concurrent use. Every call ends by ctx's deadline (an implementation adds one of 10 s when
// there is none). Errors: core.CodeNotFound, CodeExists, CodeConflict (the version is another one), CodeUnavailable
// (nothing was done), CodeUnknown (it may have been done: read back, compare the value's attempt id), CodeTooLarge.
type Store interface {
	// Get reads one row; CodeNotFound when there is none.
	Get(ctx context.Context, t Table, k Key, c Consistency) (Row, error)
	// List reads up to limit rows of a partition in order of Row, those after the given one; more says that there are others.
	List(ctx context.Context, t Table, partition, after string, limit int, c Consistency) (rows []Row, more bool, err error)

	// Insert creates a row, CodeExists when there is one. CAS tables.
	Insert(ctx context.Context, t Table, k Key, value []byte) error
	// Update replaces the value of a row at version old. CAS tables.
	Update(ctx context.Context, t Table, k Key, old Version, value []byte) error
	// Delete removes a row at version old. CAS tables.
	Delete(ctx context.Context, t Table, k Key, old Version) error

	// Put writes a row unless one with a later timestamp is there (that is no error). ttl 0 = for ever. Put tables.
	Put(ctx context.Context, t Table, k Key, value []byte, at time.Time, ttl time.Duration, c Consistency) error
	// PutAll is Put for many rows with one durable write where the store can. Put tables.
	PutAll(ctx context.Context, t Table, rows []Row, c Consistency) error
	// Remove deletes a row like a Put of nothing at that time. Put tables.
	Remove(ctx context.Context, t Table, k Key, at time.Time, c Consistency) error

	// Watch calls changed (from one goroutine, never concurrently) after rows of the partition changed, at least once after the
	// last change, and until ctx ends. Changes may be folded; it says that, not what. Polling is allowed.
	Watch(ctx context.Context, t Table, partition string, changed func()) error

	// Close releases everything; calls under way end with CodeUnavailable.
	Close() error
}

// The tables. Their records are in the files named for them.
var (
	Names       = Table{"name", RuleCAS}       // ("path", path) → NameRecord
	Queues      = Table{"queue", RuleCAS}      // ("id", queue id) → QueueRecord
	Groups      = Table{"group", RuleCAS}      // (queue id, group name) → GroupRecord
	Extents     = Table{"extent", RulePut}     // (queue id, extent id) → ExtentRecord, written once
	Seals       = Table{"seal", RuleCAS}       // ("id", extent id) → SealRecord
	Work        = Table{"work", RulePut}       // ("open" | "live", extent id) → ExtentRecord: hints for controllers: not sealed yet | not retired yet
	Assignments = Table{"assignment", RulePut} // (group id, extent id/counter/by) → AssignmentRecord, never updated, the highest wins
	Dones       = Table{"done", RulePut}       // (group id, extent id) → DoneRecord: the group has consumed the extent
	Checkpoints = Table{"checkpoint", RulePut} // (group id/extent id, epoch/owner run id) → blob of core/dispatch
	Hosts       = Table{"host", RulePut}       // ("host", host id) → HostRecord
	Leases      = Table{"lease", RuleCAS}      // ("lease", name) → LeaseRecord
	Operations  = Table{"operation", RuleCAS}  // ("operation", id) → OperationRecord
	Audit       = Table{"audit", RulePut}      // (day, id) → AuditRecord
	Settings    = Table{"setting", RuleCAS}    // ("cluster", name) → cluster-wide settings and keys
)

// NameRecord maps a path to a queue. It carries the whole spec, so that a half-made queue can be finished.
type NameRecord struct {
	Queue core.QueueID   `json:"queue"`
	Spec  core.QueueSpec `json:"spec"`
}

// QueueRecord is a queue's spec under its id.
type QueueRecord struct {
	ID      core.QueueID   `json:"id"`
	Spec    core.QueueSpec `json:"spec"`
	Created time.Time      `json:"created"`
	// Owner is the group of a built-in queue (dead letters, retry); zero for users' queues.
	Owner core.GroupID `json:"owner,omitzero"`
}

// GroupRecord is a consumer group under its queue and name.
type GroupRecord struct {
	ID      core.GroupID   `json:"id"`
	Queue   core.QueueID   `json:"queue"`
	Spec    core.GroupSpec `json:"spec"`
	Created time.Time      `json:"created"`
	Epoch   uint64         `json:"epoch"` // raised by each rewind; checkpoints of others are ignored
	DLQ     core.QueueID   `json:"dlq"`
}

// ExtentRecord is the immutable create row of an extent.
type ExtentRecord struct {
	core.Extent
	Created time.Time `json:"created"`
}

// SealRecord is the state of an extent; it changes by CAS only, always.
type SealRecord struct {
	Extent   core.Extent      `json:"extent"` // a seal must not need the create row
	State    core.ExtentState `json:"state"`
	Floor    core.Seq         `json:"floor"`
	L        core.Seq         `json:"l"`
	Checksum uint32           `json:"checksum"`
	Bytes    uint64           `json:"bytes"`
	Holders  []core.HostID    `json:"holders"`
	Home     string           `json:"home"`    // "own" unless a merge or purge moved it
	Reason   string           `json:"reason"`  // why it was sealed
	Attempt  core.ID          `json:"attempt"` // of the last change, to recognise one's own after a lost answer
	Changed  time.Time        `json:"changed"`
}

// AssignmentRecord gives a (group, extent) to an output host.
type AssignmentRecord struct {
	Group   core.GroupID `json:"group"`
	Queue   core.QueueID `json:"queue"`
	Name    string       `json:"name"` // of the group
	Extent  core.Extent  `json:"extent"`
	Counter uint64       `json:"counter"`
	By      core.HostID  `json:"by"`
	Owner   core.HostID  `json:"owner"`
	Run     core.RunID   `json:"run"`
}

// HostRecord is a host's heartbeat.
type HostRecord struct {
	ID      core.HostID `json:"id"`
	Roles   []string    `json:"roles"`
	Address string      `json:"address"`
	Zone    string      `json:"zone"`
	Run     core.RunID  `json:"run"`
	State   string      `json:"state"`
}

// DoneRecord says that a group has consumed a sealed extent to its end.
type DoneRecord struct {
	L     core.Seq `json:"l"`
	Epoch uint64   `json:"epoch"` // of the group, when it did; a rewind makes it void
}
