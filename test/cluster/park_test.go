package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// parked lists what waits in a group's retry queue.
func (w *world) parked(group string) (out []client.DelayedMessage) {
	w.t.Helper()
	for m, err := range w.Client.Admin().Delayed(w.t.Context(), queue, group) {
		if w.ok(err); m.Source == "retry" && !m.DelayedSince.IsZero() {
			out = append(out, m)
		}
	}
	return out
}

// patient is a group whose consumers may send back all they get.
func patient(g *core.GroupSpec) { g.Breaker, g.NoNackThrottle = core.BreakerOff, true }

// places counts what is ready, in flight, delayed by the publisher or the group, delayed by a retry, and dead.
func (w *world) places(group string) string {
	w.t.Helper()
	d := w.depth(group)
	return fmt.Sprintf("%d %d %d %d %d", d.Ready, d.InFlight, d.DelayedPublish+d.DelayedGroup, d.DelayedRetry, d.Dead) + unknown(d)
}

// TestRule_LongWaits follows a message through two parkings to its dead letter. Each time it is gone from where it was
// within seconds, listed and counted; it comes back when it is due, with its next attempt, though the group delays and
// skips what is old.
func TestRule_LongWaits(t *testing.T) {
	const wait = 80 * time.Second // more than the group's messages may be old
	for _, consistency := range []string{"ap", "cp"} {
		t.Run(consistency, func(t *testing.T) {
			underrace.One(t, consistency == "cp")
			bubbleOf(t, Options{Stores: 2, Outputs: 2}, core.QueueSpec{Path: queue, Consistency: core.Consistency(consistency)}, func(w *world) {
				w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries, g.SkipOlder = 3, time.Minute })
				w.group("other", nil)
				at := w.receipts("a")[0]
				con := w.consumer("g")
				d := w.next(con, "a", 1)
				id, enqueued := d.ID, d.Enqueued
				for attempt := 1; attempt <= 2; attempt++ {
					began := time.Now()
					w.ok(d.Nack(client.After(wait), client.Reason("later")))
					w.eventually("it is parked", 2*time.Second, func() bool { return len(w.parked("g")) == 1 })
					p := w.parked("g")[0]
					if p.ID != id || p.Origin != at.Receipt || p.Attempts != attempt || p.Error != "later" || p.Reason != "nack" || !p.Enqueued.Equal(enqueued) {
						t.Fatalf("parked is %+v", p)
					}
					if d := p.Due.Sub(began); d < wait || d > wait+time.Second {
						t.Fatalf("it is parked for %s", d)
					}
					if got := w.places("g"); got != "0 0 0 1 0" {
						t.Fatalf("depth %s", got)
					}
					w.stuck("g", "nothing_waits")
					life, groups := w.life(at)
					if s := groups["g"]; s.State != "delayed" || !s.Until.Equal(p.Due) || s.RetryReceipt != p.Receipt || s.Attempts != attempt || s.LastError != "later" || life.Stored != "committed" {
						t.Fatalf("its life: %+v", s)
					}
					if _, groups := w.life(client.Receipt{Receipt: p.Receipt, ID: id}); len(groups) != 1 || groups["g"].State != "delayed" || !groups["g"].Until.Equal(p.Due) {
						t.Fatalf("the life of what is parked: %+v", groups)
					}
					if d := w.take(con, wait-2*time.Second-time.Since(began)); d != nil {
						t.Fatalf("attempt %d came early", d.Attempt)
					}
					d = w.next(con, "a", attempt+1)
					if late := time.Since(p.Due); late < 0 || late > time.Second || d.ID != id || !d.Enqueued.Equal(enqueued) {
						t.Fatalf("it came %s late, as %s enqueued %s", late, d.ID, d.Enqueued)
					}
					if _, groups := w.life(at); groups["g"].State != "in_flight" || groups["g"].Attempts != attempt+1 || groups["g"].Holder == nil {
						t.Fatalf("its life: %+v", groups["g"])
					}
				}
				w.ok(d.Nack(client.After(wait), client.Reason("for good")))
				w.eventually("it is a dead letter", 10*time.Second, func() bool { return w.letters("g") == 1 })
				for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
					w.ok(err)
					if l.ID != id || l.Attempts != 3 || l.Origin != at.Receipt || l.Error != "for good" || !l.FirstEnqueued.Equal(enqueued) {
						t.Errorf("the dead letter is %+v", l)
					}
				}
				if d := w.take(con, 2*time.Minute); d != nil {
					t.Errorf("it came again, as attempt %d", d.Attempt)
				}
				w.eventually("nothing is left", 10*time.Second, func() bool { return w.places("g") == "0 0 0 0 1" })
				w.close(con)
				other := w.consumer("other")
				w.ok(w.next(other, "a", 1).Ack())
				if d := w.take(other, time.Minute); d != nil {
					t.Errorf("the other group got attempt %d", d.Attempt)
				}
				w.close(other)
			})
		})
	}
}

