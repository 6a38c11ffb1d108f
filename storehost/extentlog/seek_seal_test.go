package extentlog

import (
	"testing"
	"testing/synctest"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestSeek_WhileASealCutsOff: what a seal takes away under a reader is no damage.
func TestSeek_WhileASealCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g readGate
		e := turning(t, g.disk())
		x, h := newExtent(), wire.BatchHeader{}
		must(t, e.Open(x))
		for range 8 {
			appendBatch(t, e, x, nextBatch(t, &h, 100))
		}
		_, err := e.Fence(x, 1)
		must(t, err)
		open := g.shut()
		type answer struct {
			seq core.Seq
			err error
		}
		found := make(chan answer, 1)
		go func() {
			seq, err := e.Seek(x.ID, h.AppendTime+1)
			found <- answer{seq, err}
		}()
		synctest.Wait() // it looks at the middle
		must(t, e.Seal(x.ID, 0, 0, 1))
		open()
		if a := <-found; a != (answer{1, nil}) {
			t.Errorf("the end is at %d, %v", a.seq, a.err)
		}
	})
}
