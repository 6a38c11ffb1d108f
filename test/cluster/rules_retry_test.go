package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// The tests TestRule_… are the rows of the table of delivery rules in docs/operations/rules.md, in virtual time.

// between checks when something came, by the time since it could have begun.
func (w *world) between(what string, since time.Time, from, to time.Duration) {
	w.t.Helper()
	if took := time.Since(since); took < from-time.Millisecond || took > to {
		w.t.Errorf("%s after %s, want %s … %s", what, took, from, to)
	}
}

func TestRule_LockTimeout(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		for _, lock := range []time.Duration{core.MinLockTimeout - time.Millisecond, core.MaxLockTimeout + time.Millisecond} {
			_, err := w.Client.Admin().CreateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "wrong", LockTimeout: lock})
			if core.CodeOf(err) != core.CodeBadArgument {
				t.Errorf("a lock of %s: %v", lock, err)
			}
		}
		locks := map[string]time.Duration{"shortest": core.MinLockTimeout, "default": 0, "longest": core.MaxLockTimeout}
		for name, lock := range locks {
			w.group(name, func(g *core.GroupSpec) { g.LockTimeout = lock })
		}
		w.publish("a")
		locks["default"] = time.Minute
		for name, lock := range locks {
			con := w.consumer(name)
			first := w.next(con, "a", 1)
			began := time.Now()
			if until := w.stuck(name, "in_flight").Message.Until.Sub(began); con.LockTimeout() != lock || until < lock-time.Second || until > lock+time.Second {
				t.Errorf("%s: a lock of %s for %s, want %s", name, con.LockTimeout(), until, lock)
			}
			if lock > time.Hour { // the cluster's life for so long is much work
				w.ok(first.Ack())
				w.close(con)
				continue
			}
			if d := w.take(con, lock-10*time.Millisecond); d != nil {
				t.Errorf("%s: it came again after %s", name, time.Since(began))
			}
			again := w.next(con, "a", 2) // ready again
			w.between(name+": it came again", began, lock, lock+time.Second)
			w.ok(again.Extend(3 * time.Second)) // from now on
			began = time.Now()
			third := w.next(con, "a", 3)
			w.between(name+": extended, it came again", began, 3*time.Second, 4*time.Second)
			w.ok(third.Ack())
			w.ok(con.Flush(w.t.Context()))
			w.close(con)
		}
	})
}

// TestRule_LockTimeout_LateAck acks after the lock has ended: that counts, as nobody else has settled the message.
func TestRule_LockTimeout_LateAck(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Second })
		w.publish("a")
		con := w.consumer("g")
		first := w.next(con, "a", 1)
		second := w.next(con, "a", 2)
		w.ok(first.Ack())
		w.ok(con.Flush(w.t.Context()))
		sleep(100 * time.Millisecond)
		w.ok(second.Nack()) // too late, and refused
		if d := w.take(con, 5*time.Second); d != nil {
			t.Errorf("it came again as attempt %d, after an ack", d.Attempt)
		}
		w.close(con)
	})
}

// TestRule_MaxDeliveries lets each way to fail use an attempt up, over crashes of the output host: dead after exactly
// max deliveries that no crash interrupted.
func TestRule_MaxDeliveries(t *testing.T) {
	for _, most := range []int{1, 2, 10} {
		bubble(t, Options{Outputs: 2}, func(w *world) {
			w.group("g", func(g *core.GroupSpec) { g.LockTimeout, g.MaxDeliveries = 5*time.Second, most })
			w.publish("bad", "good")
			con := w.consumer("g")
			seen, interrupted := 0, 0 // at most: another host may have the message
			for d := w.take(con, time.Minute); d != nil; d = w.take(con, time.Minute) {
				if string(d.Body) == "good" {
					w.ok(d.Ack())
					continue
				}
				if seen++; d.Attempt != seen {
					t.Fatalf("max %d: attempt %d is the delivery number %d", most, d.Attempt, seen)
				}
				switch seen % 3 { // else its lock ends
				case 1: // with a delay, so that the next attempt is not on its way when the host dies
					w.ok(d.Nack(client.After(5*time.Second), client.Reason("no")))
				case 2:
					w.ok(d.Nack(client.Reason("no")))
					continue
				}
				w.ok(con.Flush(w.t.Context()))
				sleep(time.Second + 100*time.Millisecond) // counted durably, the first one too
				if host := OutputOf(seen / 3 % 2); seen < most {
					if seen%3 == 0 {
						interrupted++
					}
					w.Crash(host)
					w.Up(host)
				}
			}
			if n := w.letters("g"); seen < most || seen > most+interrupted || n != 1 {
				t.Errorf("max %d: delivered %d times, %d of them interrupted at most, %d dead letters", most, seen, interrupted, n)
			}
			for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
				w.ok(err)
				if l.Attempts != seen || string(l.Message.Body) != "bad" {
					t.Errorf("max %d: the dead letter is %+v", most, l)
				}
			}
			w.close(con)
		})
	}
}

