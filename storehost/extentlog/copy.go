package extentlog

import (
	"errors"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Copy implements Log. The new rolling checksums continue the checksum of this replica: that proves that both have the
// same records before.
func (e *Engine) Copy(id core.ExtentID, batches []byte) (core.Seq, error) {
	x := e.extent(id)
	var last core.Seq
	err := e.do(request{appending: appending{extent: x}, bytes: len(batches), stage: func(g *group) error {
		switch {
		case x == nil || x.next.Extent.ID.IsZero():
			return notFound(id)
		case !x.next.Fenced:
			return core.Errorf(core.CodeConflict, "extent %s is not fenced; only a fenced replica takes copies", id)
		case x.damaged():
			return damaged(id)
		}
		if err := e.admitAppend(len(batches)); err != nil {
			return err
		}
		all, err := continuation(x, batches)
		if err != nil {
			return err
		}
		for _, b := range all {
			if err := e.stageBatch(g, x, b); err != nil {
				return err
			}
		}
		last = x.next.last
		return nil
	}})
	if errors.Is(err, errUnanswered) {
		return 0, err
	}
	return last, err
}

// continuation takes a run of batches apart, each of which continues the one before; the first one the extent. None
// passes a known L, or reaches it with another checksum.
func continuation(x *extent, batches []byte) ([][]byte, error) {
	var all [][]byte
	at := x.next.position
	for len(batches) > 0 {
		b, rest, err := wire.NextBatch(batches)
		switch {
		case err != nil:
			return nil, err
		case x.next.Sealed && b.Last() > x.next.L:
			return nil, core.Errorf(core.CodeConflict, "extent %s is sealed at %d; a batch up to %d is beyond it", x.id, x.next.L, b.Last())
		case x.next.Sealed && b.Last() == x.next.L && b.Checksum != x.next.SealSum:
			return nil, core.Errorf(core.CodeCorrupt, "extent %s: checksum %08x at the sealed end, the seal says %08x", x.id, b.Checksum, x.next.SealSum)
		}
		if err := continues(x.id, at, b); err != nil {
			return nil, err
		}
		at.last, at.checksum = b.Last(), b.Checksum
		all, batches = append(all, b.Bytes), rest
	}
	if len(all) == 0 {
		return nil, core.Errorf(core.CodeBadArgument, "no batches to copy")
	}
	return all, nil
}
