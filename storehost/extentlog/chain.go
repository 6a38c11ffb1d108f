package extentlog

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// chain checks batches of an extent that are read in order, from the one that holds next on.
type chain struct {
	extent core.ExtentID
	next   core.Seq
	some   bool
	last   wire.BatchHeader
}

// take checks the batch that follows. CodeCorrupt: it is not the one that was written there, or a record is damaged.
func (c *chain) take(b wire.Batch) error {
	switch {
	case !c.some && (b.Base > c.next || b.Last() < c.next):
		return missing(c.extent, c.next)
	case c.some && (b.Base != c.next || wire.ExtendChecksum(c.last.Checksum, b.Records) != b.Checksum):
		return core.Errorf(core.CodeCorrupt, "extent %s: batch %d does not continue the one that ends at %d", c.extent, b.Base, c.last.Last())
	}
	if n, err := wire.CheckRecords(b.Records, wire.MaxPayload); err != nil || n != int(b.Count) {
		return core.Errorf(core.CodeCorrupt, "extent %s: batch %d with %d of %d sound records: %w", c.extent, b.Base, n, b.Count, err)
	}
	c.some, c.last, c.next = true, b.BatchHeader, b.Last()+1
	return nil
}

func missing(id core.ExtentID, seq core.Seq) error {
	return core.Errorf(core.CodeCorrupt, "extent %s: seq %d is missing on the disk", id, seq)
}
