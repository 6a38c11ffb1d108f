package wire

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// AppendAppendHead writes a TypeAppend frame up to its batch, of batchLen bytes, which the caller sends after it. The
// body is committed u64 | batch; committed is the highest seq known durable on all replicas.
func AppendAppendHead(dst []byte, stream uint32, committed core.Seq, batchLen int) []byte {
	dst = AppendFrameHeader(dst, TypeAppend, 0, stream, 8+batchLen)
	return binary.LittleEndian.AppendUint64(dst, uint64(committed))
}

// DecodeAppend reads the body of a TypeAppend; batch aliases it. It does not look at the batch: see DecodeBatch.
func DecodeAppend(body []byte) (committed core.Seq, batch []byte, err error) {
	if len(body) < 8+BatchHeaderLen {
		return 0, nil, errShort("append", len(body))
	}
	return core.Seq(binary.LittleEndian.Uint64(body)), body[8:], nil
}

// AppendBatchesHead writes the header of a TypeBatches frame with batches of total bytes, which the caller sends after
// it. The receiver splits them with NextBatch.
func AppendBatchesHead(dst []byte, stream uint32, total int) []byte {
	return AppendFrameHeader(dst, TypeBatches, 0, stream, total)
}
