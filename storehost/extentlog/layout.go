package extentlog

import (
	"encoding/binary"
	"encoding/json"

	"github.com/columbamq/columba/core"
)

// Layout of the directory's one key space:
//
//	e ‖ extent(16) ‖ base seq(8, big endian)  → batch, the bytes as they came
//	t ‖ extent(16) ‖ due(8) ‖ seq(8)          → append time, record: of timer extents, written with their batches
//	p ‖ extent(16)                            → position: last, committed, bytes, checksum; written with the batches it speaks of
//	x ‖ extent(16)                            → row: tuple, header, fence, end
//	d ‖ extent(16)                            → tombstone of a removed extent: when, by which version of its holders
//	m ‖ "f", m ‖ "i", m ‖ "h"                 → format version, 1 byte; disk id(16) ‖ store id; horizon, unix ms u64
//	m ‖ "s"                                   → where the background verification stands
//	m ‖ "k"                                   → key of the secrets of the log, 32 bytes
//	m ‖ "l"                                   → up to when extents were made that lost rows may tell of, unix ms u64
const (
	prefixBatch     = 'e'
	prefixPosition  = 'p'
	prefixRow       = 'x'
	prefixTombstone = 'd'
	prefixMeta      = 'm'

	// FormatVersion is the newest layout of a directory that this build writes and reads. Before 2, the log was that of
	// the database.
	FormatVersion = 2
	rowVersion    = 1 // of each row

	idLen       = len(core.ID{})
	positionLen = 1 + 8 + 8 + 8 + 4

	timerPositionVersion = 2
	timerPositionLen     = positionLen + 8
)

var (
	keyFormat   = []byte{prefixMeta, 'f'}
	keyIdentity = []byte{prefixMeta, 'i'}
	keyHorizon  = []byte{prefixMeta, 'h'}
	keyScrub    = []byte{prefixMeta, 's'}
	keySecret   = []byte{prefixMeta, 'k'}
	keyLost     = []byte{prefixMeta, 'l'}
)

func extentKey(prefix byte, id core.ExtentID) []byte {
	return append([]byte{prefix}, id.ID[:]...)
}

const (
	extentKeyLen = 1 + idLen
	batchKeyLen  = extentKeyLen + 8
)

func putExtentKey(key []byte, prefix byte, id core.ExtentID) {
	key[0] = prefix
	copy(key[1:], id.ID[:])
}

func putBatchKey(key []byte, id core.ExtentID, base core.Seq) {
	putExtentKey(key, prefixBatch, id)
	binary.BigEndian.PutUint64(key[extentKeyLen:], uint64(base))
}

func batchKey(id core.ExtentID, base core.Seq) []byte {
	key := make([]byte, batchKeyLen)
	putBatchKey(key, id, base)
	return key
}

// afterExtent is the first key behind all keys of the extent with that prefix.
func afterExtent(prefix byte, id core.ExtentID) []byte {
	key := extentKey(prefix, id)
	for i := len(key) - 1; i >= 0; i-- {
		key[i]++
		if key[i] != 0 {
			break
		}
	}
	return key
}

// position is what each group of appends leaves behind for its extents.
type position struct {
	last      core.Seq
	committed core.Seq
	bytes     uint64
	checksum  uint32
	indexed   core.Seq // of a timer extent: the index holds all up to here
}

// put writes: version u8 | last u64 | committed u64 | bytes u64 | checksum u32, little endian; of a timer extent, by
// the length of b, another version, and indexed u64 behind it.
func (p position) put(b []byte) {
	b[0] = rowVersion
	if len(b) == timerPositionLen {
		b[0] = timerPositionVersion
		binary.LittleEndian.PutUint64(b[positionLen:], uint64(p.indexed))
	}
	binary.LittleEndian.PutUint64(b[1:], uint64(p.last))
	binary.LittleEndian.PutUint64(b[9:], uint64(p.committed))
	binary.LittleEndian.PutUint64(b[17:], p.bytes)
	binary.LittleEndian.PutUint32(b[25:], p.checksum)
}

func decodePosition(b []byte) (position, error) {
	var indexed core.Seq
	switch {
	case len(b) == timerPositionLen && b[0] == timerPositionVersion:
		indexed = core.Seq(binary.LittleEndian.Uint64(b[positionLen:]))
	case len(b) != positionLen || b[0] != rowVersion:
		return position{}, core.Errorf(core.CodeCorrupt, "position row of %d bytes is not of version %d", len(b), rowVersion)
	}
	return position{
		indexed:   indexed,
		last:      core.Seq(binary.LittleEndian.Uint64(b[1:])),
		committed: core.Seq(binary.LittleEndian.Uint64(b[9:])),
		bytes:     binary.LittleEndian.Uint64(b[17:]),
		checksum:  binary.LittleEndian.Uint32(b[25:]),
	}, nil
}

// row is the part of an extent's state that changes a few times in its life.
type row struct {
	Extent  core.Extent        `json:"extent"`
	Header  core.StoreIdentity `json:"header"`
	Opened  bool               `json:"opened,omitempty"`
	Fenced  bool               `json:"fenced,omitempty"`
	Sealed  bool               `json:"sealed,omitempty"`
	L       core.Seq           `json:"l,omitempty"`
	SealSum uint32             `json:"seal_sum,omitempty"` // rolling checksum that the replica must have at L
	Damaged bool               `json:"damaged,omitempty"`
	Version uint64             `json:"version,omitempty"` // highest one of the holders heard of

	Why      string `json:"why,omitempty"`      // it is damaged
	Diverged bool   `json:"diverged,omitempty"` // damaged, since its sound bytes are other than its peers'
}

// encode is a version byte and JSON: rows are few and written rarely, and must be readable in ten years.
func (r row) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, core.Errorf(core.CodeInternal, "encode the row of extent %s: %w", r.Extent.ID, err)
	}
	return append([]byte{rowVersion}, b...), nil
}

func decodeRow(b []byte) (row, error) {
	var r row
	if len(b) == 0 || b[0] != rowVersion {
		return r, core.Errorf(core.CodeCorrupt, "extent row is not of version %d", rowVersion)
	}
	if err := json.Unmarshal(b[1:], &r); err != nil {
		return r, core.Errorf(core.CodeCorrupt, "decode an extent row: %w", err)
	}
	return r, nil
}

// durable is all that the disk knows of an extent.
type durable struct {
	row
	position
}

func (d durable) timer() bool { return d.Extent.Kind == core.KindTimer }

func (d durable) positionLen() int {
	if d.timer() {
		return timerPositionLen
	}
	return positionLen
}

func (d durable) state() State {
	return State{
		Extent: d.Extent, Header: d.Header, Opened: d.Opened, Fenced: d.Fenced, Sealed: d.Sealed, L: d.L,
		Last: d.last, Committed: d.committed, Checksum: d.checksum, Bytes: d.bytes, Damaged: d.Damaged, Why: d.Why, Diverged: d.Diverged, Version: d.Version,
	}
}