// TestPark_PinsNothing has an extent of parked messages retired before they are due.
func TestPark_PinsNothing(t *testing.T) {
	bubble(t, Options{Input: rollAt(20_000)}, func(w *world) {
		w.keep(time.Minute, time.Hour)
		w.group("g", patient)
		w.publish(numbers(1, 300)...)
		con := w.consumer("g", client.Prefetch(100))
		for range 300 {
			w.ok(w.take(con, time.Minute).Nack(client.After(20 * time.Minute)))
		}
		w.eventually("all are parked", time.Minute, func() bool { return w.places("g") == "0 0 0 300 0" })
		w.close(con)
		w.publish(numbers(301, 310)...) // the extents roll
		sleep(10 * time.Minute)
		if n := len(w.parked("g")); n != 300 || w.places("g") != "10 0 0 300 0" {
			t.Errorf("%d are parked while nobody consumes, depth %s", n, w.places("g"))
		}
		con = w.consumer("g", client.Prefetch(100))
		w.all(w.collect(con, 10), numbers(301, 310), true)
		sleep(5 * time.Minute)
		if left := w.extents(queue); left[core.ExtentSealed]+left[core.ExtentRetiring] > 0 {
			t.Errorf("extents of messages that are parked: %v", left)
		}
		sleep(3 * time.Minute)
		w.all(w.collect(con, 300), numbers(1, 300), true)
		w.eventually("nothing is left", 10*time.Second, func() bool { return w.places("g") == "0 0 0 0 0" })
		w.close(con)
	})
}

// TestPark_SurvivesKills kills hosts of every kind at random moments while messages are parked, wait and come back: all
// are done in the end.
func TestPark_SurvivesKills(t *testing.T) {
	bubble(t, Options{Stores: 3, Inputs: 2, Outputs: 2, Replicas: 2}, func(w *world) {
		random := rand.New(rand.NewPCG(3, 4))
		w.group("g", func(g *core.GroupSpec) {
			patient(g)
			g.LockTimeout, g.MaxDeliveries = 20*time.Second, 50
		})
		want := numbers(1, 200)
		w.publish(want...)
		con := w.consumer("g", client.Prefetch(50))
		waits := []time.Duration{35 * time.Second, 2 * time.Minute, 5 * time.Second, 50 * time.Second}
		acked := make(map[string]bool)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for d, err := range con.Deliveries(w.t.Context()) {
				switch {
				case err != nil:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("consume: %v", err)
					}
					return
				case d.Attempt <= len(waits):
					_ = d.Nack(client.After(waits[d.Attempt-1]))
				default:
					acked[string(d.Body)] = true
					_ = d.Ack()
				}
			}
		}()
		kinds := []core.HostID{Controller, Frontend, OutputOf(0), OutputOf(1), InputOf(0), InputOf(1), Store(0), Store(1), Store(2)}
		for range 20 {
			sleep(time.Duration(random.IntN(8000)) * time.Millisecond)
			id := kinds[random.IntN(len(kinds))]
			w.Crash(id)
			sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			w.Up(id)
		}
		w.eventually("nothing is left", 10*time.Minute, func() bool { return w.places("g") == "0 0 0 0 0" })
		w.close(con)
		<-done
		if len(acked) != len(want) {
			t.Errorf("%d of %d messages were done", len(acked), len(want))
		}
	})
}

