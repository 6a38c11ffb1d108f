package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

func (w *world) seek(group string, to core.Start) {
	w.t.Helper()
	_, err := w.Client.Admin().Seek(w.t.Context(), queue, group, to)
	w.ok(err)
}

// TestCluster_Seek sends a group, whose consumer stays connected, back to the beginning, to a time, and to the end.
func TestCluster_Seek(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(2_000)}, func(w *world) {
		w.group("g", nil)
		w.group("other", nil)
		con := w.consumer("g")
		first := numbers(1, 100)
		w.publish(first...)
		w.all(w.collect(con, 100), first, true)
		sleep(3 * time.Minute)
		between := time.Now()
		sleep(time.Second)
		second := numbers(101, 200)
		w.publish(second...)
		w.all(w.collect(con, 100), second, true)
		sleep(3 * time.Minute) // all is sealed as idle, and done
		w.seek("g", core.Start{Mode: core.StartEarliest})
		w.all(w.collect(con, 200), numbers(1, 200), true)
		w.seek("g", core.Start{Mode: core.StartTime, At: between})
		w.all(w.collect(con, 100), second, true)
		w.seek("g", core.Start{Mode: core.StartEarliest})
		w.seek("g", core.Start{Mode: core.StartLatest})
		w.publish("last")
		for d := w.take(con, time.Minute); ; d = w.take(con, time.Minute) {
			if d == nil {
				t.Fatal("what was published after the seek did not come")
			}
			w.ok(d.Ack())
			if string(d.Body) == "last" {
				break
			}
		}
		if d := w.take(con, 30*time.Second); d != nil {
			t.Errorf("%s came after the seek to the end", d.Body)
		}
		w.close(con)
		other := w.consumer("other")
		w.all(w.collect(other, 201), append(numbers(1, 200), "last"), true)
		w.close(other)
	})
}

// TestCluster_SeekVoidsTokens settles what was delivered before a seek: it is refused, and delivered again.
func TestCluster_SeekVoidsTokens(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		con := w.consumer("g", client.WithTokens())
		d := w.next(con, "a", 1)
		token := d.Token
		w.seek("g", core.Start{Mode: core.StartEarliest})
		again := w.next(con, "a", 1)
		failures, err := w.Client.Ack(w.t.Context(), token, again.Token)
		w.ok(err)
		if len(failures) != 1 || failures[0].Token != token || core.CodeOf(failures[0].Err) != core.CodeStale {
			t.Errorf("refused are %+v, want the token of before as stale", failures)
		}
		w.close(con)
	})
}

// TestCluster_SeekUnderLoad sends a group back while it consumes what is being published, with an output host that
// dies: in the end it has all from the beginning on, once more.
func TestCluster_SeekUnderLoad(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(5_000)}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		stop := w.load(4)
		before := make(map[string]int)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if d := w.take(con, time.Second); d != nil {
				before[string(d.Body)]++
				w.ok(d.Ack())
			}
		}
		w.seek("g", core.Start{Mode: core.StartEarliest})
		after := make(map[string]int)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if d := w.take(con, time.Second); d != nil {
				after[string(d.Body)]++
				_ = d.Ack()
			}
		}
		w.Crash(OutputOf(0))
		sleep(3 * time.Second)
		w.Up(OutputOf(0))
		acked := stop()
		for body, n := range w.collect(con, len(acked)-len(after)) {
			after[body] += n
		}
		missing := 0
		for _, body := range acked {
			if after[body] == 0 {
				missing++
			}
		}
		if missing > 0 || len(before) == 0 {
			t.Errorf("%d of %d messages did not come after the seek, %d came before it", missing, len(acked), len(before))
		}
		w.close(con)
	})
}

// TestCluster_SeekOfAChain keeps the order of a CP queue.
func TestCluster_SeekOfAChain(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(2_000)}, func(w *world) {
		const path = "/t/chain"
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: path, Consistency: core.CP})
		w.ok(err)
		_, err = w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: path, Name: "g", Start: core.Start{Mode: core.StartEarliest}})
		w.ok(err)
		p, err := w.Client.Publisher(w.t.Context(), path)
		w.ok(err)
		bodies := numbers(1, 300)
		for _, b := range bodies {
			w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: []byte(b)}, func(_ client.Receipt, err error) { w.ok(err) }))
		}
		w.ok(p.Close(w.t.Context()))
		con, err := w.Client.Consumer(w.t.Context(), path, "g")
		w.ok(err)
		for range 3 {
			for i := 0; i < len(bodies); {
				d := w.take(con, time.Minute)
				if d == nil {
					t.Fatalf("nothing came after %d messages", i)
				}
				if string(d.Body) == bodies[0] {
					i = 0 // the seek
				}
				if string(d.Body) == bodies[i] {
					i++
				} else if string(d.Body) > bodies[i] && i > 0 {
					t.Fatalf("%s came, want %s", d.Body, bodies[i])
				}
				_ = d.Ack()
			}
			_, err := w.Client.Admin().Seek(w.t.Context(), path, "g", core.Start{Mode: core.StartEarliest})
			w.ok(err)
		}
		w.close(con)
	})
}
