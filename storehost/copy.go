package storehost

import (
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// maxRange bounds one answer of readRange in bytes; one larger batch travels alone.
const maxRange = 8 << 20

// readRange answers batches. A fenced replica, which does not change any more, answers all it has, for a copy to another replica:
// also what no reader may see yet, since the end was decided to lie behind it. An open one answers what is committed.
func (h *Host) readRange(id core.ExtentID, from, upTo core.Seq, maxBytes int) ([]byte, error) {
	log, err := h.extents()
	if err != nil {
		return nil, err
	}
	state, err := log.State(id)
	switch {
	case err != nil:
		return nil, err
	case !state.Fenced && from <= state.Committed:
		upTo = min(upTo, state.Committed)
	case !state.Fenced:
		return nil, core.Errorf(core.CodeConflict, "extent %s is not fenced, and nothing of it is committed from seq %d on; fence it before copying", id, from)
	case from > state.Last:
		return nil, core.Errorf(core.CodeIncomplete, "extent %s ends at %d here; copy seq %d from another replica", id, state.Last, from)
	}
	if maxBytes <= 0 || maxBytes > maxRange {
		maxBytes = maxRange
	}
	return log.Read(id, from, upTo, maxBytes)
}

// copyBatches appends batches that another replica answered, each durable before the next.
func (h *Host) copyBatches(id core.ExtentID, batches []byte) error {
	log, err := h.extents()
	if err != nil {
		return err
	}
	if len(batches) == 0 {
		return core.Errorf(core.CodeBadArgument, "no batches to copy")
	}
	for len(batches) > 0 {
		batch, rest, err := wire.NextBatch(batches)
		if err != nil {
			return err
		}
		if _, err := wire.CheckRecords(batch.Records, wire.MaxPayload); err != nil {
			return err
		}
		if err := log.Copy(id, batch.Bytes); err != nil {
			return err
		}
		h.metrics.copiedBytes.Add(float64(len(batch.Bytes)))
		batches = rest
	}
	return nil
}
