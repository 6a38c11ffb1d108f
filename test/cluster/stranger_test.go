package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// TestStranger_StopsNoDeliveries: a controller starts that reaches the metadata, and that gossip shows to nobody: the
// address to join is wrong, or a firewall is in between. All queues get their messages. They do so, too, soon after the
// only controller of the cluster has restarted.
func TestStranger_StopsNoDeliveries(t *testing.T) {
	for _, cut := range []bool{true, false} {
		t.Run(fmt.Sprint("calls fail ", cut), func(t *testing.T) {
			underrace.One(t, cut)
			bubble(t, Options{Controllers: 2}, func(w *world) {
				stranger := ControllerOf(1)
				w.Crash(stranger)
				sleep(20 * time.Second)
				const queues = 12
				var ps []*client.Publisher
				var cons []*client.Consumer
				for i := range queues {
					path := fmt.Sprintf("/t/n%d", i)
					_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: path})
					w.ok(err)
					_, err = w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: path, Name: "g"})
					w.ok(err)
					p, err := w.Client.Publisher(w.t.Context(), path)
					w.ok(err)
					con, err := w.Client.Consumer(w.t.Context(), path, "g")
					w.ok(err)
					defer p.Close(w.t.Context())
					defer w.close(con)
					ps, cons = append(ps, p), append(cons, con)
				}
				all := func(when string) {
					silent := 0
					for i, p := range ps {
						_, err := p.Publish(w.t.Context(), client.Message{Body: []byte("x")})
						w.ok(err)
						if d := w.take(cons[i], 3*time.Second); d == nil {
							silent++
						} else {
							w.ok(d.Ack())
						}
					}
					if silent > 0 {
						t.Errorf("%s: %d of %d queues deliver nothing", when, silent, queues)
					}
				}
				all("before")
				var paths []path
				for _, id := range w.All() {
					if id == stranger {
						continue
					}
					paths = append(paths, path{w.hosts[stranger].addr, w.hosts[id].addr}, path{w.hosts[id].addr, w.hosts[stranger].addr})
					w.ok(w.roster.suspect(stranger, id, 1))
					w.ok(w.roster.suspect(id, stranger, 1))
				}
				if cut {
					defer w.net.drop(paths...)()
				}
				w.Up(stranger)
				for range 3 {
					sleep(time.Minute) // extents end meanwhile, so that there are new shares
					all("beside a stranger")
				}
				w.Crash(Controller)
				sleep(5 * time.Second)
				w.Up(Controller)
				sleep(30 * time.Second)
				all("after a restart of the only controller")
			})
		})
	}
}
