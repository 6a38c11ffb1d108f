package faulty

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// Divergence says how far the replicas of a row may differ. Chances are 0 … 1, for each write and each replica that the
// write did not wait for.
type Divergence struct {
	Seed      uint64
	Late      float64       // the replica learns of the write after up to Delay
	Delay     time.Duration // see Late
	Never     float64       // the replica learns of the write by a read repair or by Repair alone
	Undecided float64       // chance that a change of a CAS row is stored, answers CodeUnknown, and is on no replica yet
}

// Replicas is a metadata.Store in memory that keeps each row three times, as a cluster of three Cassandra nodes does.
//
// The store promises:
//  1. Changes of CAS rows and their reads at Serial are linearizable.
//  2. A read at Quorum sees each Put, Remove and change of a CAS row that was answered before it began, if that was
//     written at Quorum or Serial. A later read at Quorum never sees an older row.
//  3. Of two Puts to a row the later timestamp wins on each replica, in whatever order they arrive.
//  4. After Repair, all replicas are equal.
//
// The store may show anomalies besides, by the chances of its Divergence:
//  1. A read at One is of a single replica, another one each time. It may be older than the read before it. A row may
//     be missing in Get and List, an older value may be there, and a deleted row may still be there.
//  2. A write at One is on a single replica. A read at Quorum, or at Serial of a Put row, that asks the two others
//     misses it, until they learn of it.
//  3. A change of a CAS row whose answer is lost may be found by Serial calls alone: a read at Quorum misses it until
//     the next Serial call for that row.
//  4. A watch is told of a change when it is made. A reader at One or Quorum may not see it then, and is not told again.
//
// All choices come from the seed and, for each table, the order of its reads and that of its writes. Removed and
// expired rows are kept for ever.
type Replicas struct {
	*memory.Frame
	cells cells
}

// cells are the rows of Replicas.
type cells struct {
	divergence Divergence
	mu         struct {
		sync.Mutex
		dice map[stream]*rand.Rand
		rows memory.Index[*row]
		cut  bool // the last replica learns nothing of what the others are told: see Cut
	}
}

// stream is the calls whose choices do not depend on other calls.
type stream struct {
	table string
	reads bool
}

var _ metadata.Store = (*Replicas)(nil)

// NewReplicas makes an empty store.
func NewReplicas(d Divergence) *Replicas {
	r := &Replicas{}
	r.cells.divergence = d
	r.cells.mu.dice = map[stream]*rand.Rand{}
	r.Frame = memory.NewFrame(&r.cells)
	return r
}

// Read implements memory.Cells.
func (r *cells) Read(t metadata.Table, k metadata.Key, c metadata.Consistency, now time.Time) metadata.Cell {
	r.mu.Lock()
	defer r.mu.Unlock()
	row, ok := r.mu.rows.Get(t, k)
	if !ok {
		return metadata.Cell{}
	}
	return r.readLocked(t, row, c, r.orderLocked(c, r.dieLocked(t, true)), now)
}

// List implements memory.Cells. All rows of a page are of the same replicas.
func (r *cells) List(t metadata.Table, partition, after string, limit int, c metadata.Consistency, now time.Time) ([]metadata.Row, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.orderLocked(c, r.dieLocked(t, true))
	return r.mu.rows.List(t, partition, after, limit, now, func(w *row) metadata.Cell { return r.readLocked(t, w, c, asked, now) })
}

// Change implements memory.Cells.
func (r *cells) Change(t metadata.Table, k metadata.Key, change func(metadata.Cell) (metadata.Cell, error)) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row := r.rowLocked(t, k)
	r.finishLocked(t, row)
	next, err := change(row.decided.cell)
	if err != nil {
		return false, err
	}
	row.decided = version{cell: next, order: row.decided.order + 1}
	row.pending = true
	if r.dieLocked(t, false).Float64() < r.divergence.Undecided {
		return true, core.Errorf(core.CodeUnknown, "injected: the change is decided, and no replica has it yet")
	}
	r.finishLocked(t, row)
	return true, nil
}

// Merge implements memory.Cells: it writes to as many replicas at once as c asks for.
func (r *cells) Merge(t metadata.Table, k metadata.Key, next metadata.Cell, c metadata.Consistency, _ time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spreadLocked(t, r.rowLocked(t, k), version{cell: next}, c)
	return true
}

// Repair makes all replicas of all rows equal.
func (r *Replicas) Repair() {
	r.cells.mu.Lock()
	defer r.cells.mu.Unlock()
	r.cells.mu.rows.Each((*row).repair)
}

func (r *cells) dieLocked(t metadata.Table, reads bool) *rand.Rand {
	s := stream{t.Name, reads}
	if r.mu.dice[s] == nil {
		h := fnv.New64a()
		h.Write([]byte(t.Name))
		r.mu.dice[s] = rand.New(rand.NewPCG(r.divergence.Seed, h.Sum64()<<1|map[bool]uint64{true: 1}[reads]))
	}
	return r.mu.dice[s]
}

func (r *cells) rowLocked(t metadata.Table, k metadata.Key) *row {
	w, ok := r.mu.rows.Get(t, k)
	if !ok {
		w = &row{}
		r.mu.rows.Set(t, k, w)
	}
	return w
}
