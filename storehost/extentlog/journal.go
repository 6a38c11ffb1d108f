package extentlog

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
	"github.com/columbamq/columba/wire"
)

// journal makes the rounds of the log durable, in their order: begin, stage, size and write are commitLoop's, sync is
// settleLoop's. It is a ring of segments in front of the database, which has no log of its own. Rows go into the
// database once they are durable in the ring. Batches stay in the ring until their segment is drained: those of extents
// that are removed before are written once.
//
//	commitLoop: stage ─▶ ring.Write ──▶ settleLoop: ring.Sync ─▶ rows: database   keeper: batches of the oldest segments ─▶ database, which syncs ─▶ Free
type journal struct {
	e       *Engine
	ring    *ring.Ring
	group   ring.Buffer   // that commitLoop stages
	summary summary       // of the segment at hand
	applied atomic.Uint64 // number of the last group whose rows are in the database
	toMark  bool          // of commitLoop: no mark is behind the last group
	keeper  keeper
}

func newJournal(e *Engine, most int64, few bool) *journal {
	j := &journal{e: e}
	j.keeper.most, j.keeper.parts = most, segments
	if few {
		j.keeper.most, j.keeper.parts = min(most, fewRing), fewSegments
	}
	j.keeper.free.Store(freeShare)
	j.keeper.garbage.Store(maxGarbage)
	j.keeper.sparse.Store(mostLive)
	j.keeper.wake, j.keeper.made = make(chan struct{}, 1), make(chan struct{}, 1)
	j.keeper.tenants, j.keeper.removing = make(map[uint64]*tenants), make(map[core.ExtentID]uint64)
	return j
}

// Layout of the body of a group: batches, then rows as the database takes them, then how long the rows are. All numbers
// are little endian.
//
//	┌────────┬────────────────────────────────┬───────┬─────┬──────┬────────┐
//	│ extent │ u31 length of batch │ u1 timer │ batch │ ... │ rows │ u32 n  │
//	└────────┴────────────────────────────────┴───────┴─────┴──────┴────────┘
//
// The index of timers has no place there: it is made again from the batches.
const (
	entryLen   = idLen + 4 // before a batch
	trailerLen = 4
	timerFlag  = 1 << 31
)

// Rows of the ring in the database.
var (
	keyApplied = []byte{prefixMeta, 'r'} // number u64 of the last group whose rows are there
	keyDrained = []byte{prefixMeta, 'b'} // number u64 of the last group whose batches are there, and the serial u64 of its segment
)

// begin makes the group of a round.
func (j *journal) begin(requests int) group {
	j.group.Reset()
	return group{batch: j.e.db.NewBatchWithSize(batchRoom(256*requests), pebble.WithMaxRetainedSizeBytes(maxMemtable/2))}
}

// stage adds a batch that continues its extent. On error it has added nothing.
func (j *journal) stage(g *group, x *extent, b wire.Batch) error {
	length := uint32(len(b.Bytes))
	if x.next.timer() {
		length |= timerFlag
		if err := eachRecord(b, func(core.Seq, []byte) {}); err != nil { // its index is made when it is written
			return err
		}
	}
	entry := j.group.Grow(entryLen + len(b.Bytes))
	copy(entry, x.id.ID[:])
	binary.LittleEndian.PutUint32(entry[idLen:], length)
	copy(entry[entryLen:], b.Bytes)
	return nil
}

// size is how many bytes the group has for the disk.
func (j *journal) size(g *group) int { return j.group.Len() + g.batch.Len() }

// write gives the group to the disk and does not wait for that.
func (j *journal) write(g *group) error {
	rows := g.batch.Repr()
	copy(j.group.Grow(len(rows)), rows)
	binary.LittleEndian.PutUint32(j.group.Grow(trailerLen), uint32(len(rows)))
	if err := j.makeRoom(ring.SizeFor(j.group.Len()), maxSummed*(len(g.removed)+len(g.appends))); err != nil {
		return err
	}
	written, err := j.ring.Write(ring.Records, &j.group)
	if err != nil {
		return j.e.fail(err)
	}
	g.written, j.toMark = written, true
	for _, id := range g.removed {
		j.summary.removed(id)
		j.keeper.removes(id, written.Serial)
	}
	at := written.Offset
	for _, s := range g.appends {
		length := uint32(len(s.batch.Bytes))
		place := ring.Place{Serial: written.Serial, Offset: at + uint32(entryLen), Length: length}
		j.hold(s.extent, s.batch.BatchHeader, place)
		j.summary.batch(s.extent.id, s.batch.BatchHeader, place)
		at += uint32(entryLen) + length
		if s.timer {
			if err := j.e.stageDue(g.batch, s.extent.id, s.batch); err != nil {
				return err
			}
		}
	}
	if err := g.batch.Set(keyApplied, binary.LittleEndian.AppendUint64(nil, written.Number), nil); err != nil {
		return j.e.fail(err)
	}
	return nil
}

// markAfter is how long the log is idle before it is marked.
const markAfter = 100 * time.Millisecond