// TestPark_NotWritable takes the input hosts away: what is to be parked waits in memory, comes when it is due, and the
// rest of the group goes on. It is parked once they are back.
func TestPark_NotWritable(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish(numbers(1, 100)...)
		con := w.consumer("g")
		d := w.next(con, "000001", 1)
		w.Crash(Input)
		began := time.Now()
		w.ok(d.Nack(client.After(time.Minute)))
		for i := 2; i <= 100; i++ {
			w.ok(w.next(con, fmt.Sprintf("%06d", i), 1).Ack())
		}
		sleep(20 * time.Second)
		w.stuck("g", "retry_queue_not_writable")
		if got := w.places("g"); got != "0 0 0 1 0" || len(w.parked("g")) != 0 {
			t.Errorf("depth %s, %d are listed", got, len(w.parked("g")))
		}
		d = w.next(con, "000001", 2)
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("it came after %s, want a minute", took)
		}
		w.ok(d.Nack(client.After(10 * time.Minute)))
		sleep(20 * time.Second)
		w.Crash(Output) // what it has in memory survives in its checkpoint
		w.Up(Output)
		sleep(20 * time.Second)
		w.Up(Input)
		w.eventually("it is parked", time.Minute, func() bool { return len(w.parked("g")) == 1 })
		sleep(9 * time.Minute)
		w.ok(w.next(con, "000001", 3).Ack())
		w.eventually("nothing is left", 10*time.Second, func() bool { return w.places("g") == "0 0 0 0 0" })
		w.close(con)
	})
}

// TestPark_UnknownOutcomeComesOnce loses the answer to an append: it is found to have come to pass, and is there once.
func TestPark_UnknownOutcomeComesOnce(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish("a", "b")
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Nack(client.After(40 * time.Second)))
		w.eventually("the retry queue is there", 10*time.Second, func() bool { return len(w.parked("g")) == 1 })
		heal := w.net.drop(path{w.hosts[Input].addr, w.hosts[Output].addr})
		w.ok(w.next(con, "b", 1).Nack(client.After(time.Minute)))
		sleep(25 * time.Second)
		heal()
		sleep(12 * time.Second)
		if n := len(w.parked("g")); n != 2 {
			t.Errorf("%d are parked", n)
		}
		w.ok(w.next(con, "a", 2).Ack())
		w.ok(w.next(con, "b", 2).Ack())
		if d := w.take(con, 5*time.Minute); d != nil {
			t.Errorf("%s came twice, as attempt %d", d.Body, d.Attempt)
		}
		if got := w.places("g"); got != "0 0 0 0 0" {
			t.Errorf("depth %s", got)
		}
		w.close(con)
	})
}

// TestPark_MaxDeliveriesIsExact nacks all that comes, for long and for short, while output hosts restart and crash:
// each message is a dead letter after so many attempts as the group allows, and no attempt of it came twice.
func TestPark_MaxDeliveriesIsExact(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		const most = 4
		w.group("g", func(g *core.GroupSpec) {
			patient(g)
			g.MaxDeliveries = most
		})
		want := numbers(1, 100)
		w.publish(want...)
		con := w.consumer("g", client.Prefetch(20))
		got := make(map[string]int)
		waits := []time.Duration{40 * time.Second, 0, 50 * time.Second, 31 * time.Second, 5 * time.Second}
		for n := 0; ; n++ {
			d := w.take(con, 2*time.Minute)
			if d == nil {
				break
			}
			if before := got[string(d.Body)]; d.Attempt <= before || d.Attempt > most {
				t.Fatalf("%s came as attempt %d after %d", d.Body, d.Attempt, before)
			}
			got[string(d.Body)] = d.Attempt
			w.ok(d.Nack(client.After(waits[n%len(waits)]), client.Reason(fmt.Sprint("attempt ", d.Attempt))))
			if n == 130 || n == 250 {
				sleep(2 * time.Second) // all that was said is saved
				w.Restart(OutputOf(n / 10 % 2))
			}
		}
		w.eventually("all are dead letters", time.Minute, func() bool { return w.places("g") == "0 0 0 0 100" })
		for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			if l.Attempts != most {
				t.Errorf("a dead letter of %d attempts", l.Attempts)
			}
		}
		if d := w.take(con, 2*time.Minute); d != nil {
			t.Errorf("%s came once more, as attempt %d", d.Body, d.Attempt)
		}
		w.close(con)
	})
}

