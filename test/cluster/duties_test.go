package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

const (
	// dutyLook is how often the controllers are asked who is responsible for a queue.
	dutyLook = 50 * time.Millisecond
	// dutySettles is within what time after the last fault every queue has its controller: the lease of a dead one has
	// ended, and the others have met.
	dutySettles = 15 * time.Second
)

// watchDuties looks for queues for which two controllers are responsible at one time, until the returned function is
// called. That one, after all faults, looks for queues without a controller.
func (t *trial) watchDuties() (stop func()) {
	keys := make(map[string]core.ID)
	for _, q := range t.load.queues {
		made, err := t.Client.Admin().GetQueue(t.t.Context(), q.Path)
		t.must(err)
		keys[q.Path] = made.ID.ID
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		clashed := make(map[string]bool)
		for ticker := time.NewTicker(dutyLook); ; {
			select {
			case <-done:
				ticker.Stop()
				return
			case <-ticker.C:
			}
			for path, key := range keys {
				if both := t.acting.responsible(key); len(both) > 1 && !clashed[path] {
					clashed[path] = true
					t.t.Errorf("%s: %v are responsible for %s", time.Now().Format("04:05.000"), both, path)
				}
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		if t.acting.deciders() == 0 {
			t.say("no controller says what it is responsible for")
			return
		}
		sleep(dutySettles)
		for path, key := range keys {
			if one := t.acting.responsible(key); len(one) != 1 {
				t.t.Errorf("in the end %v are responsible for %s, want one", one, path)
			}
		}
	}
}

// TestControllers_NothingIsLate: nothing fails, extents are made and sealed, and messages come within two seconds, and
// once.
//
//	go test ./test/cluster -run NothingIsLate -controllers=2
func TestControllers_NothingIsLate(t *testing.T) {
	messages, late := underrace.Of(500, 1500), 2*time.Second
	bubble(t, Options{Controllers: *ctlFlag, Outputs: 2, Input: rollAt(24_000)}, func(w *world) {
		w.group("g", nil)
		sleep(10 * time.Second)
		con, p := w.consumer("g"), w.publisher()
		bodies := numbers(1, messages)
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, b := range bodies {
				if _, err := p.Publish(w.t.Context(), client.Message{Body: []byte(b)}); err != nil {
					w.t.Errorf("publish %s: %v", b, err)
				}
				sleep(500 * time.Millisecond)
			}
		})
		got := make(map[string]int)
		slow, most := 0, time.Duration(0)
		for patience := 2 * time.Minute; ; {
			d := w.take(con, patience)
			if d == nil {
				break
			}
			lag := time.Since(d.Enqueued)
			if most = max(most, lag); lag > late {
				slow++
			}
			got[string(d.Body)]++
			w.ok(d.Ack())
		}
		wg.Wait()
		if slow > 0 {
			w.t.Errorf("%d of %d messages came more than %s late, one %s", slow, messages, late, most)
		}
		w.all(got, bodies, true)
		w.ok(p.Close(w.t.Context()))
		w.close(con)
	})
}
