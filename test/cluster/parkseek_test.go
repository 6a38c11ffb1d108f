package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestPark_SeeksMeetAcks sends a group elsewhere again and again, while what was parked comes back, is acked, and some
// of it is parked once more: each attempt comes once, and nothing is lost, however close an ack, or the opening of an
// extent, is to a seek.
func TestPark_SeeksMeetAcks(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		const n = 60
		w.group("g", patient)
		w.publish(numbers(1, n)...)
		con := w.consumer("g", client.Prefetch(20))
		for i := range n {
			w.ok(w.take(con, time.Minute).Nack(client.After(35*time.Second + time.Duration(i)*50*time.Millisecond)))
		}
		w.eventually("all are parked", 20*time.Second, func() bool { return len(w.parked("g")) == n })
		done, stop := make(chan int), make(chan struct{})
		go func() {
			seeks := 0
			for {
				select {
				case <-stop:
					done <- seeks
					return
				case <-time.After(700 * time.Millisecond):
				}
				if _, err := w.Client.Admin().Seek(w.t.Context(), queue, "g", core.Start{Mode: core.StartLatest}); err != nil {
					t.Errorf("seek: %v", err)
				}
				seeks++
			}
		}()
		came := make(map[string]int)
		for d := w.take(con, 2*time.Minute); d != nil; d = w.take(con, time.Minute) {
			came[fmt.Sprint(string(d.Body), " ", d.Attempt)]++
			if d.Attempt == 2 && d.Body[len(d.Body)-1]%2 == 1 {
				w.ok(d.Nack(client.After(35 * time.Second)))
			} else {
				w.ok(d.Ack())
			}
		}
		close(stop)
		if seeks := <-done; seeks < 40 {
			t.Errorf("%d seeks", seeks)
		}
		for i, body := range numbers(1, n) {
			for attempt := 2; attempt <= 3; attempt++ {
				want := 1
				if attempt == 3 && i%2 == 1 { // an even number
					want = 0
				}
				if got := came[fmt.Sprint(body, " ", attempt)]; got != want {
					t.Errorf("attempt %d of %s came %d times, want %d", attempt, body, got, want)
				}
			}
		}
		if got := w.places("g"); got != "0 0 0 0 0" {
			t.Errorf("depth %s", got)
		}
		w.close(con)
	})
}
