package cluster

import (
	"bytes"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestRule_NotWritable takes the input host away: nothing can be buried, delivery and acks of the rest go on, and
// later every failed message is buried, once.
func TestRule_NotWritable(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 1 })
		const bad = 300
		w.publish(numbers(1, 1000)...)
		w.Crash(Input)
		con := w.consumer("g")
		for i := range 1000 {
			d := w.take(con, 10*time.Second)
			if d == nil {
				t.Fatalf("delivery stopped after %d messages", i)
			}
			if i < bad {
				w.ok(d.Reject("bad"))
			} else {
				w.ok(d.Ack())
			}
		}
		sleep(time.Minute)
		w.Up(Input)
		w.eventually("all are dead letters", 2*time.Minute, func() bool { return w.letters("g") == bad })
		sleep(time.Minute)
		if n := w.letters("g"); n != bad {
			t.Errorf("%d dead letters, want %d", n, bad)
		}
		w.close(con)
	})
}

// TestRule_Credits has consumers that settle nothing: each holds what it asked for, in messages or in bytes, and gets
// one more for one that it settles.
func TestRule_Credits(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("messages", nil)
		w.group("bytes", nil)
		w.group("small", nil)
		p := w.publisher()
		for range 100 {
			w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: bytes.Repeat([]byte("x"), 1000)}, nil))
		}
		w.ok(p.Close(w.t.Context()))
		holds := func(group string, least, most uint64) {
			t.Helper()
			sleep(2 * time.Second)
			if d := w.depth(group); d.InFlight < least || d.InFlight > most || d.Ready != 100-d.InFlight && group != "messages" {
				t.Errorf("%s: %s are held, want %d … %d", group, counts(d), least, most)
			}
		}
		con := w.consumer("messages", client.Prefetch(7))
		holds("messages", 7, 7)
		for range 5 {
			w.ok(w.take(con, time.Second).Ack())
		}
		holds("messages", 5, 7) // the client asks for some at once
		w.ok(w.take(con, time.Second).Nack(client.After(20 * time.Second)))
		holds("messages", 5, 7)
		w.close(con)

		con = w.consumer("bytes", client.PrefetchBytes(10_500))
		holds("bytes", 9, 10) // of somewhat more than 1,000 bytes
		w.close(con)

		con = w.consumer("small", client.PrefetchBytes(100))
		holds("small", 1, 1) // larger than the credit, to who holds nothing
		w.close(con)
	})
}

// TestRule_ConsumerGoesAway loses a consumer's process, and then closes one: what was given to the application stays
// locked until its timeout, what was not comes back at once when it was closed, and a token settles from elsewhere.
func TestRule_ConsumerGoesAway(t *testing.T) {
	const lock = 30 * time.Second
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = lock })
		w.publish(numbers(1, 10)...)
		port := w.net.attach("other")
		other, err := w.dial(port)
		w.ok(err)
		con, err := other.Consumer(w.t.Context(), queue, "g", client.Prefetch(10), client.WithTokens())
		w.ok(err)
		token := w.next(con, "000001", 1).Token
		w.eventually("it holds all", 5*time.Second, func() bool { return w.depth("g").InFlight == 10 })
		died := time.Now()
		port.kill() // as if its process had died
		_ = other.Close()

		failures, err := w.Client.Ack(w.t.Context(), token)
		if err != nil || len(failures) != 0 {
			t.Errorf("the token of a consumer that is gone: %v, %v", failures, err)
		}
		con = w.consumer("g", client.Prefetch(9))
		d := w.take(con, 2*lock)
		w.between("what it held came again", died, lock-6*time.Second, lock+time.Second)
		if d == nil || d.Attempt != 2 {
			t.Fatalf("what it held came again as %+v", d)
		}
		w.eventually("it holds all", 5*time.Second, func() bool { return w.depth("g").InFlight == 9 })
		began := time.Now()
		w.close(con) // eight were not handed to the application
		con = w.consumer("g")
		for range 8 {
			next := w.take(con, time.Second)
			if next == nil || next.Attempt != 2 || next.Receipt == d.Receipt {
				t.Fatalf("after a close came %+v", next)
			}
			w.ok(next.Ack())
		}
		last := w.next(con, string(d.Body), 3)
		w.between("what it had handed out came again", began, lock-time.Second, lock+time.Second)
		w.ok(last.Ack())
		w.ok(con.Flush(w.t.Context()))
		w.eventually("nothing is left", 5*time.Second, func() bool { return counts(w.depth("g")) == "0 0 0 0 0" })
		w.close(con)
	})
}

