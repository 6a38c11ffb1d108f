package writer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// A writer of a chain passes nothing on before the end is known; then what is in the extent is answered, and all the
// rest goes on in order.
func TestWriter_ChainPassesOnAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 3)
		b.w.Extent.Chain = 1
		b.start()
		p := &publisher{}
		const n = gatherAt + 5
		for i := range uint64(n) {
			b.w.Append(chunk(t, p, i+1, 1))
		}
		decided := false
		b.seal = func(core.Seq) (core.Seq, int, error) {
			if !decided {
				return 0, 0, core.Errorf(core.CodeUnavailable, "not yet")
			}
			return 3, 2, nil
		}
		b.w.Fail("a", core.Errorf(core.CodeUnavailable, "link broke"))
		time.Sleep(time.Second)
		b.mu.Lock()
		if len(b.again) > 0 || len(p.answers()) > 0 {
			t.Errorf("passed on %d, answered %v before the end is known", len(b.again), p.answers())
		}
		decided = true
		b.mu.Unlock()
		b.settled()
		for i := range uint64(3) {
			if o := p.answers()[i+1]; o.Status != wire.AckOK || o.Base != core.Seq(i+1) {
				t.Errorf("chunk %d: %+v", i+1, o)
			}
		}
		var got, want []uint64
		for _, c := range b.again {
			got = append(got, c.First)
		}
		for i := uint64(4); i <= n; i++ {
			want = append(want, i)
		}
		if !slices.Equal(got, want) {
			t.Errorf("passed on %v, want %v", got, want)
		}
	})
}

// Records that a failing writer has gathered for a batch are not lost, and keep their place.
func TestWriter_ChainTakesTheBatchBeingMade(t *testing.T) {
	b := newHarness(t, 1)
	b.w.Extent.Chain = 1
	p := &publisher{}
	b.w.mu.forming = true
	done := make(chan []owed)
	go func() { done <- b.w.unsent([]Chunk{chunk(t, p, 2, 1)}) }()
	b.w.mu.Lock()
	b.w.mu.late = []Chunk{chunk(t, p, 1, 1)}
	b.w.mu.Unlock()
	b.w.formed <- struct{}{}
	if got := <-done; len(got) != 2 || got[0].chunk.First != 1 || got[1].chunk.First != 2 {
		t.Errorf("got %+v", got)
	}
	b.settled()
}
