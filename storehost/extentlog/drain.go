package extentlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/enginefs"
	"github.com/columbamq/columba/storehost/extentlog/ring"
	"github.com/columbamq/columba/wire"
)

const (
	// tableFrom is from how many bytes of an extent on they get a table of their own, which leaves with the extent.
	tableFrom = 1 << 20
	// drainPiece bounds what is read at once, and what goes through a memtable at once.
	drainPiece = 1 << 20
	drainDir   = "draining"
	// bytesPerSync bounds what the disk has to write when a table is synced, which the appends wait for.
	bytesPerSync = 512 << 10
)

// errUnread says that the disk did not let a drain read the log. The drain is tried again until the place counts as
// damaged. Then the extents whose batches are there are quarantined, and the drain goes on.
var errUnread = errors.New("a part of the log cannot be read")

// drain puts what is alive in the oldest segments into the database, and frees them; false when it did not. Batches go
// there in the order of their extents, and what was removed meanwhile does not go there at all.
//
// A segment is freed only when its batches, and all rows of its groups, are in tables that are synced. A crash before
// that finds the segment as it was, and drains it again.
func (j *journal) drain() (bool, error) {
	uses := j.oldest()
	if len(uses) == 0 {
		return false, nil
	}
	last := uses[len(uses)-1]
	extents := j.keeper.in(uses)
	slices.SortFunc(extents, func(a, b *extent) int { return slices.Compare(a.id.ID[:], b.id.ID[:]) })
	d := drain{j: j, serial: last.Serial}
	err := d.all(extents)
	if err == nil {
		err = d.sync(last)
	}
	through := last.Serial
	if err != nil {
		through = 0
	}
	for _, x := range d.begun {
		j.keeper.drops(x.held.drainedTo(through), &j.keeper.drained)
	}
	if err != nil {
		return false, errors.Join(err, d.discard())
	}
	j.keeper.leave(uses)
	for _, u := range uses {
		j.ring.Free(u.Serial)
	}
	err = j.ring.Trim(j.keeper.segment())
	j.lookShort()
	notify(j.keeper.made)
	return true, err
}

// oldest are the uses of segments to drain: the first ones that have ended, whose rows are in the database, and whose
// removed extents have given their space back, up to the part of the ring that is to be free.
func (j *journal) oldest() (uses []ring.Use) {
	_, all := j.ring.Room()
	applied, bytes := j.applied.Load(), int64(0)
	for _, u := range j.ring.Uses() {
		if !u.Ended || u.Records > applied || bytes >= all/j.keeper.free.Load() || j.keeper.stays(u.Serial) {
			break
		}
		bytes += u.Size
		uses = append(uses, u)
	}
	return uses
}

// drain is one that is under way.
type drain struct {
	j      *journal
	serial uint64        // of the last use that is drained
	begun  []*extent     // whose batches are read
	small  *pebble.Batch // of extents that get no table of their own
	tables []string
}

func (d *drain) all(extents []*extent) error {
	db := d.j.e.db
	d.small = db.NewBatch()
	defer func() { d.small.Close() }()
	for _, x := range extents {
		if err := d.j.e.refusing(); err != nil {
			return err
		}
		run, base := x.held.drain(d.serial)
		if len(run) == 0 {
			continue
		}
		d.begun = append(d.begun, x)
		bytes := 0
		for _, b := range run {
			bytes += int(b.length)
		}
		put := d.putSmall
		if bytes >= tableFrom {
			put = d.putTable
		}
		if err := put(x, run, base); err != nil {
			return err
		}
	}
	if err := d.flushSmall(0); err != nil {
		return err
	}
	if len(d.tables) == 0 {
		return nil
	}
	if err := db.Ingest(context.Background(), d.tables); err != nil {
		return core.Errorf(core.CodeUnavailable, "take tables into the database: %w", err)
	}
	d.tables = nil // they are the database's
	return nil
}

