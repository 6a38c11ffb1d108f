package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestWhyStuck_ReadAhead has a slow consumer hold a few messages of a backlog larger than what may be outstanding. The
// output host has read as much as it may, and most of that could be delivered: only the consumer is slow.
func TestWhyStuck_ReadAhead(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Hour })
		p := w.publisher()
		for range 11_000 {
			w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: []byte("x")}, nil))
		}
		w.ok(p.Close(w.t.Context()))
		con := w.consumer("g", client.Prefetch(1))
		sleep(10 * time.Second)
		if why := w.stuck("g", "in_flight"); !slices.Equal(why.Also, []string{"no_credit"}) {
			t.Errorf("also %v, want only that the consumer has no credit", why.Also)
		}
		w.close(con)
	})
}

// TestWhyStuck_WhileStoresHang: all stores stand still. An operator hears all the same why a group does not go
// on.
func TestWhyStuck_WhileStoresHang(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 3; patient(g) })
		w.publish(numbers(1, 10)...)
		con := w.consumer("g")
		for i := range 10 {
			switch d := w.take(con, time.Minute); i {
			case 0:
				w.ok(d.Reject("bad"))
			case 1:
				w.ok(d.Nack(client.After(time.Hour)))
			}
		}
		sleep(5 * time.Second)
		for i := range 2 {
			defer w.Hold(Store(i))()
		}
		_, err := w.Client.Admin().WhyStuck(w.t.Context(), queue, "g") // its owner may answer, or not
		w.ok(err)
	})
}
