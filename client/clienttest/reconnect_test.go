package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// job is a handler that takes some time, and ends early with its context.
func job(takes time.Duration) (*attempts, *causes, client.Handler) {
	a, ends := &attempts{began: time.Now()}, &causes{}
	return a, ends, func(ctx context.Context, d *client.Delivery) error {
		a.note(d)
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			ends.add(context.Cause(ctx))
			return ctx.Err()
		}
	}
}

// causes are why contexts of handlers ended.
type causes struct {
	mu  sync.Mutex
	all []error
}

func (c *causes) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err)
}

func (c *causes) get() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// TestWork_JobsOutliveConnections resets every connection every 5 s under jobs of 30 s, some of them waiting at the
// client meanwhile.
func TestWork_JobsOutliveConnections(t *testing.T) {
	for _, lock := range []time.Duration{10 * time.Second, 10 * time.Minute} {
		t.Run(lock.String(), func(t *testing.T) {
			bubble(t, core.GroupSpec{LockTimeout: lock}, func(t *testing.T, b *clienttest.Broker) {
				const jobs = 40
				a, ends, h := job(30 * time.Second)
				b.Work(t, queue, "billing", h, client.Concurrency(10))
				for i := range jobs {
					b.Publish(t, queue, fmt.Sprint(i))
				}
				for range 30 {
					b.Advance(5 * time.Second)
					b.Disconnect()
				}
				b.WaitEmpty(t, queue, "billing", 10*time.Minute)
				wantOnce(t, a, jobs)
				if got := ends.get(); len(got) > 0 {
					t.Errorf("handlers were told to stop: %v", got)
				}
			})
		})
	}
}

// wantOnce checks that each of the messages was handled once, as its first attempt.
func wantOnce(t *testing.T, a *attempts, n int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	runs := make(map[string]int)
	for _, x := range a.all {
		if runs[x.body]++; x.n != 1 || runs[x.body] > 1 {
			t.Errorf("job %s ran as attempt %d, %s after the begin; want each job once", x.body, x.n, x.at)
		}
	}
	if len(runs) != n {
		t.Errorf("%d jobs ran, want %d", len(runs), n)
	}
}

// TestWork_LongJobOutlivesAReset is one reset under a job that is longer than its lock.
func TestWork_LongJobOutlivesAReset(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 3 * time.Minute}, func(t *testing.T, b *clienttest.Broker) {
		a, ends, h := job(9 * time.Minute)
		b.Work(t, queue, "billing", h)
		b.Publish(t, queue, "job")
		b.Advance(30 * time.Second)
		b.Disconnect()
		b.WaitEmpty(t, queue, "billing", 3*time.Hour)
		a.want(t, attempt{"job", 1, 0})
		if got := ends.get(); len(got) > 0 {
			t.Errorf("the handler was told to stop: %v", got)
		}
	})
}

// TestWork_OutlivesAnOutage has nothing that the client sends arrive for less than the lock lasts: what was settled
// meanwhile counts.
func TestWork_OutlivesAnOutage(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 5 * time.Minute}, func(t *testing.T, b *clienttest.Broker) {
		a, ends, h := job(90 * time.Second)
		b.Work(t, queue, "billing", h, client.Concurrency(3))
		b.Publish(t, queue, "a", "b", "c")
		b.Advance(80 * time.Second)
		heal := b.LoseRequests()
		b.Advance(3 * time.Minute)
		heal()
		b.WaitEmpty(t, queue, "billing", time.Hour)
		wantOnce(t, a, 3)
		if got := ends.get(); len(got) > 0 {
			t.Errorf("handlers were told to stop: %v", got)
		}
	})
}

// TestConsumer_SettlesAfterAReset settles in every way what a connection delivered that is gone.
func TestConsumer_SettlesAfterAReset(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: time.Hour, MaxDeliveries: 5}, func(t *testing.T, b *clienttest.Broker) {
		var refused causes
		con := consumer(t, b, client.OnRefused(func(r client.Refusal) { refused.add(r.Err) }))
		b.Publish(t, queue, "ack", "nack", "reject", "extend")
		var all []*client.Delivery
		for range 4 {
			all = append(all, take(t, con))
		}
		b.Advance(time.Minute)
		b.Disconnect()
		ok(t, all[0].Ack())
		ok(t, all[1].Nack(client.After(10*time.Second), client.Reason("later"), client.Metadata([]byte("step 2"))))
		ok(t, all[2].Reject("no good"))
		ok(t, all[3].Extend(2*time.Minute))
		ok(t, con.Flush(t.Context()))
		began := time.Now()
		d := take(t, con)
		if since := time.Since(began).Round(time.Second); string(d.Body) != "nack" || d.Attempt != 2 || string(d.Metadata()) != "step 2" || since != 10*time.Second {
			t.Errorf("%s came again as attempt %d with %q after %s", d.Body, d.Attempt, d.Metadata(), since)
		}
		ok(t, d.Ack())
		d = take(t, con)
		if since := time.Since(began).Round(time.Second); string(d.Body) != "extend" || d.Attempt != 2 || since != 2*time.Minute {
			t.Errorf("%s came again as attempt %d after %s", d.Body, d.Attempt, since)
		}
		ok(t, d.Ack())
		ok(t, con.Close(t.Context()))
		if dead := b.DeadLetters(t, queue, "billing"); len(dead) != 1 || string(dead[0].Message.Body) != "reject" || dead[0].Attempts != 1 {
			t.Errorf("dead letters: %+v", dead)
		}
		b.WaitEmpty(t, queue, "billing", time.Minute)
		if got := refused.get(); len(got) > 0 {
			t.Errorf("refused: %v", got)
		}
	})
}