// flushSmall gives what was put to the database, if it is more than so many bytes.
func (d *drain) flushSmall(most int) error {
	if d.small.Len() <= most {
		return nil
	}
	if !d.small.Empty() {
		if err := d.j.e.db.Apply(d.small, pebble.NoSync); err != nil {
			return core.Errorf(core.CodeUnavailable, "put drained batches into the database: %w", err)
		}
	}
	if err := d.small.Close(); err != nil {
		return core.Errorf(core.CodeUnavailable, "close a batch of the database: %w", err)
	}
	d.small = d.j.e.db.NewBatch()
	return nil
}

func (d *drain) putSmall(x *extent, run []heldBatch, base core.Seq) error {
	return d.each(x, run, base, func(b wire.Batch) error {
		if err := d.small.Set(batchKey(x.id, b.Base), b.Bytes, nil); err != nil {
			return core.Errorf(core.CodeUnavailable, "put a drained batch into the database: %w", err)
		}
		return d.flushSmall(drainPiece)
	})
}

// putTable makes a table of its own of an extent's batches.
func (d *drain) putTable(x *extent, run []heldBatch, base core.Seq) (err error) {
	e := d.j.e
	name := e.files.PathJoin(e.dir, drainDir, fmt.Sprintf("%06d.sst", len(d.tables)))
	w, err := e.newTable(name, e.db)
	if err != nil {
		return diskError(x, err)
	}
	d.tables = append(d.tables, name)
	some := false
	err = d.each(x, run, base, func(b wire.Batch) error {
		some = true
		return w.Set(batchKey(x.id, b.Base), b.Bytes)
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return core.Errorf(core.CodeOf(err), "make a table of extent %s: %w", x.id, err)
	}
	if !some { // damaged
		d.tables = d.tables[:len(d.tables)-1]
		return e.files.Remove(name)
	}
	return nil
}

// each reads batches in the ring, in pieces. Damage ends it: the extent is quarantined, and its replica is repaired
// from another one.
func (d *drain) each(x *extent, run []heldBatch, base core.Seq, use func(wire.Batch) error) error {
	for len(run) > 0 {
		n, bytes := 0, 0
		for n < len(run) && (n == 0 || bytes+int(run[n].length) <= drainPiece) {
			bytes += int(run[n].length)
			n++
		}
		piece, err := d.j.read(x, run[:n], base)
		switch {
		case core.CodeOf(err) == core.CodeCorrupt:
			d.j.e.quarantine(x, err.Error(), false)
			return nil
		case errors.Is(err, syscall.EIO):
			return errors.Join(errUnread, err)
		case err != nil:
			return err
		}
		for len(piece) > 0 {
			var b wire.Batch
			if b, piece, err = wire.NextBatch(piece); err != nil {
				return err
			}
			if err := use(b); err != nil {
				return err
			}
		}
		base, run = run[n-1].last+1, run[n:]
	}
	return nil
}

// sync makes what was drained durable, with all rows up to there.
func (d *drain) sync(last ring.Use) error {
	value := binary.LittleEndian.AppendUint64(nil, last.Last)
	value = binary.LittleEndian.AppendUint64(value, last.Serial)
	db := d.j.e.db
	if err := db.Set(keyDrained, value, pebble.NoSync); err != nil {
		return core.Errorf(core.CodeUnavailable, "note what is drained: %w", err)
	}
	err := d.j.beginFlush()
	if err == nil {
		err = d.j.awaitFlush()
	}
	if err != nil {
		return core.Errorf(core.CodeUnavailable, "flush what is drained: %w", err)
	}
	return nil
}

// discard removes tables that did not get into the database.
func (d *drain) discard() error {
	var errs []error
	for _, name := range d.tables {
		errs = append(errs, d.j.e.files.Remove(name))
	}
	return errors.Join(errs...)
}

// newTable begins a table that a database is to take.
func (e *Engine) newTable(name string, db *pebble.DB) (*sstable.Writer, error) {
	f, err := e.files.Create(name, enginefs.Paced)
	if err != nil {
		return nil, err
	}
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: bytesPerSync})
	return sstable.NewWriter(objstorageprovider.NewFileWritable(f), e.options.MakeWriterOptions(0, db.TableFormat())), nil
}
