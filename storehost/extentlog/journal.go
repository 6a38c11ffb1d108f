package extentlog

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/wire"
)

// journal makes the rounds of the log durable, in their order. begin, stage, size and write are commitLoop's, sync is
// settleLoop's.
type journal interface {
	// begin makes the group of a round, whose requests wait with so many bytes.
	begin(bytes, requests int) group
	// stage adds a batch that continues its extent. On error it has added nothing.
	stage(g *group, x *extent, b wire.Batch) error
	// size is how many bytes the group has for the disk.
	size(g *group) int
	// write gives the group to the disk and does not wait for that.
	write(g *group) error
	// sync waits until the group is durable, and has the database show it.
	sync(g *group) error
}

// pebbleJournal is the database's own log: each batch is a value of the database.
type pebbleJournal struct{ e *Engine }

func (j pebbleJournal) begin(bytes, requests int) group {
	return group{batch: j.e.db.NewBatchWithSize(batchRoom(bytes+256*requests), pebble.WithMaxRetainedSizeBytes(maxMemtable/2))}
}

func (j pebbleJournal) stage(g *group, x *extent, b wire.Batch) error {
	op := g.batch.SetDeferred(batchKeyLen, len(b.Bytes))
	putBatchKey(op.Key, x.id, b.Base)
	copy(op.Value, b.Bytes)
	if err := op.Finish(); err != nil {
		return j.e.fail(err)
	}
	if x.next.timer() {
		return j.e.stageDue(g.batch, x.id, b)
	}
	return nil
}

func (j pebbleJournal) size(g *group) int { return g.batch.Len() }

func (j pebbleJournal) write(g *group) error {
	if err := j.e.db.ApplyNoSyncWait(g.batch, pebble.Sync); err != nil {
		return j.e.fail(err)
	}
	return nil
}

func (j pebbleJournal) sync(g *group) error {
	if err := g.batch.SyncWait(); err != nil {
		return j.e.fail(err)
	}
	return nil
}
