package cluster

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestRule_Start makes groups in every way when some extents are sealed and one is open: each begins exactly where it
// says.
func TestRule_Start(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(2_000)}, func(w *world) {
		w.publish(numbers(1, 100)...)
		sleep(time.Minute)
		w.Restart(Input) // its extents are sealed
		w.publish(numbers(101, 150)...)
		sleep(time.Second)
		at := time.Now()
		sleep(time.Second)
		w.publish(numbers(151, 200)...)
		sleep(time.Second)
		first := map[string]int{"default": 201, "latest": 201, "earliest": 1, "time": 151, "back": 101}
		for name, start := range map[string]core.Start{
			"default": {}, "latest": {Mode: core.StartLatest}, "earliest": {Mode: core.StartEarliest},
			"time": {Mode: core.StartTime, At: at}, "back": {Mode: core.StartTime, At: time.Now().Add(-30 * time.Second)},
		} {
			w.group(name, func(g *core.GroupSpec) { g.Start = start })
		}
		w.publish(numbers(201, 250)...)
		for name, from := range first {
			con := w.consumer(name)
			bodies := numbers(from, 250)
			w.all(w.collect(con, len(bodies)), bodies, true)
			w.close(con)
		}
	})
}

// TestRule_GroupDelay has a message come so long after it was enqueued, also over a crash; a retry does not wait for
// it.
func TestRule_GroupDelay(t *testing.T) {
	const delay = 3 * time.Minute
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.Delay = delay })
		w.group("none", nil)
		w.publish("a")
		published := time.Now()
		sleep(time.Second)
		if d := w.depth("g"); counts(d) != "0 0 1 0 0" || d.OldestReady != 0 {
			t.Errorf("nobody has read it, and it counts as %s", counts(d))
		}
		at := w.consumer("none")
		w.ok(w.next(at, "a", 1).Ack())
		w.close(at)
		con := w.consumer("g")
		if d := w.take(con, delay/2); d != nil {
			t.Errorf("it came after %s", time.Since(published))
		}
		w.Crash(Output)
		w.Up(Output)
		d := w.take(con, delay)
		w.between("it came", published, delay-time.Second, delay+time.Second)
		if d == nil || d.Attempt != 1 {
			t.Fatalf("it came as %+v", d)
		}
		began := time.Now()
		w.ok(d.Nack(client.After(2 * time.Second)))
		w.ok(w.next(con, "a", 2).Ack())
		w.between("the retry came", began, 2*time.Second, 3*time.Second)
		w.close(con)
	})
}

// TestRule_GroupDelay_AndTheirOwn has messages for later come when both their own delay and the group's are over, also
// over a crash; counted and explained as what they wait for.
func TestRule_GroupDelay_AndTheirOwn(t *testing.T) {
	const delay = 3 * time.Minute
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.Delay = delay })
		for body, own := range map[string]time.Duration{"short": time.Minute, "long": 5 * time.Minute} {
			_, err := w.publisher().Publish(w.t.Context(), client.Message{Body: []byte(body), Delay: own})
			w.ok(err)
		}
		published := time.Now()
		sleep(time.Minute + time.Second)
		if d := w.depth("g"); counts(d) != "0 0 2 0 0" {
			t.Errorf("nobody has read them, and they count as %s", counts(d))
		}
		con := w.consumer("g")
		sleep(time.Second)
		if d := w.depth("g"); counts(d) != "0 0 2 0 0" {
			t.Errorf("one was read, and they count as %s", counts(d))
		}
		w.Crash(Output)
		w.Up(Output)
		for _, x := range []struct {
			body string
			at   time.Duration
		}{{"short", delay}, {"long", 5 * time.Minute}} {
			d := w.take(con, delay)
			if d == nil || string(d.Body) != x.body || d.Attempt != 1 {
				t.Fatalf("got %+v, want %s", d, x.body)
			}
			w.between(x.body+" came", published, x.at-time.Second, x.at+time.Second)
			w.ok(d.Ack())
		}
		w.close(con)
	})
}

// TestRule_SkipOlder settles unseen what is too old and was never handed out; what was comes again however old it is,
// and nothing is left over.
func TestRule_SkipOlder(t *testing.T) {
	const most = time.Minute
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.SkipOlder = most })
		con := w.consumer("g")
		w.publish("retried")
		w.ok(w.next(con, "retried", 1).Nack(client.After(90 * time.Second)))
		w.close(con)
		w.publish(numbers(1, 50)...)
		sleep(most + time.Second)
		w.publish("fresh")
		con = w.consumer("g")
		w.ok(w.next(con, "fresh", 1).Ack())
		w.ok(w.next(con, "retried", 2).Ack())
		w.ok(con.Flush(w.t.Context()))
		w.eventually("nothing is left", 5*time.Second, func() bool { return counts(w.depth("g")) == "0 0 0 0 0" })
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		w.close(con)
	})
}