// TestPark_MetadataGoOn has nacks replace metadata, on a session and by token: the message brings them along.
func TestPark_MetadataGoOn(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		w.publish("a")
		con := w.consumer("g", client.WithTokens())
		d := w.next(con, "a", 1)
		w.ok(d.Nack(client.After(0), client.Metadata([]byte("one"))))
		d = w.next(con, "a", 2)
		if string(d.Metadata()) != "one" {
			t.Fatalf("metadata %q", d.Metadata())
		}
		failed, err := w.Client.Nack(w.t.Context(), []string{d.Token}, client.After(40*time.Second), client.Metadata([]byte("two")))
		if err != nil || len(failed) > 0 {
			t.Fatalf("nack by token: %v, %v", failed, err)
		}
		w.eventually("it is parked", 10*time.Second, func() bool { return len(w.parked("g")) == 1 })
		failed, err = w.Client.Ack(w.t.Context(), d.Token)
		if err != nil || len(failed) != 1 || !errors.Is(failed[0].Err, client.ErrStale) {
			t.Errorf("an ack of what was parked: %v, %v", failed, err)
		}
		d = w.next(con, "a", 3)
		if string(d.Metadata()) != "two" {
			t.Errorf("metadata %q", d.Metadata())
		}
		w.ok(d.Ack())
		w.close(con)
	})
}

// TestPark_GroupAndQueueGo deletes a group with parked messages: its retry queue goes, and one of the same name begins
// without them.
func TestPark_GroupAndQueueGo(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		park := func(queue string) {
			con, err := w.Client.Consumer(w.t.Context(), queue, "g")
			w.ok(err)
			w.ok(w.take(con, time.Minute).Nack(client.After(time.Hour)))
			w.eventually("it is parked", 10*time.Second, func() bool {
				d, err := w.Client.Admin().Depth(w.t.Context(), queue, "g")
				return err == nil && d[0].DelayedRetry == 1
			})
			w.close(con)
		}
		admin := w.Client.Admin()
		for range 2 {
			w.group("g", nil)
			w.publish("a")
			park(queue)
			w.ok(admin.DeleteGroup(w.t.Context(), queue, "g"))
		}
		w.group("g", func(g *core.GroupSpec) { g.Start.Mode = core.StartLatest })
		w.eventually("a new group has nothing", 10*time.Second, func() bool { // an extent may be unknown for a moment
			return w.places("g") == "0 0 0 0 0" && len(w.parked("g")) == 0
		})
		w.publish("b")
		park(queue)
		_, err := admin.CreateGroup(w.t.Context(), core.GroupSpec{Queue: core.RetryPath(queue, "g"), Name: "x"})
		if !errors.Is(err, client.ErrBadName) {
			t.Errorf("a group on a retry queue: %v", err)
		}
		w.ok(admin.DeleteQueue(w.t.Context(), queue))
		sleep(time.Minute)
		if n := w.replicas(); n != 0 {
			t.Errorf("%d replicas are left", n)
		}
	})
}

// TestPark_Elsewhere parks in a group on a dead letter queue, and what was merged back; and sends a group back with
// parked messages, which it keeps.
func TestPark_Elsewhere(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.buried("g", "a")
		dlq := core.DLQPath(queue, "g")
		_, err := w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: dlq, Name: "sift", Start: core.Start{Mode: core.StartEarliest}})
		w.ok(err)
		sift, err := w.Client.Consumer(w.t.Context(), dlq, "sift")
		w.ok(err)
		w.ok(w.next(sift, "a", 1).Nack(client.After(time.Minute)))
		w.ok(w.next(sift, "a", 2).Ack())
		w.close(sift)

		o, err := w.Client.Admin().MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		w.ended(o.ID)
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Nack(client.After(time.Minute)))
		w.eventually("it is parked", 10*time.Second, func() bool { return len(w.parked("g")) == 1 })
		if p := w.parked("g")[0]; p.Attempts != 2 { // one before it was a dead letter
			t.Errorf("parked is %+v", p)
		}
		w.seek("g", core.Start{Mode: core.StartLatest})
		d := w.next(con, "a", 2)
		w.ok(d.Reject("bad again"))
		w.eventually("it is a dead letter", 10*time.Second, func() bool { return w.letters("g") == 1 })
		for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			if l.Attempts != 3 {
				t.Errorf("the dead letter is %+v", l)
			}
		}
		w.close(con)
	})
}