// TestRule_MaxDeliveries_Unlimited goes beyond the highest number there is.
func TestRule_MaxDeliveries_Unlimited(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries, g.NoNackThrottle = core.UnlimitedDeliveries, true })
		w.publish("a", "b")
		con := w.consumer("g", client.Prefetch(1))
		for n := 0; n < core.MaxMaxDeliveries+1; {
			d := w.take(con, time.Minute)
			if d == nil {
				t.Fatalf("it did not come again after %d attempts", n)
			}
			if string(d.Body) == "b" {
				w.ok(d.Ack())
				continue
			}
			if n++; d.Attempt != n {
				t.Fatalf("attempt %d is the delivery number %d", d.Attempt, n)
			}
			w.ok(d.Nack())
		}
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		w.close(con)
	})
}

func TestRule_Nack(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("plain", nil)
		w.group("backoff", func(g *core.GroupSpec) {
			g.Backoff = core.Backoff{Min: 2 * time.Second, Factor: 3, Max: 10 * time.Second}
		})
		w.publish("a")
		again := func(con *client.Consumer, group string, attempt int, wait time.Duration, opts ...client.NackOption) {
			t.Helper()
			d := w.next(con, "a", attempt)
			began := time.Now()
			w.ok(d.Nack(append(opts, client.Reason("no"))...))
			w.ok(con.Flush(w.t.Context()))
			if wait > time.Second {
				sleep(wait / 2)
				if m := w.stuck(group, "delayed").Message; m.LastError != "no" || m.LastFailure != "nack" || m.Attempts != attempt {
					t.Errorf("%s: it waits as %+v", group, m)
				}
			}
			d = w.next(con, "a", attempt+1)
			w.between(group+": it came again", began, wait, wait+500*time.Millisecond)
			w.ok(d.Nack(client.After(0)))
		}
		plain := w.consumer("plain")
		again(plain, "plain", 1, 0)
		again(plain, "plain", 3, 7*time.Second, client.After(7*time.Second))
		w.ok(w.next(plain, "a", 5).Ack())
		backoff := w.consumer("backoff")
		again(backoff, "backoff", 1, 2*time.Second)                                // min
		again(backoff, "backoff", 3, 10*time.Second)                               // 2 s × 3², at most 10 s
		again(backoff, "backoff", 5, 25*time.Second, client.After(25*time.Second)) // what is asked for wins
		w.ok(w.next(backoff, "a", 7).Ack())
		w.close(plain)
		w.close(backoff)
	})
}

func TestRule_Reject(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		r := w.receipts("a", "b")
		con := w.consumer("g")
		w.ok(w.next(con, "a", 1).Reject("not a trip"))
		w.ok(w.next(con, "b", 1).Ack())
		w.eventually("it is a dead letter", 5*time.Second, func() bool { return w.letters("g") == 1 })
		for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			if l.ID != r[0].ID || l.Origin != r[0].Receipt || l.Attempts != 1 || l.Reason != "rejected" || l.Error != "not a trip" {
				t.Errorf("the dead letter is %+v", l)
			}
		}
		if d := w.take(con, 2*time.Minute); d != nil {
			t.Errorf("%s came again", d.Body)
		}
		w.close(con)
	})
}

// TestRule_MaxDeliveries_CountIsDurableFirst makes checkpoints fail: a second attempt must not be handed out before it
// is counted durably.
func TestRule_MaxDeliveries_CountIsDurableFirst(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		var s saves
		w.OnMeta(Output, s.gate)
		w.publish("a")
		d := w.next(con, "a", 1)
		s.fail.Store(true)
		w.ok(d.Nack())
		if d := w.take(con, 20*time.Second); d != nil {
			t.Fatalf("attempt %d was handed out, its count is not durable", d.Attempt)
		}
		tried := s.tried.Load()
		if tried < 10 || tried > 60 {
			t.Errorf("%d tries in 20 s, want about one a second", tried)
		}
		s.fail.Store(false)
		began := time.Now()
		w.ok(w.next(con, "a", 2).Ack())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("attempt 2 came %s after checkpoints work again", took)
		}
		w.close(con)
	})
}

// TestRule_ShortWaits looks at locks, attempts and delays after one.
func TestRule_ShortWaits(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 30 * time.Second })
		con := w.consumer("g")
		w.publish("acked", "locked", "later", "twice")
		began := time.Now()
		w.ok(w.next(con, "acked", 1).Ack())
		w.next(con, "locked", 1)
		w.ok(w.next(con, "later", 1).Nack(client.After(10 * time.Second)))
		w.ok(w.next(con, "twice", 1).Nack())
		w.next(con, "twice", 2) // locked too
		sleep(2 * time.Second)
		w.Crash(Output)
		w.Up(Output)
		d := w.next(con, "later", 2)
		if at := time.Since(began); at < 10*time.Second || at > 12*time.Second {
			t.Errorf("what was delayed by 10 s came after %s", at)
		}
		w.ok(d.Ack())
		for range 2 {
			d := w.take(con, time.Minute)
			if d == nil {
				t.Fatal("a lock of before the crash never ends")
			}
			if at := time.Since(began); at < 30*time.Second || at > 32*time.Second {
				t.Errorf("%s, locked for 30 s, came after %s", d.Body, at)
			}
			if want := map[string]int{"locked": 2, "twice": 3}[string(d.Body)]; d.Attempt != want {
				t.Errorf("%s came as attempt %d, want %d", d.Body, d.Attempt, want)
			}
			w.ok(d.Ack())
		}
		if d := w.take(con, time.Minute); d != nil {
			t.Errorf("%s came again", d.Body)
		}
		w.close(con)
	})
}
