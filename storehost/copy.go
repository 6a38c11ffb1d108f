package storehost

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Bounds of copies. One larger batch travels alone.
const (
	maxRange  = 8 << 20  // bytes of one answer of readRange
	maxCopy   = 4 << 20  // bytes that are made durable together
	maxCopies = 16 << 20 // bytes of all copies that wait for the disk; appends share it
)

// readRange answers whole batches. Without forCopy none is beyond what readers may see: the committed seq, or the end
// once it is persisted. A copy to another replica gets all that a fenced replica has, which does not change any more:
// also what is not committed, since the end was decided to lie behind it, and never from a replica that still takes
// appends.
func (h *Host) readRange(id core.ExtentID, from, upTo core.Seq, maxBytes int, forCopy bool) ([]byte, error) {
	log, err := h.extents()
	if err != nil {
		return nil, err
	}
	state, err := log.State(id)
	switch {
	case err != nil:
		return nil, err
	case forCopy && !state.Fenced:
		return nil, core.Errorf(core.CodeConflict, "extent %s is not fenced; fence it before copying", id)
	case forCopy && from > state.Last:
		return nil, core.Errorf(core.CodeIncomplete, "extent %s ends at %d here; copy seq %d from another replica", id, state.Last, from)
	case !forCopy && state.Sealed && from > state.Last && from <= state.L:
		return nil, incomplete(state)
	case !forCopy:
		upTo = min(upTo, readable(state))
	}
	if from > upTo {
		return nil, nil
	}
	if maxBytes <= 0 || maxBytes > maxRange {
		maxBytes = maxRange
	}
	return log.Read(id, from, upTo, maxBytes)
}

// copyBatches appends batches that another replica answered, and answers the last seq that is durable then, also after
// an error. It waits for its turn until ctx ends.
func (h *Host) copyBatches(ctx context.Context, id core.ExtentID, batches []byte) (core.Seq, error) {
	log, err := h.extents()
	if err != nil {
		return 0, err
	}
	if len(batches) == 0 {
		return 0, core.Errorf(core.CodeBadArgument, "no batches to copy")
	}
	var last core.Seq
	for len(batches) > 0 {
		n, err := copyPiece(batches)
		if err != nil {
			return last, err
		}
		cost := int64(min(n, maxCopies))
		if err := h.copies.Acquire(ctx, cost); err != nil {
			return last, core.Errorf(core.CodeThrottled, "%d MiB of copies wait for the store's disk; go on later: %w", maxCopies>>20, context.Cause(ctx))
		}
		last, err = log.Copy(id, batches[:n])
		h.copies.Release(cost)
		if err != nil {
			return last, err
		}
		h.metrics.copiedBytes.Add(float64(n))
		batches = batches[n:]
	}
	return last, nil
}

// copyPiece is how many bytes of whole, verified batches are made durable together.
func copyPiece(batches []byte) (bytes int, err error) {
	for rest := batches; len(rest) > 0; {
		batch, after, err := wire.NextBatch(rest)
		if err != nil {
			return 0, err
		}
		count, err := wire.CheckRecords(batch.Records, wire.MaxPayload)
		switch {
		case err != nil:
			return 0, err
		case count != int(batch.Count):
			return 0, core.Errorf(core.CodeBadRecord, "batch at %d says %d records and holds %d", batch.Base, batch.Count, count)
		case bytes > 0 && bytes+len(batch.Bytes) > maxCopy:
			return bytes, nil
		}
		bytes, rest = bytes+len(batch.Bytes), after
	}
	return bytes, nil
}
