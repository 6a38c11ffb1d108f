package writer

import "sync"

// batchBuffers holds buffers for batches made of several chunks.
var batchBuffers = sync.Pool{New: func() any { return new([]byte) }}

// gather makes one run of bytes of the chunks: their own, held, when there is one chunk, a pooled copy otherwise.
func gather(chunks []Chunk, bytes int) (buf []byte, release func()) {
	if len(chunks) == 1 {
		chunks[0].Hold.Retain()
		return chunks[0].Records, chunks[0].Hold.Release
	}
	p := batchBuffers.Get().(*[]byte)
	b := (*p)[:0]
	if cap(b) < bytes {
		b = make([]byte, 0, bytes)
	}
	for _, c := range chunks {
		b = append(b, c.Records...)
	}
	return b, func() {
		*p = b
		batchBuffers.Put(p)
	}
}
