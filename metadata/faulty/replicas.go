package faulty

import (
	"bytes"
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
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
// All choices come from the seed and, for each table, the order of its reads and that of its writes. Removed and expired rows are kept for ever.
type Replicas struct {
	divergence Divergence
	notifier   metadata.Notifier
	versions   metadata.Versions
	closing    sync.Once
	closed     chan struct{}

	mu struct {
		sync.Mutex
		dice       map[stream]*rand.Rand
		partitions map[area]*partition
	}
}

// stream is the calls whose choices do not depend on other calls.
type stream struct {
	table string
	reads bool
}

// area is a partition of a table.
type area struct{ table, partition string }

// partition keeps its rows' names in order so that List need not sort.
type partition struct {
	rows  map[string]*row
	names []string
}

var _ metadata.Store = (*Replicas)(nil)

// NewReplicas makes an empty store.
func NewReplicas(d Divergence) *Replicas {
	r := &Replicas{divergence: d, closed: make(chan struct{})}
	r.mu.dice = map[stream]*rand.Rand{}
	r.mu.partitions = map[area]*partition{}
	return r
}

// Get implements metadata.Store.
func (r *Replicas) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := r.ready(ctx, metadata.CheckKey(t, k)); err != nil {
		return metadata.Row{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[area{t.Name, k.Partition}]
	if p == nil || p.rows[k.Row] == nil {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	now := time.Now()
	cell := r.readLocked(t, p.rows[k.Row], c, order(r.dieLocked(t, true)), now)
	if !cell.Live(now) {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return ownRow(k, cell), nil
}

// List implements metadata.Store. All rows of a page are of the same replicas.
func (r *Replicas) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := r.ready(ctx, metadata.CheckList(t, partition, after, limit)); err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[area{t.Name, partition}]
	if p == nil {
		return nil, false, nil
	}
	now, asked := time.Now(), order(r.dieLocked(t, true))
	i, found := slices.BinarySearch(p.names, after)
	if found {
		i++
	}
	var rows []metadata.Row
	for _, name := range p.names[i:] {
		cell := r.readLocked(t, p.rows[name], c, asked, now)
		if !cell.Live(now) {
			continue
		}
		if len(rows) == limit {
			return rows, true, nil
		}
		rows = append(rows, ownRow(metadata.Key{Partition: partition, Row: name}, cell))
	}
	return rows, false, nil
}

// Insert implements metadata.Store.
func (r *Replicas) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return r.swap(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		return c.Inserted(t, k, bytes.Clone(value), r.versions.First(time.Now()))
	})
}

// Update implements metadata.Store.
func (r *Replicas) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte) error {
	return r.swap(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		return c.Updated(t, k, old, bytes.Clone(value))
	})
}

// Delete implements metadata.Store.
func (r *Replicas) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return r.swap(ctx, t, k, nil, func(c metadata.Cell) (metadata.Cell, error) {
		r.versions.Deleted(c.Version)
		return c.Deleted(t, k, old)
	})
}

// Put implements metadata.Store.
func (r *Replicas) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if err := r.ready(ctx, metadata.CheckPut(t, k, value, at)); err != nil {
		return err
	}
	r.put(t, k, metadata.Put(bytes.Clone(value), at, ttl, time.Now()), c)
	return nil
}

// PutAll implements metadata.Store.
func (r *Replicas) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	for _, row := range rows {
		if err := metadata.CheckPut(t, row.Key, row.Value, row.Written); err != nil {
			return err
		}
	}
	for _, row := range rows {
		if err := r.Put(ctx, t, row.Key, row.Value, row.Written, 0, c); err != nil {
			return err
		}
	}
	return nil
}

// Remove implements metadata.Store.
func (r *Replicas) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if err := r.ready(ctx, metadata.CheckPut(t, k, nil, at)); err != nil {
		return err
	}
	r.put(t, k, metadata.Removal(at, time.Now()), c)
	return nil
}

// Watch implements metadata.Store.
func (r *Replicas) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if err := metadata.CheckList(t, partition, "", 1); err != nil {
		return err
	}
	return r.notifier.Watch(ctx, r.closed, t, partition, changed)
}

// Close implements metadata.Store.
func (r *Replicas) Close() error {
	r.closing.Do(func() { close(r.closed) })
	return nil
}

// Repair makes all replicas of all rows equal.
func (r *Replicas) Repair() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.partitions {
		for _, row := range p.rows {
			row.repair()
		}
	}
}

// ready is bad, or why no call can be served now.
func (r *Replicas) ready(ctx context.Context, bad error) error {
	if bad != nil {
		return bad
	}
	if ctx.Err() != nil {
		return core.Errorf(core.CodeUnavailable, "metadata was not asked: %w", context.Cause(ctx))
	}
	select {
	case <-r.closed:
		return core.Errorf(core.CodeUnavailable, "metadata store is closed")
	default:
		return nil
	}
}

// put writes a Put row, to as many replicas at once as c asks for.
func (r *Replicas) put(t metadata.Table, k metadata.Key, cell metadata.Cell, c metadata.Consistency) {
	r.mu.Lock()
	r.spreadLocked(t, r.rowLocked(t, k), version{cell: cell}, acknowledging(c))
	r.mu.Unlock()
	r.notifier.Notify(t, k.Partition)
}

// swap changes a CAS row.
func (r *Replicas) swap(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, change func(metadata.Cell) (metadata.Cell, error)) error {
	if err := r.ready(ctx, metadata.CheckWrite(t, metadata.RuleCAS, k, value)); err != nil {
		return err
	}
	unknown, err := r.decide(t, k, change)
	if err != nil {
		return err
	}
	r.notifier.Notify(t, k.Partition)
	if unknown {
		return core.Errorf(core.CodeUnknown, "injected: the change is decided, and no replica has it yet")
	}
	return nil
}

func (r *Replicas) decide(t metadata.Table, k metadata.Key, change func(metadata.Cell) (metadata.Cell, error)) (unknown bool, err error) {
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
		return true, nil
	}
	r.finishLocked(t, row)
	return false, nil
}

func (r *Replicas) dieLocked(t metadata.Table, reads bool) *rand.Rand {
	s := stream{t.Name, reads}
	if r.mu.dice[s] == nil {
		h := fnv.New64a()
		h.Write([]byte(t.Name))
		r.mu.dice[s] = rand.New(rand.NewPCG(r.divergence.Seed, h.Sum64()<<1|map[bool]uint64{true: 1}[reads]))
	}
	return r.mu.dice[s]
}

func (r *Replicas) rowLocked(t metadata.Table, k metadata.Key) *row {
	at := area{t.Name, k.Partition}
	p := r.mu.partitions[at]
	if p == nil {
		p = &partition{rows: map[string]*row{}}
		r.mu.partitions[at] = p
	}
	if p.rows[k.Row] == nil {
		i, _ := slices.BinarySearch(p.names, k.Row)
		p.names = slices.Insert(p.names, i, k.Row)
		p.rows[k.Row] = &row{}
	}
	return p.rows[k.Row]
}

func ownRow(k metadata.Key, c metadata.Cell) metadata.Row {
	row := c.Row(k)
	row.Value = bytes.Clone(row.Value)
	return row
}
