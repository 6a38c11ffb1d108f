package core

import "slices"

// ExtentKind says how an extent is read.
type ExtentKind string

const (
	KindLog   ExtentKind = "log"
	KindTimer ExtentKind = "timer"
)

// MaxTimerRecords is how many records a timer extent holds at most: what a group has done of them, in any order, is a
// window of this width.
const MaxTimerRecords = 131_072

// Extent is the immutable tuple of an extent: a replicated append-only log with one writer for its whole life.
type Extent struct {
	ID         ExtentID    `json:"id"`
	Queue      QueueID     `json:"queue"`
	Kind       ExtentKind  `json:"kind"`
	Durability Durability  `json:"durability"`
	Input      HostID      `json:"input"`     // the writer's host …
	InputRun   RunID       `json:"input_run"` // … and its run: another run of it never writes here
	Token      WriterToken `json:"token"`
	Replicas   []HostID    `json:"replicas"` // store hosts
	// Disks of the replicas, in their order. A zero one was not known when the extent was made; nil: none was.
	Disks []DiskID `json:"disks,omitempty"`
	// Chain is the extent's place in the chain of a CP queue, from 1; 0 in an AP queue.
	Chain uint64 `json:"chain,omitempty"`
	// Horizon of a timer extent; a log extent has none.
	Horizon Horizon `json:"horizon,omitempty"`
}

// Disk of a replica; zero when it is not known or the store is none of the extent's replicas.
func (e Extent) Disk(store HostID) DiskID {
	if i := slices.Index(e.Replicas, store); i >= 0 && i < len(e.Disks) {
		return e.Disks[i]
	}
	return DiskID{}
}

// Equal compares whole tuples.
func (e Extent) Equal(o Extent) bool {
	return e.ID == o.ID && e.Queue == o.Queue && e.Kind == o.Kind && e.Durability == o.Durability &&
		e.Input == o.Input && e.InputRun == o.InputRun && e.Token == o.Token && slices.Equal(e.Replicas, o.Replicas) && slices.Equal(e.Disks, o.Disks) && e.Chain == o.Chain &&
		e.Horizon == o.Horizon
}

// ExtentState is where an extent is in its life:
//
//	open ──seal asked──▶ sealing ──L decided (CAS)──▶ sealed ──all consumed──▶ retiring ──▶ retired
//	                                                   ▲────a group needs it────┘
type ExtentState string

const (
	ExtentOpen     ExtentState = "open"
	ExtentSealing  ExtentState = "sealing"
	ExtentSealed   ExtentState = "sealed"
	ExtentRetiring ExtentState = "retiring"
	ExtentRetired  ExtentState = "retired"
)

// HasEnd reports whether the last seq is fixed for ever.
func (s ExtentState) HasEnd() bool {
	return s == ExtentSealed || s == ExtentRetiring || s == ExtentRetired
}

// StoreIdentity is which disk under which name, in which run.
type StoreIdentity struct {
	Store HostID `json:"store"`
	Disk  DiskID `json:"disk"`
	Run   RunID  `json:"run"`
}

// Place is where a copy is: a disk of a store. A zero disk is not known: any disk of the store counts.
type Place struct {
	Store HostID
	Disk  DiskID
}

// Same reports whether both may be one place.
func (p Place) Same(q Place) bool {
	return p.Store == q.Store && (p.Disk.IsZero() || q.Disk.IsZero() || p.Disk == q.Disk)
}

// Health grades a store's answer to a fence.
type Health string

const (
	HealthOK      Health = "ok"
	HealthWeak    Health = "weak"    // the header is of another run, or there is none
	HealthSuspect Health = "suspect" // wrong identity, damage, or it knows a committed seq above its own last
)

// FenceAnswer is the state of a fenced replica, as its store reports it. After it, the store never acknowledges an
// append above Last.
type FenceAnswer struct {
	Identity  StoreIdentity `json:"identity"`
	Health    Health        `json:"health"`
	Absent    bool          `json:"absent"` // never heard of the extent before this fence
	Last      Seq           `json:"last"`   // last durable seq
	Committed Seq           `json:"committed"`
	Checksum  uint32        `json:"checksum"` // rolling, at Last
	Bytes     uint64        `json:"bytes"`    // of batches up to Last
	Sealed    bool          `json:"sealed"`   // it persisted an L already …
	L         Seq           `json:"l"`        // … this one
}
