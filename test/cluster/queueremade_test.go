package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// remake deletes the queue and makes it again, with a group.
func (w *world) remake(kind core.Consistency) {
	w.t.Helper()
	w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
	_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue, Consistency: kind})
	w.ok(err)
	w.group("g", nil)
}

// TestRemadeQueue_TakesWhatIsAcknowledged deletes a queue and makes it again while a publisher has a session to it:
// what is acknowledged after the new one is there is delivered to its group. deaf: the metadata do not answer the input
// host, so that it does not hear of the deletion.
func TestRemadeQueue_TakesWhatIsAcknowledged(t *testing.T) {
	for _, kind := range []core.Consistency{core.AP, core.CP} {
		for _, stop := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second} {
			for _, deaf := range []bool{false, true} {
				t.Run(fmt.Sprint(kind, "/", stop, "/deaf ", deaf), func(t *testing.T) {
					bubbleOf(t, Options{}, core.QueueSpec{Path: queue, Consistency: kind}, func(w *world) {
						p := w.publisher()
						_, err := p.Publish(w.t.Context(), client.Message{Body: []byte("old")})
						w.ok(err)
						sleep(15 * time.Second)
						var wg sync.WaitGroup
						if deaf {
							heal := w.net.drop(path{w.hosts[Input].addr, metaAddr})
							wg.Go(func() { <-time.After(4 * time.Second); heal() })
						}
						w.remake(kind)
						<-time.After(stop)
						ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
						defer cancel()
						_, err = p.Publish(ctx, client.Message{Body: []byte("new")})
						t.Logf("publish: %v", err)
						con := w.consumer("g")
						if err == nil {
							if d := w.take(con, time.Minute); d == nil {
								t.Errorf("an acknowledged message is in the deleted queue")
							}
						}
						wg.Wait()
						w.close(con)
						p.Close(w.t.Context())
					})
				})
			}
		}
	}
}

// TestRemadeQueue_RightAfterAnother makes another queue just before, so that the input host has read the queues'
// records and pauses.
func TestRemadeQueue_RightAfterAnother(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		p := w.publisher()
		_, err := p.Publish(w.t.Context(), client.Message{Body: []byte("old")})
		w.ok(err)
		sleep(15 * time.Second)
		_, err = w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: "/t/other"})
		w.ok(err)
		sleep(50 * time.Millisecond)
		w.remake(core.AP)
		con := w.consumer("g")
		taken := 0
		for i := range 20 {
			if _, err := p.Publish(w.t.Context(), client.Message{Body: []byte(fmt.Sprint(i))}); err != nil {
				w.code("refused as", err, core.CodeNotFound)
				sleep(200 * time.Millisecond)
				continue
			}
			d := w.take(con, 10*time.Second)
			if d == nil {
				t.Fatalf("acknowledged message %d is in the deleted queue", i)
			}
			taken++
			w.ok(d.Ack())
		}
		if taken == 0 {
			t.Error("the publisher did not find the new queue")
		}
		w.close(con)
		p.Close(w.t.Context())
	})
}

// TestRemadeQueue_WaitsForTheFence deletes a queue whose only store is cut off from the controller, and not from the
// input host: messages are acknowledged still, so the path is not free until the extent is sealed.
func TestRemadeQueue_WaitsForTheFence(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		p := w.publisher()
		_, err := p.Publish(w.t.Context(), client.Message{Body: []byte("old")})
		w.ok(err)
		ctl, store := w.hosts[Controller].addr, w.hosts[Store(0)].addr
		heal := w.net.drop(path{ctl, store}, path{store, ctl})
		began := time.Now()
		for range 3 {
			err = w.Client.Admin().DeleteQueue(w.t.Context(), queue)
			w.code("a deletion without a fence", err, core.CodeUnavailable)
			_, err = w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue})
			w.code("a creation before the path is free", err, core.CodeUnavailable)
		}
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("six calls took %s", d)
		}
		heal()
		w.eventually("the path is free", time.Minute, func() bool {
			_, err = w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue})
			return err == nil
		})
		p.Close(w.t.Context())
	})
}

func (w *world) code(what string, err error, want core.Code) {
	w.t.Helper()
	if got := core.CodeOf(err); got != want {
		w.t.Errorf("%s: %s, want %s: %v", what, got, want, err)
	}
}