// TestRule_OutstandingLimit has one group settle nothing of more than may be outstanding: reading stops there, another
// group goes on, and so does this one when something is settled.
func TestRule_OutstandingLimit(t *testing.T) {
	const limit, n = 10_000, 10_500
	bubble(t, Options{}, func(w *world) {
		w.group("greedy", func(g *core.GroupSpec) { g.LockTimeout = time.Hour })
		w.group("calm", nil)
		p := w.publisher()
		for range n {
			w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: []byte("x")}, nil))
		}
		w.ok(p.Close(w.t.Context()))
		con := w.consumer("greedy", client.Prefetch(2*n))
		sleep(10 * time.Second)
		if d := w.depth("greedy"); d.InFlight != limit || d.Ready != n-limit {
			t.Errorf("in flight are %d, ready %d, want %d and %d", d.InFlight, d.Ready, limit, n-limit)
		}
		calm := w.consumer("calm")
		for i := range n {
			d := w.take(calm, time.Second)
			if d == nil {
				t.Fatalf("the other group got %d messages", i)
			}
			w.ok(d.Ack())
		}
		w.close(calm)
		for range 300 {
			w.ok(w.take(con, time.Second).Ack())
		}
		sleep(2 * time.Second)
		if d := w.depth("greedy"); d.InFlight != limit || d.Ready != n-limit-300 {
			t.Errorf("after 300 acks in flight are %d, ready %d", d.InFlight, d.Ready)
		}
		w.close(con)
	})
}

// TestRule_Exhausted has three groups end a message in their ways, and two of them be changed.
func TestRule_Exhausted(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		kinds := []core.Exhausted{core.ExhaustedDLQ, core.ExhaustedDrop, core.ExhaustedBlock}
		for _, kind := range kinds {
			w.group(string(kind), func(g *core.GroupSpec) { g.MaxDeliveries, g.Exhausted = 2, kind })
		}
		w.group("default", func(g *core.GroupSpec) { g.MaxDeliveries = 2 })
		w.publish("a")
		want := map[string]string{"dlq": "0 0 0 0 1", "default": "0 0 0 0 1", "drop": "0 0 0 0 0", "block": "0 0 0 1 0"}
		for name, depth := range want {
			con := w.consumer(name)
			w.ok(w.next(con, "a", 1).Nack())
			w.ok(w.next(con, "a", 2).Nack(client.Reason("no")))
			w.ok(con.Flush(w.t.Context()))
			w.eventually(name+": "+depth, 10*time.Second, func() bool { return counts(w.depth(name)) == depth })
			w.close(con)
		}
		sleep(time.Second + 100*time.Millisecond) // what has ended is durable
		for i := range 2 {
			w.Crash(OutputOf(i))
			w.Up(OutputOf(i))
		}
		w.publish("b")
		for name := range want { // what blocks holds nothing else up
			con := w.consumer(name)
			w.ok(w.next(con, "b", 1).Ack())
			if d := w.take(con, 2*time.Minute); d != nil {
				t.Errorf("%s: %s came as attempt %d", name, d.Body, d.Attempt)
			}
			w.close(con)
		}
		_, err := w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "block", MaxDeliveries: 3})
		w.ok(err)
		con := w.consumer("block")
		w.ok(w.next(con, "a", 3).Nack())
		w.ok(con.Flush(w.t.Context()))
		w.eventually("it blocks again", 10*time.Second, func() bool { return w.depth("block").Blocked == 1 })
		_, err = w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "block", Exhausted: core.ExhaustedDLQ})
		w.ok(err)
		w.eventually("it is a dead letter", 10*time.Second, func() bool { return counts(w.depth("block")) == "0 0 0 0 1" })
		w.close(con)
	})
}
