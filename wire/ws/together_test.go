package ws

import (
	"testing"
	"testing/synctest"
)

// thirds gives each of three connections an equal part.
type thirds struct{ bound, queued int }

func (b *thirds) Count(before, now int) { b.queued += now - before }

func (b *thirds) Room(queued int) int { return max(b.bound/3-queued, 0) }

// TestConn_QueuesAPartOfWhatIsBoundTogether: peers that do not read cost less than SendBytes each, one that reads again
// gets its part, and a connection that ends gives its own back.
func TestConn_QueuesAPartOfWhatIsBoundTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		together := &thirds{bound: 300_000}
		drained := make([]int, 3)
		var links []link
		fill := func(i int) (queued int) {
			for c := links[i].client; !c.Full() && queued < 1<<20; queued += 1000 {
				if err := c.PushOwned(frame(i, 1), make([]byte, 1000), nil); err != nil {
					t.Fatal(err)
				}
			}
			return queued
		}
		for i := range drained {
			links = append(links, memoryLink(t, Options{SendBytes: 1 << 20, Together: together, Drained: func() { drained[i]++ }}, Options{}))
			if n := fill(i); n < 80_000 || n > 100_000 {
				t.Errorf("connection %d queued %d bytes, want most of 100,000", i, n)
			}
		}
		if most := together.bound + len(links)*2000; together.queued > most {
			t.Errorf("%d bytes are queued, want at most %d", together.queued, most)
		}
		running(t, links[0].server, ignore)
		running(t, links[0].client, ignore)
		synctest.Wait()
		if drained[0] != 1 || links[0].client.Full() {
			t.Errorf("the connection that is read was drained %d times, want once", drained[0])
		}
		for _, l := range links {
			l.client.Abort(nil)
			l.server.Abort(nil)
		}
		if synctest.Wait(); together.queued != 0 {
			t.Errorf("%d bytes are counted after the ends", together.queued)
		}
	})
}
