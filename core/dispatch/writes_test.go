package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// frames are what a client sends of the settlements that an application gave in this order, those of a nack alone and
// acks together: no more than eight nacks go before acks that were given earlier, in each write of so many settlements.
func clientFrames(settled []core.Seq, bad func(core.Seq) bool, write int) (frames [][]core.Seq) {
	const ahead = 8
	nacks := 0
	var acks []core.Seq
	flush := func() {
		if len(acks) > 0 {
			frames = append(frames, acks)
		}
		acks, nacks = nil, 0
	}
	for i, seq := range settled {
		if i%write == 0 {
			flush()
		}
		if !bad(seq) {
			acks = append(acks, seq)
			continue
		}
		if nacks >= ahead && len(acks) > 0 {
			flush()
		}
		frames = append(frames, []core.Seq{seq})
		nacks++
	}
	flush()
	return frames
}

// TestBreaker_NacksOfWrites has every fifth message of several consumers fail, in no order, whose frames come mixed.
// The breaker stays closed, since others succeed all the time. Then all of them fail, and it opens.
func TestBreaker_NacksOfWrites(t *testing.T) {
	for _, consumers := range []int{1, 2, 3, 4, 8, 16, 64} {
		t.Run(fmt.Sprint(consumers, " consumers"), func(t *testing.T) {
			const n, outage, known = 8000, 500, 100 // of the first ones it is seen that some fail, and others do not
			g, s := newShare(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, NoNackThrottle: true}, n+outage)
			random := rand.New(rand.NewPCG(1, 2))
			failing := map[core.Seq]bool{}
			given := make([][]core.Seq, consumers)
			take(g, n+outage, start)
			for seq := core.Seq(1); seq <= n; seq++ {
				failing[seq] = random.IntN(5) == 0
				if seq > known {
					given[int(seq)%consumers] = append(given[int(seq)%consumers], seq)
				}
			}
			sending := make([][][]core.Seq, consumers)
			for i := range sending {
				sending[i] = clientFrames(given[i], func(seq core.Seq) bool { return failing[seq] }, 100)
			}
			now := start
			nack := func(seq core.Seq, after time.Duration) {
				now = now.Add(after)
				if err := s.Nack(seq, 1, time.Minute, nil, 0, now); err != nil {
					t.Fatal(err)
				}
			}
			for seq := core.Seq(1); seq <= known; seq++ {
				if failing[seq] {
					nack(seq, 10*time.Microsecond)
				} else {
					s.Ack(seq, 1, 1, now, nil)
				}
			}
			for len(sending) > 0 {
				i := random.IntN(len(sending))
				if len(sending[i]) == 0 {
					sending = slices.Delete(sending, i, i+1)
					continue
				}
				for _, seq := range sending[i][0] {
					if failing[seq] {
						nack(seq, 10*time.Microsecond)
					} else {
						s.Ack(seq, 1, 1, now, nil)
					}
				}
				sending[i] = sending[i][1:]
			}
			if x := g.Counters(); x.Opened > 0 || x.NotCounted > 0 {
				t.Fatalf("the breaker opened %d times, and %d of %d failures do not count", x.Opened, x.NotCounted, x.Nacked)
			}
			counted := 0
			for seq := core.Seq(n + 1); seq <= n+outage; seq++ {
				nack(seq, time.Millisecond)
			}
			for seq := core.Seq(n + 1); seq <= n+outage; seq++ {
				if s.notCounted(seq) == 0 {
					counted++
				}
			}
			if state, _ := g.Breaker(); state == BreakerClosed || counted > 0 {
				t.Errorf("nothing succeeds: the breaker is %s, and %d of %d failures count", state, counted, outage)
			}
		})
	}
}