// TestRule_ExpireAt settles unseen what has expired, before its first delivery and before a later one.
func TestRule_ExpireAt(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		p := w.publisher()
		for body, life := range map[string]time.Duration{"unseen": time.Minute, "seen": 2 * time.Minute, "stays": time.Hour} {
			_, err := p.Publish(w.t.Context(), client.Message{Body: []byte(body), ExpireAt: time.Now().Add(life)})
			w.ok(err)
		}
		w.ok(p.Close(w.t.Context()))
		sleep(time.Minute + time.Second)
		con := w.consumer("g")
		for range 2 {
			d := w.take(con, time.Second)
			if d == nil || string(d.Body) == "unseen" {
				t.Fatalf("got %+v", d)
			}
			w.ok(d.Nack(client.After(3 * time.Minute)))
		}
		w.ok(con.Flush(w.t.Context()))
		sleep(time.Second)
		w.Crash(Output)
		w.Up(Output)
		if d := w.take(con, 5*time.Minute); d == nil || string(d.Body) != "stays" || d.Attempt != 2 {
			t.Fatalf("got %+v, want what has not expired", d)
		} else {
			w.ok(d.Ack())
		}
		if d := w.take(con, 2*time.Minute); d != nil {
			t.Errorf("%s came", d.Body)
		}
		if d := w.depth("g"); counts(d) != "0 0 0 0 0" {
			t.Errorf("left are %s", counts(d))
		}
		w.close(con)
	})
}

// TestRule_Order_WithinAnExtent: as stored, for who takes first deliveries alone.
func TestRule_Order_WithinAnExtent(t *testing.T) {
	bubble(t, Options{Stores: 2, Inputs: 2, Outputs: 2, Input: rollAt(5_000)}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g", client.Prefetch(20))
		stop := w.load(4)
		sleep(5 * time.Second)
		acked := stop()
		last := make(map[core.ExtentID]core.Seq)
		for range acked {
			d := w.take(con, time.Minute)
			if d == nil {
				t.Fatal("a message did not come")
			}
			if d.Receipt.Seq != last[d.Receipt.Extent]+1 {
				t.Errorf("%s came after seq %d", d.Receipt, last[d.Receipt.Extent])
			}
			last[d.Receipt.Extent] = d.Receipt.Seq
			w.ok(d.Ack())
		}
		if len(last) < 3 {
			t.Errorf("%d extents show little", len(last))
		}
		w.close(con)
	})
}

// TestRule_Order crashes input and output hosts, in turn, and rolls extents, under a publisher and a consumer of a CP
// queue: first deliveries are in the order in which the messages were published. TestChains does it with random faults
// of all kinds.
func TestRule_Order(t *testing.T) {
	bubble(t, Options{Stores: 3, Inputs: 2, Outputs: 2, Input: rollAt(3_000)}, func(w *world) {
		w.ok(w.Client.Admin().DeleteQueue(w.t.Context(), queue))
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: queue, Consistency: core.CP})
		w.ok(err)
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 5 * time.Second })
		p := w.publisher()
		con := w.consumer("g")
		first := make(map[string]bool)
		var order []string
		receive := func(patience time.Duration) {
			for d := w.take(con, patience); d != nil; d = w.take(con, patience) {
				if body := string(d.Body); !first[body] {
					first[body] = true
					order = append(order, body)
				}
				_ = d.Ack() // its connection may be lost
			}
		}
		victims := []core.HostID{InputOf(0), OutputOf(0), InputOf(1), OutputOf(1)}
		const rounds, each = 12, 100
		var acked atomic.Int32
		for round := range rounds {
			for i := range each {
				body := fmt.Sprintf("%06d", round*each+i)
				w.ok(p.PublishAsync(w.t.Context(), client.Message{Body: []byte(body)}, func(_ client.Receipt, err error) {
					if err != nil {
						t.Errorf("publish %s: %v", body, err)
						return
					}
					acked.Add(1)
				}))
			}
			victim := victims[round%len(victims)]
			w.Crash(victim)
			receive(100 * time.Millisecond)
			w.Up(victim)
		}
		w.ok(p.Close(w.t.Context()))
		receive(time.Minute)
		if acked.Load() != rounds*each || len(order) != rounds*each {
			t.Errorf("%d messages were acknowledged, %d came, want %d", acked.Load(), len(order), rounds*each)
		}
		if !slices.IsSorted(order) {
			t.Errorf("first deliveries are not in the order of publishing")
		}
		w.close(con)
	})
}
