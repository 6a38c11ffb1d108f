package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func (w *world) onceGroup() {
	w.group("g", func(g *core.GroupSpec) { g.Delivery, g.LockTimeout = core.AtMostOnce, time.Second })
}

// receive takes what comes for a while, acks every other message, and counts all.
func (w *world) receive(con *client.Consumer, got map[string]int, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		d := w.take(con, time.Until(end))
		if d == nil {
			return
		}
		if got[string(d.Body)]++; len(got)%2 == 0 {
			d.Ack() // its connection may be lost
		}
		sleep(5 * time.Millisecond)
	}
}

// never checks that nothing came twice, and how much did not come.
func (w *world) never(got map[string]int, n, lost int) {
	w.t.Helper()
	for body, times := range got {
		if times > 1 {
			w.t.Errorf("%s was delivered %d times", body, times)
		}
	}
	if missing := n - len(got); missing > lost {
		w.t.Errorf("%d of %d messages were lost, at most %d may be", missing, n, lost)
	} else {
		w.t.Logf("%d of %d messages were lost", missing, n)
	}
}

// TestRule_DeliveryMode_NothingIsLostWithoutAFault also acks half of the messages only, and lets many lock timeouts
// pass.
func TestRule_DeliveryMode_NothingIsLostWithoutAFault(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.onceGroup()
		w.publish(numbers(1, 500)...)
		con := w.consumer("g", client.Prefetch(100))
		got := make(map[string]int)
		w.receive(con, got, time.Minute)
		w.never(got, 500, 0)
		w.eventually("all is done", 10*time.Second, func() bool { return counts(w.depth("g")) == "0 0 0 0 0" })
		w.close(con)
	})
}

// TestRule_DeliveryMode_OutputHostDies kills output hosts while they deliver, again and again.
func TestRule_DeliveryMode_OutputHostDies(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.onceGroup()
		w.publish(numbers(1, 800)...)
		con := w.consumer("g", client.Prefetch(50))
		got := make(map[string]int)
		for i := range 8 {
			w.receive(con, got, 200*time.Millisecond)
			w.Crash(OutputOf(i % 2))
			w.receive(con, got, 100*time.Millisecond)
			w.Up(OutputOf(i % 2))
		}
		w.receive(con, got, time.Minute)
		w.never(got, 800, 400)
		w.close(con)
	})
}

// TestRule_DeliveryMode_OwnerIsCutOff cuts the owner off from all hosts but not from its consumer, and stops it: it has
// another owner meanwhile, and goes on when it is back.
func TestRule_DeliveryMode_OwnerIsCutOff(t *testing.T) {
	for name, cut := range map[string]func(w *world, owner core.HostID) (heal func()){
		"cut off": func(w *world, owner core.HostID) func() {
			self := w.hosts[owner].addr
			paths := []path{{self, metaAddr}, {metaAddr, self}}
			for _, id := range w.All() {
				if a := w.hosts[id].addr; id != owner {
					paths = append(paths, path{self, a}, path{a, self})
				}
			}
			return w.net.drop(paths...)
		},
		"stands still": func(w *world, owner core.HostID) func() { return w.Hold(owner) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{Outputs: 2}, func(w *world) {
				w.onceGroup()
				w.publish(numbers(1, 2500)...)
				con := w.consumer("g", client.Prefetch(50))
				got := make(map[string]int)
				for range 2 {
					w.receive(con, got, 300*time.Millisecond)
					owner := w.owner("g")
					heal := cut(w, owner)
					suspect := func(by int) {
						for _, observer := range w.All() {
							if observer != owner {
								w.ok(w.roster.suspect(observer, owner, by))
							}
						}
					}
					suspect(1)
					w.receive(con, got, 5*time.Second)
					heal()
					suspect(-1)
					w.receive(con, got, 2*time.Second)
				}
				w.receive(con, got, time.Minute)
				w.never(got, 2500, 400)
				w.close(con)
			})
		})
	}
}

// owner is the output host of the group's newest share.
func (w *world) owner(group string) (owner core.HostID) {
	w.t.Helper()
	g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, group)
	w.ok(err)
	for r, err := range metadata.All[metadata.AssignmentRecord](w.t.Context(), w.Meta, metadata.Assignments, g.ID.String(), metadata.One) {
		w.ok(err)
		owner = r.Value.Owner
	}
	return owner
}

// refuseClaims lets a host not change what is claimed.
func refuseClaims(_ context.Context, op Op) error {
	if op.Name == "Update" && op.Table == metadata.Claims.Name {
		return errInjected
	}
	return nil
}

// TestRule_DeliveryMode_MetadataRefuseClaims hands out nothing that is not claimed durably, and goes on when claims are
// taken again.
func TestRule_DeliveryMode_MetadataRefuseClaims(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.onceGroup()
		w.publish(numbers(1, 1000)...)
		con := w.consumer("g", client.Prefetch(50))
		got := make(map[string]int)
		w.receive(con, got, 100*time.Millisecond)
		for i := range 2 {
			w.OnMeta(OutputOf(i), refuseClaims)
		}
		sleep(time.Second)
		before := len(got)
		w.receive(con, got, 10*time.Second)
		if more := len(got) - before; more > 100 {
			t.Errorf("%d messages came while nothing could be claimed", more)
		}
		for i := range 2 {
			w.OnMeta(OutputOf(i), nil)
		}
		w.receive(con, got, time.Minute)
		w.never(got, 1000, 0)
		w.close(con)
	})
}
