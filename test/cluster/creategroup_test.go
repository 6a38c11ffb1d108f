package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestCreateGroup_TwoAtOnce has two clients make one group at once, as the instances of a service do that start
// together: both succeed. A message that is acknowledged after one of them was told that the group is there must come,
// and one of before must not.
func TestCreateGroup_TwoAtOnce(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.publish("before")
		var seen atomic.Int64
		held, release := make(chan struct{}), make(chan struct{})
		w.OnMeta(Controller, func(_ context.Context, op Op) error {
			if op.Name == "Get" && op.Table == metadata.Seals.Name && seen.Add(1) == 1 {
				close(held)
				<-release // a metadata call, or a store, that takes a moment
			}
			return nil
		})
		spec := core.GroupSpec{Queue: queue, Name: "g", Start: core.Start{Mode: core.StartLatest}}
		slow := make(chan error, 1)
		go func() {
			_, err := w.Client.Admin().CreateGroup(w.t.Context(), spec)
			slow <- err
		}()
		<-held
		_, err := w.Client.Admin().CreateGroup(w.t.Context(), spec)
		w.ok(err)
		w.publish("after") // acknowledged after the group was there
		close(release)
		w.ok(<-slow)
		w.OnMeta(Controller, nil)
		sleep(5 * time.Second)
		con := w.consumer("g")
		if d := w.take(con, time.Minute); d == nil || string(d.Body) != "after" {
			t.Errorf("%v came, want %q; depth %+v", d, "after", w.depth("g"))
		}
		w.close(con)
	})
}

// TestCreateGroup_BySecondController: two controllers are there, and one has not heard of the extents that the other
// one made. Where a group begins, and where a seek leads, does not depend on the controller that is asked.
func TestCreateGroup_BySecondController(t *testing.T) {
	bubble(t, Options{Controllers: 2, Input: rollAt(500)}, func(w *world) {
		sleep(10 * time.Second)
		drain := func(path string) (n int) {
			con, err := w.Client.Consumer(w.t.Context(), path, "g")
			w.ok(err)
			for d := w.take(con, 40*time.Second); d != nil; d = w.take(con, 40*time.Second) {
				n++
				w.ok(d.Ack())
			}
			w.close(con)
			return n
		}
		early, again := 0, 0
		for i := range 10 {
			path := fmt.Sprintf("/t/q%d", i) // each queue has another first controller
			_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: path})
			w.ok(err)
			p, err := w.Client.Publisher(w.t.Context(), path)
			w.ok(err)
			for range 20 {
				_, err = p.Publish(w.t.Context(), client.Message{Body: []byte("before")})
				w.ok(err)
			}
			_, err = w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: path, Name: "g", Start: core.Start{Mode: core.StartLatest}})
			w.ok(err)
			early += drain(path)
			for range 20 {
				_, err = p.Publish(w.t.Context(), client.Message{Body: []byte("between")})
				w.ok(err)
			}
			_, err = w.Client.Admin().Seek(w.t.Context(), path, "g", core.Start{Mode: core.StartLatest})
			w.ok(err)
			sleep(2 * time.Second) // until the output hosts have heard of it
			again += drain(path)
			w.ok(p.Close(w.t.Context()))
		}
		if early+again > 0 {
			t.Errorf("%d messages of before a group came, %d of before a seek to latest", early, again)
		}
	})
}
