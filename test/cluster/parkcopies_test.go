package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestPark_DiesBetweenAppendAndAck kills an output host that has appended a message to the retry queue and does not
// know it: whoever comes after it finds it there, and there are not two of it.
func TestPark_DiesBetweenAppendAndAck(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", patient)
		w.publish("a", "b")
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Nack(client.After(20 * time.Minute)))
		w.eventually("the retry queue is there", 10*time.Second, func() bool { return len(w.parked("g")) == 1 })
		heal := w.net.drop(path{w.hosts[Input].addr, w.hosts[Output].addr})
		w.ok(w.next(con, "b", 1).Nack(client.After(10 * time.Minute)))
		sleep(2 * time.Second)
		w.Crash(Output)
		heal()
		w.Up(Output)
		sleep(time.Minute)
		if n := len(w.parked("g")); n != 2 {
			t.Errorf("%d are parked, want both once", n)
		}
		sleep(8*time.Minute + 40*time.Second)
		w.ok(w.next(con, "b", 2).Ack())
		sleep(2 * time.Second)
		w.Crash(Output) // what it knew of copies is gone
		w.Up(Output)
		sleep(9*time.Minute + 30*time.Second)
		w.ok(w.next(con, "a", 2).Ack())
		if d := w.take(con, 5*time.Minute); d != nil {
			t.Errorf("%s came twice, as attempt %d", d.Body, d.Attempt)
		}
		if got := w.places("g"); got != "0 0 0 0 0" {
			t.Errorf("depth %s", got)
		}
		w.close(con)
	})
}

// TestPark_OneOverALostConnection loses the answer to an append to the retry queue, and nothing else: the owner finds
// the message there and does not append it again.
func TestPark_OneOverALostConnection(t *testing.T) {
	for _, reset := range []bool{true, false} {
		bubble(t, Options{Inputs: 2}, func(w *world) {
			w.group("g", patient)
			w.publish("a", "b")
			con := w.consumer("g")
			w.ok(w.next(con, "a", 1).Nack(client.After(20 * time.Minute)))
			w.eventually("the retry queue is there", 10*time.Second, func() bool { return len(w.parked("g")) == 1 })
			out := w.hosts[Output].addr
			heal := w.net.drop(path{w.hosts[InputOf(0)].addr, out}, path{w.hosts[InputOf(1)].addr, out})
			w.ok(w.next(con, "b", 1).Nack(client.After(10 * time.Minute)))
			w.eventually("both are there", 2*time.Second, func() bool { return len(w.parked("g")) == 2 })
			if reset {
				w.Cut(Output, InputOf(0))
				w.Cut(Output, InputOf(1))
			} else {
				sleep(5 * time.Second)
			}
			heal()
			sleep(2 * time.Minute)
			if n := len(w.parked("g")); n != 2 {
				t.Errorf("reset %v: %d are parked, want both once", reset, n)
			}
			w.close(con)
		})
	}
}

// storeOf is the first store of an extent.
func (w *world) storeOf(path string, id core.ExtentID) core.HostID {
	w.t.Helper()
	name, _, err := metadata.Read[metadata.NameRecord](w.t.Context(), w.Meta, metadata.Names, metadata.NameKey(path), metadata.One)
	w.ok(err)
	e, _, err := metadata.Read[metadata.ExtentRecord](w.t.Context(), w.Meta, metadata.Extents, metadata.ExtentKey(name.Queue, id), metadata.One)
	w.ok(err)
	return e.Replicas[0]
}

// parkedInDoubt parks two messages. Nobody heard that the second one, which waits for so long, was appended, and its
// store is away.
func (w *world) parkedInDoubt(wait time.Duration) (con *client.Consumer, away core.HostID) {
	w.t.Helper()
	w.group("g", patient)
	w.publish("a", "b")
	con = w.consumer("g")
	w.ok(w.next(con, "a", 1).Nack(client.After(20 * time.Minute)))
	w.eventually("the retry queue is there", 10*time.Second, func() bool { return len(w.parked("g")) == 1 })
	heal := w.net.drop(path{w.hosts[Input].addr, w.hosts[Output].addr})
	w.ok(w.next(con, "b", 1).Nack(client.After(wait)))
	sleep(2 * time.Second)
	away = w.storeOf(core.RetryPath(queue, "g"), w.parked("g")[0].Receipt.Extent)
	w.Crash(away)
	sleep(25 * time.Second)
	heal()
	return con, away
}

// TestPark_StoreIsAwayWhileItIsLookedFor has the store away that has a message of an append of unknown outcome, until
// the message is due. Then the output host dies: the message comes once.
func TestPark_StoreIsAwayWhileItIsLookedFor(t *testing.T) {
	bubble(t, Options{Stores: 2, Replicas: 1}, func(w *world) {
		con, away := w.parkedInDoubt(2 * time.Minute)
		came := 0
		ackAll := func(end time.Time) {
			for {
				d := w.take(con, time.Until(end))
				if d == nil {
					return
				}
				came++
				w.ok(d.Ack())
			}
		}
		ackAll(time.Now().Add(2 * time.Minute))
		w.Crash(Output)
		w.Up(Output)
		w.Up(away)
		ackAll(time.Now().Add(3 * time.Minute))
		if came != 1 {
			t.Errorf("it came %d times, want once", came)
		}
		w.close(con)
	})
}

// TestPark_CancelledWithItsCopy has two of a parked message, since the store that has the first one was away for more
// than five minutes when it was looked for: who cancels one of them cancels both.
func TestPark_CancelledWithItsCopy(t *testing.T) {
	bubble(t, Options{Stores: 2, Replicas: 1}, func(w *world) {
		con, away := w.parkedInDoubt(10 * time.Minute)
		sleep(6 * time.Minute)
		w.Up(away)
		w.eventually("there are two of one", time.Minute, func() bool { return len(w.parked("g")) == 3 })
		for _, p := range w.parked("g") {
			if p.Origin.Seq != 2 {
				continue
			}
			results, err := w.Client.Cancel(w.t.Context(), core.RetryPath(queue, "g"), p.Receipt)
			w.ok(err)
			if len(results) != 1 || results[0].Err != nil || len(results[0].Groups) != 1 || results[0].Groups[0].Outcome != client.OutcomeCancelled {
				t.Fatalf("cancelled is %+v", results)
			}
			break
		}
		w.eventually("none of it is left", 5*time.Second, func() bool { return len(w.parked("g")) == 1 })
		sleep(12 * time.Minute)
		w.ok(w.take(con, 2*time.Minute).Ack()) // a
		if d := w.take(con, time.Minute); d != nil {
			t.Errorf("%s came, as attempt %d", d.Body, d.Attempt)
		}
		w.close(con)
	})
}
