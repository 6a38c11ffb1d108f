package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// readFrom is the store that the output hosts read the newest extent from: the first in rank.
func (w *world) readFrom() core.HostID {
	w.t.Helper()
	var newest core.Extent
	name, _, err := metadata.Read[metadata.NameRecord](w.t.Context(), w.Meta, metadata.Names, metadata.NameKey(queue), metadata.One)
	w.ok(err)
	for r, err := range metadata.All[metadata.ExtentRecord](w.t.Context(), w.Meta, metadata.Extents, name.Queue.String(), metadata.One) {
		w.ok(err)
		newest = r.Value.Extent
	}
	return core.Rank(newest.ID.String(), newest.Replicas, func(id core.HostID) core.HostID { return id })[0]
}

// drain acks what comes until n different messages have come, counted in got, and nothing more does for a while.
func (w *world) drain(con *client.Consumer, n int, got map[string]int) {
	w.t.Helper()
	for {
		patience := 3 * time.Minute
		if len(got) >= n {
			patience = 5 * time.Second
		}
		d := w.take(con, patience)
		if d == nil {
			return
		}
		got[string(d.Body)]++
		d.Ack() // its connection may be lost
		sleep(5 * time.Millisecond)
	}
}

// TestConsume_AnotherReplicaWhenAStoreStops reads a backlog from a store that stops in the middle of it, without a word
// or with one.
func TestConsume_AnotherReplicaWhenAStoreStops(t *testing.T) {
	const n = 3000
	for name, stop := range map[string]func(w *world, store core.HostID) (undo func()){
		"stands still": func(w *world, store core.HostID) func() { return w.Hold(store) },
		"crashes":      func(w *world, store core.HostID) func() { w.Crash(store); return func() {} },
		"cut off":      func(w *world, store core.HostID) func() { w.Cut(Output, store); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{Stores: 3}, func(w *world) {
				w.group("g", nil)
				bodies := numbers(1, n)
				w.publish(bodies...)
				con := w.consumer("g", client.Prefetch(50))
				got := make(map[string]int)
				for range n / 10 {
					d := w.take(con, time.Minute)
					got[string(d.Body)]++
					w.ok(d.Ack())
				}
				undo := stop(w, w.readFrom())
				began := time.Now()
				d := w.take(con, time.Minute)
				if d == nil {
					t.Fatal("nothing comes any more")
				}
				got[string(d.Body)]++
				w.ok(d.Ack())
				if waited := time.Since(began); waited > 5*time.Second {
					t.Errorf("it took %s to go on", waited)
				}
				w.drain(con, n, got)
				w.all(got, bodies, true)
				w.close(con)
				undo()
			})
		})
	}
}

// TestConsume_FollowsARollAwayFromAStoppedStore publishes on while the store that is read from stands still: the extent
// is sealed without it, and what was committed, by its word or not, comes all the same.
func TestConsume_FollowsARollAwayFromAStoppedStore(t *testing.T) {
	bubble(t, Options{Stores: 4, Replicas: 3}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		w.publish("first")
		w.ok(w.next(con, "first", 1).Ack())
		undo := w.Hold(w.readFrom())
		bodies := numbers(1, 100)
		w.publish(bodies...)
		began := time.Now()
		w.all(w.collect(con, len(bodies)), bodies, true)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %s", took)
		}
		undo()
		w.close(con)
	})
}

// TestConsume_SharesMoveWhenAnOutputHostDies counts what comes twice: no more than what was under way and about a tenth
// of a second of acks.
func TestConsume_SharesMoveWhenAnOutputHostDies(t *testing.T) {
	for name, end := range map[string]func(w *world, id core.HostID){
		"crash":    func(w *world, id core.HostID) { w.Crash(id) },
		"graceful": func(w *world, id core.HostID) { w.Restart(id) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{Outputs: 2}, func(w *world) {
				w.group("g", nil)
				con := w.consumer("g", client.Prefetch(100))
				stop := w.load(10)
				got := make(map[string]int)
				take := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); {
						if d := w.take(con, 100*time.Millisecond); d != nil {
							got[string(d.Body)]++
							d.Ack() // its connection may be lost
						}
					}
				}
				take(5 * time.Second)
				for _, id := range []core.HostID{OutputOf(0), OutputOf(1)} {
					end(w, id)
					take(5 * time.Second)
					before := len(got)
					take(time.Second)
					if len(got) == before {
						t.Errorf("nothing is delivered 5 s after the %s of %s", name, id)
					}
					if name == "crash" {
						w.Up(id)
						take(2 * time.Second)
					}
				}
				bodies := stop()
				w.drain(con, len(bodies), got)
				w.all(got, bodies, false)
				twice := 0
				for _, n := range got {
					twice += n - 1
				}
				t.Logf("%d of %d came twice", twice, len(bodies))
				if twice > 2*100 {
					t.Errorf("%d messages came twice", twice)
				}
				w.close(con)
			})
		})
	}
}

// TestConsume_ZombieOwnerDoesNoHarm holds an output host up for half a minute: its shares move. When it goes on it
// delivers no more of them than it had credit for, and nothing that it then saves brings a message back.
func TestConsume_ZombieOwnerDoesNoHarm(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g", client.Prefetch(100))
		bodies := numbers(1, 3000)
		w.publish(bodies...)
		got := make(map[string]int)
		for len(got) < 200 {
			d := w.take(con, time.Minute)
			got[string(d.Body)]++
			w.ok(d.Ack())
		}
		var owner core.HostID
		g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, "g")
		w.ok(err)
		for r, err := range metadata.All[metadata.AssignmentRecord](w.t.Context(), w.Meta, metadata.Assignments, g.ID.String(), metadata.One) {
			w.ok(err)
			owner = r.Value.Owner
		}
		for _, observer := range w.All() {
			if observer != owner {
				w.ok(w.roster.suspect(observer, owner, 1))
			}
		}
		release := w.Hold(owner)
		w.drain(con, len(bodies), got)
		release()
		for _, observer := range w.All() {
			if observer != owner {
				w.ok(w.roster.suspect(observer, owner, -1))
			}
		}
		w.drain(con, len(bodies), got) // the credit it was sent meanwhile it may use until it learns
		sleep(30 * time.Second)
		if d := w.take(con, 2*time.Minute); d != nil {
			t.Errorf("%s came again at the end, as attempt %d", d.Body, d.Attempt)
		}
		w.all(got, bodies, false)
		twice := 0
		for _, n := range got {
			twice += n - 1
		}
		if twice > 2*100+400 { // in flight, the acks before, and until it learns: two seconds at 200/s
			t.Errorf("%d messages came twice", twice)
		}
		w.close(con)
	})
}