// TestConsumer_ReleasedAndTakenAgain loses the connection that took a release and handed the message out again, before
// it confirmed the release: the consumer keeps the message.
func TestConsumer_ReleasedAndTakenAgain(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: time.Hour}, func(t *testing.T, b *clienttest.Broker) {
		con := consumer(t, b)
		b.Publish(t, queue, "confirmed", "message")
		ok(t, take(t, con).Ack()) // a Confirm goes with it, and the next one 50 ms later
		ok(t, take(t, con).Release())
		d := take(t, con)
		b.Disconnect()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for again, err := range con.Deliveries(ctx) {
			t.Fatalf("while the consumer has it: %v, %v", again, err)
		}
		ok(t, d.Ack())
		ok(t, con.Close(t.Context()))
		b.WaitEmpty(t, queue, "billing", time.Second)
	})
}

// TestConsumer_UnseenOutlivesAReset resets the connection while messages wait at the client: they are yielded, no
// attempt is lost.
func TestConsumer_UnseenOutlivesAReset(t *testing.T) {
	for _, limit := range []int{0, 50} {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			bubble(t, core.GroupSpec{LockTimeout: time.Minute}, func(t *testing.T, b *clienttest.Broker) {
				const n = 50
				con := consumer(t, b, client.Limit(limit))
				for i := range n {
					b.Publish(t, queue, fmt.Sprint(i))
				}
				for i := range n {
					d := take(t, con)
					if string(d.Body) != fmt.Sprint(i) || d.Attempt != 1 {
						t.Fatalf("got %s as attempt %d, want %d as the first", d.Body, d.Attempt, i)
					}
					if i%10 == 5 {
						b.Disconnect()
					}
					ok(t, d.Ack())
					b.Advance(time.Second / 10)
				}
				ok(t, con.Close(t.Context()))
				b.WaitEmpty(t, queue, "billing", time.Second)
			})
		})
	}
}

// TestConsumer_UnseenIsGivenBackAfterACrash: the broker is another one after its crash; what waited at the client comes
// again at once, and once.
func TestConsumer_UnseenIsGivenBackAfterACrash(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: time.Hour}, func(t *testing.T, b *clienttest.Broker) {
		con := consumer(t, b)
		b.Publish(t, queue, "a", "b", "c")
		first := take(t, con)
		b.Advance(10 * time.Second) // the locks are in a checkpoint
		b.Crash(t)
		ok(t, first.Ack())
		for _, want := range []string{"b", "c"} {
			if d := take(t, con); string(d.Body) != want || d.Attempt != 1 {
				t.Errorf("got %s as attempt %d, want %s as the first", d.Body, d.Attempt, want)
			} else {
				ok(t, d.Ack())
			}
		}
		ok(t, con.Close(t.Context()))
		b.WaitEmpty(t, queue, "billing", time.Second)
	})
}

// TestWork_TellsOfALostLock ends the lock of a running job in every way but one: its handler's context ends, with the
// reason.
func TestWork_TellsOfALostLock(t *testing.T) {
	for name, x := range map[string]struct {
		lose func(t *testing.T, b *clienttest.Broker)
		want error
	}{
		"seek": {func(t *testing.T, b *clienttest.Broker) {
			_, err := b.Client().Admin().Seek(t.Context(), queue, "billing", core.Start{Mode: core.StartEarliest})
			ok(t, err)
		}, client.ErrStale},
		"group deleted": {func(t *testing.T, b *clienttest.Broker) {
			ok(t, b.Client().Admin().DeleteGroup(t.Context(), queue, "billing"))
		}, client.ErrNotFound},
		"extensions do not arrive": {func(t *testing.T, b *clienttest.Broker) {
			heal := b.LoseRequests()
			b.Advance(time.Minute)
			heal()
		}, client.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, core.GroupSpec{LockTimeout: 40 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
				told := make(chan error, 10)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				worked := make(chan error, 1)
				go func() {
					worked <- b.Client().Work(ctx, queue, "billing", func(ctx context.Context, d *client.Delivery) error {
						if d.Attempt > 1 || len(told) > 0 {
							return nil
						}
						<-ctx.Done()
						told <- context.Cause(ctx)
						return ctx.Err()
					})
				}()
				b.Publish(t, queue, "job")
				b.Advance(2 * time.Minute)
				if len(told) > 0 {
					t.Fatalf("told to stop too early: %v", <-told)
				}
				began := time.Now()
				x.lose(t, b)
				err := <-told
				var lost *client.LockLostError
				if !errors.As(err, &lost) || !errors.Is(err, x.want) || lost.Attempt != 1 || lost.Receipt.Seq != 1 {
					t.Errorf("the handler was told: %v", err)
				}
				if since := time.Since(began); since > time.Minute {
					t.Errorf("it was told after %s, want at the latest when its lock has ended", since)
				}
				cancel()
				if err := <-worked; err != nil && !errors.Is(err, x.want) {
					t.Error(err)
				}
			})
		})
	}
}

// TestWork_SettledByHand: a handler that has settled its message may take its time.
func TestWork_SettledByHand(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 10 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
		stop := b.Work(t, queue, "billing", func(ctx context.Context, d *client.Delivery) error {
			ok(t, d.Ack())
			select {
			case <-ctx.Done():
				t.Errorf("told to stop: %v", context.Cause(ctx))
			case <-time.After(time.Minute):
			}
			return nil
		})
		b.Publish(t, queue, "job")
		b.WaitEmpty(t, queue, "billing", time.Minute)
		b.Advance(time.Minute)
		stop()
	})
}
