package writer

import (
	"math"

	"github.com/columbamq/columba/core"
)

// chained: the extent is one of a chain, whose order outlives it. Nothing that was taken is passed on before the end of the extent is known,
// and then all of it in its order: what the seal answers is answered, and the rest goes on.
func (w *Writer) chained() bool { return w.Extent.Chain > 0 }

// beyond is above every end: what was never sent is never in the extent.
const beyond = core.Seq(math.MaxUint64)

// unsent is what a failed writer of a chain had not sent, in the order it was taken; what it had taken for a batch comes first. Only settle
// calls it, once.
func (w *Writer) unsent(pending []Chunk) []owed {
	w.mu.Lock()
	forming := w.mu.forming
	w.mu.Unlock()
	if forming { // it is only copied just now
		<-w.formed
	}
	w.mu.Lock()
	late := w.mu.late
	w.mu.Unlock()
	out := make([]owed, 0, len(late)+len(pending))
	for _, chunks := range [][]Chunk{late, pending} {
		for _, c := range chunks {
			out = append(out, owed{chunk: c, last: beyond})
		}
	}
	return out
}