// mark says that all groups are durable, once they are: without that, a start would take damage to the last one for an
// end that a crash tore. It needs no sync, since only the mark itself can be torn. There is none while no segment is
// free.
func (j *journal) mark() {
	refused := j.e.refusing() != nil
	if !refused && j.applied.Load()+1 != j.ring.Next() {
		return // a round is under way
	}
	j.toMark = false
	if refused || !j.fits(ring.SizeFor(0), 0) && !j.ring.HasFree(ring.SizeFor(0)+ring.SizeForSummary(0)) {
		return
	}
	j.e.pulse.begin(time.Now())
	defer j.e.pulse.end()
	if j.makeRoom(ring.SizeFor(0), 0) != nil {
		return
	}
	j.group.Reset()
	g, err := j.ring.Write(ring.Mark, &j.group)
	if err != nil {
		j.e.fail(err)
		return
	}
	j.applied.Store(g.Number)
}

// hold notes where a batch is.
func (j *journal) hold(x *extent, b wire.BatchHeader, at ring.Place) {
	x.held.add(b.Base, heldBatch{last: b.Last(), serial: at.Serial, offset: at.Offset, length: at.Length})
	j.keeper.holds(x, at.Serial, int(at.Length))
}

// sync waits until the group is durable, and has the database show its rows.
func (j *journal) sync(g *group) error {
	if err := j.ring.Sync(g.written); err != nil {
		return j.e.fail(err)
	}
	if err := j.e.db.Apply(g.batch, pebble.NoSync); err != nil {
		return j.e.fail(err)
	}
	j.applied.Store(g.written.Number)
	if j.keeper.wanted.Load() > 0 {
		notify(j.keeper.wake) // the segment may be one to drain now
	}
	return nil
}

func (j *journal) release() error {
	if j.ring == nil {
		return nil
	}
	err := j.ring.Release()
	j.ring = nil
	return err
}

// groupBody is what a group holds.
type groupBody struct {
	batches []loggedBatch
	rows    []byte
}

// loggedBatch is a batch as a group has it.
type loggedBatch struct {
	extent core.ExtentID
	timer  bool
	at     ring.Place
	batch  wire.Batch
}

// decodeGroup takes the body of a group apart. The ring has checked that it is as it was written.
func decodeGroup(g ring.Group) (out groupBody, err error) {
	broken := core.Errorf(core.CodeCorrupt, "group %d of the log is no list of batches and rows", g.Number)
	body := g.Body
	if len(body) < trailerLen {
		return out, broken
	}
	body, trailer := body[:len(body)-trailerLen], body[len(body)-trailerLen:]
	n := int(binary.LittleEndian.Uint32(trailer))
	if n > len(body) {
		return out, broken
	}
	body, out.rows = body[:len(body)-n], body[len(body)-n:]
	if err := eachChange(out.rows, func(pebble.InternalKeyKind, []byte, []byte) error { return nil }); err != nil {
		return out, core.Errorf(core.CodeCorrupt, "group %d of the log: %w", g.Number, err)
	}
	for at := 0; at < len(body); {
		if len(body)-at < entryLen {
			return out, broken
		}
		id, length := core.ExtentID{ID: core.ID(body[at : at+idLen])}, binary.LittleEndian.Uint32(body[at+idLen:])
		size := int(length &^ timerFlag)
		at += entryLen
		if size > len(body)-at {
			return out, broken
		}
		b, err := wire.DecodeBatch(body[at : at+size])
		if err != nil {
			return out, core.Errorf(core.CodeCorrupt, "group %d of the log: %w", g.Number, err)
		}
		out.batches = append(out.batches, loggedBatch{
			extent: id, timer: length&timerFlag != 0, batch: b,
			at: ring.Place{Serial: g.Serial, Offset: g.Offset + uint32(at), Length: uint32(size)},
		})
		at += size
	}
	return out, nil
}

// eachChange reads rows as the database writes them: 12 bytes, of which the last four count the changes, and of each
// change its kind, and its key and value with their lengths before them. The database panics at what is no such list.
func eachChange(rows []byte, use func(kind pebble.InternalKeyKind, key, value []byte) error) error {
	broken := core.Errorf(core.CodeCorrupt, "rows that are no list of changes")
	if len(rows) < batchrepr.HeaderLen {
		return broken
	}
	count, rest := binary.LittleEndian.Uint32(rows[batchrepr.HeaderLen-4:]), rows[batchrepr.HeaderLen:]
	text := func() (text []byte, ok bool) {
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) {
			return nil, false
		}
		text, rest = rest[used:used+int(n)], rest[used+int(n):]
		return text, true
	}
	for ; len(rest) > 0; count-- {
		kind := pebble.InternalKeyKind(rest[0])
		rest = rest[1:]
		key, ok := text()
		var value []byte
		switch kind {
		case pebble.InternalKeyKindDelete:
		case pebble.InternalKeyKindSet, pebble.InternalKeyKindRangeDelete:
			if ok {
				value, ok = text()
			}
		default:
			ok = false
		}
		if !ok || count == 0 {
			return broken
		}
		if err := use(kind, key, value); err != nil {
			return err
		}
	}
	if count != 0 {
		return broken
	}
	return nil
}
