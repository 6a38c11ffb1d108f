package integration

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestKilledConsumerHeldMessages kills a consumer process that holds 60 of 100 messages.
func TestKilledConsumerHeldMessages(t *testing.T) {
	const n, held = 100, 60
	crashing(t, func(w *world, crash func()) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 6 * time.Second }) // so long may the consumer take to hold all
		w.publish(numbers(1, held)...)
		var mu sync.Mutex
		var holds []string
		c := w.server.Launch(nil, func(line []byte) {
			mu.Lock()
			defer mu.Unlock()
			holds = append(holds, string(line))
		}, "consume", queue, "g", "--ack", "none")
		process.Eventually(w.t, "the consumer holds its messages", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(holds) == held
		})
		c.Kill()
		crash() // what was delivered is counted before it is sent
		w.publish(numbers(held+1, n-held)...)
		con := w.consumer("g")
		var got []string
		for range n {
			d := w.take(con, process.Patience)
			if d == nil {
				w.t.Fatalf("%d of %d messages came", len(got), n)
			}
			want := 1
			if slices.Contains(holds, string(d.Body)) {
				want = 2
			}
			if d.Attempt != want {
				w.t.Errorf("%q came with attempt %d, want %d", d.Body, d.Attempt, want)
			}
			got = append(got, string(d.Body))
			w.settle(d.Ack())
		}
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != n {
			w.t.Errorf("%d different messages, want %d", len(got), n)
		}
	})
}

// TestReturnedUnseen closes a consumer that had 100 messages and showed one: the others come at once, as first
// attempts.
func TestReturnedUnseen(t *testing.T) {
	const n = 100
	crashing(t, func(w *world, crash func()) {
		const lock = time.Minute
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = lock })
		w.publish(numbers(1, n)...)
		start := time.Now()
		first := w.consumer("g")
		seen := w.take(first, process.Patience)
		process.Eventually(w.t, "the consumer holds all messages", func() bool {
			d, err := w.client.Admin().Depth(w.t.Context(), queue, "g")
			return err == nil && len(d) == 1 && d[0].InFlight == n
		})
		w.settle(seen.Ack())
		if err := first.Close(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		w.counted("g", "returned", n-1)
		w.counted("g", "acked", 1)
		crash()
		second := w.consumer("g")
		got := w.bodies(second, n-1)
		if slices.Contains(got, string(seen.Body)) || len(slices.Compact(got)) != n-1 {
			w.t.Errorf("got %v, want each but %s once", got, seen.Body)
		}
		if took := time.Since(start); took >= lock {
			w.t.Errorf("they came after %s; their locks have ended, they were not returned", took)
		}
	})
}

func TestGroupsAreIndependent(t *testing.T) {
	const n = 200
	w := newWorld(t)
	w.group("good", nil)
	w.group("bad", func(g *core.GroupSpec) { g.MaxDeliveries, g.Breaker, g.NoNackThrottle = 2, core.BreakerOff, true })
	w.group("idle", nil)
	bad := w.consumer("bad")
	var failing sync.WaitGroup
	failing.Go(func() {
		for range 2 * n {
			d := w.take(bad, process.Patience)
			if d == nil {
				t.Error("the bad group got too little")
				return
			}
			if err := d.Nack(client.Reason("bad")); err != nil {
				t.Error(err)
			}
		}
	})
	defer failing.Wait()
	w.publish(numbers(1, n)...)
	if got, want := w.bodies(w.consumer("good"), n), numbers(1, n); !slices.Equal(got, want) {
		t.Errorf("the good group got %v", got)
	}
	failing.Wait()
	w.letters("bad", n)
	w.letters("good", 0)
	if err := w.client.Admin().DeleteGroup(t.Context(), queue, "bad"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.bodies(w.consumer("idle"), n), numbers(1, n); !slices.Equal(got, want) {
		t.Errorf("the idle group got %v", got)
	}
}

// TestTokensSettleFromAnotherProcess acks with a token of a consumer that is gone, also after the server was killed.
func TestTokensSettleFromAnotherProcess(t *testing.T) {
	crashing(t, func(w *world, crash func()) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 4 * time.Second; g.MaxDeliveries = 3 })
		w.publish("a")
		out := w.server.Must("", "consume", queue, "g", "--count", "1", "--ack", "tokens", "-o", "json")
		token := process.Decode[struct{ Token string }](w.t, out)[0].Token
		crash()
		w.server.Must("", "ack", token)
		w.none(w.consumer("g"), 5*time.Second)
		if r := w.server.Run("", "nack", token); r.Code == 0 {
			w.t.Errorf("a nack after the ack was taken: %+v", r)
		}
		crash()
		w.none(w.consumer("g"), time.Second)
	})
}
