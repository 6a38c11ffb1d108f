package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const queue = "/demo/trips"

// bubble runs f in virtual time with a broker that has one queue with one group.
func bubble(t *testing.T, g core.GroupSpec, f func(t *testing.T, b *clienttest.Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		g.Name = "billing"
		b.CreateQueue(t, queue, g)
		f(t, b)
	})
}

// attempt is one run of a handler.
type attempt struct {
	body string
	n    int
	at   time.Duration // since the log was made
}

// attempts are those that handlers ran, in order.
type attempts struct {
	began time.Time
	mu    sync.Mutex
	all   []attempt
}

// note notes a delivery before the handler answers err.
func (a *attempts) note(d *client.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, attempt{string(d.Body), d.Attempt, time.Since(a.began).Round(time.Second)})
}

func (a *attempts) want(t *testing.T, want ...attempt) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.all, want) {
		t.Errorf("attempts: got %v, want %v", a.all, want)
	}
}

// handling answers each delivery by its body and attempt, and notes it.
func handling(answer func(body string, n int) error) (*attempts, client.Handler) {
	a := &attempts{began: time.Now()}
	return a, func(_ context.Context, d *client.Delivery) error {
		a.note(d)
		return answer(string(d.Body), d.Attempt)
	}
}

func done(string, int) error { return nil }

// take is the next delivery of a consumer.
func take(t *testing.T, con *client.Consumer) *client.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	t.Fatal("nothing comes")
	return nil
}

func consumer(t *testing.T, b *clienttest.Broker, opts ...client.ConsumerOption) *client.Consumer {
	t.Helper()
	con, err := b.Client().Consumer(t.Context(), queue, "billing", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return con
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestBroker_InRealTime is a broker without a bubble.
func TestBroker_InRealTime(t *testing.T) {
	b := clienttest.New(t)
	b.CreateQueue(t, queue, core.GroupSpec{Name: "billing"}, core.GroupSpec{Name: "audit"})
	b.Publish(t, queue, "a", "b")
	billing, handler := handling(done)
	b.Work(t, queue, "billing", handler)
	b.WaitEmpty(t, queue, "billing", 20*time.Second)
	if len(billing.all) != 2 || billing.all[0].body != "a" || billing.all[1].body != "b" {
		t.Errorf("got %v, want a and b", billing.all)
	}
	if d := b.Depth(t, queue, "audit"); d.Ready != 2 {
		t.Errorf("the other group has %+v, want both ready", d)
	}
}

// TestBroker_WithoutATest starts and closes one by hand, and more at once.
func TestBroker_WithoutATest(t *testing.T) {
	for range 3 {
		b, err := clienttest.Start()
		ok(t, err)
		_, err = b.Client().Admin().CreateQueue(t.Context(), core.QueueSpec{Path: queue})
		ok(t, err)
		other, err := clienttest.Start()
		ok(t, err)
		if _, err := other.Client().Admin().GetQueue(t.Context(), queue); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("one broker knows the queue of another: %v", err)
		}
		ok(t, other.Close())
		ok(t, b.Close())
		ok(t, b.Close())
		if _, err := b.Dial(t.Context()); err == nil {
			t.Error("a closed broker takes clients")
		}
	}
}

// TestBroker_RetriesByTheGroupsBackoff looks at the clock between attempts, and at the end of the last.
func TestBroker_RetriesByTheGroupsBackoff(t *testing.T) {
	g := core.GroupSpec{MaxDeliveries: 4, Backoff: core.Backoff{Min: 4 * time.Second, Factor: 2, Max: time.Minute}}
	bubble(t, g, func(t *testing.T, b *clienttest.Broker) {
		got, handler := handling(func(string, int) error { return errors.New("no such city") })
		b.Work(t, queue, "billing", handler)
		b.Publish(t, queue, "a")
		b.WaitEmpty(t, queue, "billing", time.Hour)
		got.want(t, attempt{"a", 1, 0}, attempt{"a", 2, 4 * time.Second}, attempt{"a", 3, 12 * time.Second}, attempt{"a", 4, 28 * time.Second})
		dead := b.DeadLetters(t, queue, "billing")
		if len(dead) != 1 || dead[0].Attempts != 4 || dead[0].Error != "no such city" || string(dead[0].Message.Body) != "a" {
			t.Errorf("dead letters %+v, want a after 4 attempts", dead)
		}
	})
}

// TestBroker_SettlesAsTold rejects, delays, extends and settles by token.
func TestBroker_SettlesAsTold(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 10 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
		con := consumer(t, b, client.WithTokens(), client.Prefetch(1))
		b.Publish(t, queue, "rejected")
		ok(t, take(t, con).Reject("not a trip"))
		b.WaitEmpty(t, queue, "billing", time.Minute)
		if dead := b.DeadLetters(t, queue, "billing"); len(dead) != 1 || dead[0].Error != "not a trip" || dead[0].Reason != "rejected" {
			t.Errorf("dead letters %+v, want the one that was rejected", dead)
		}
		b.Publish(t, queue, "delayed")
		began := time.Now()
		ok(t, take(t, con).Nack(client.After(20*time.Second)))
		if d := take(t, con); d.Attempt != 2 || time.Since(began).Round(time.Second) != 20*time.Second {
			t.Errorf("attempt %d after %s, want the second after 20 s", d.Attempt, time.Since(began))
		} else {
			ok(t, d.Extend(40*time.Second))
			b.Advance(35 * time.Second)
			if depth := b.Depth(t, queue, "billing"); depth.InFlight != 1 {
				t.Errorf("%+v five seconds before the end of an extension, want it in flight", depth)
			}
		}
		d := take(t, con)
		if d.Attempt != 3 {
			t.Errorf("attempt %d after the lock, want the third", d.Attempt)
		}
		failed, err := b.Client().Ack(t.Context(), d.Token)
		ok(t, err)
		if len(failed) > 0 {
			t.Errorf("an ack by token failed: %v", failed)
		}
		b.WaitEmpty(t, queue, "billing", time.Second)
	})
}

// TestBroker_KeepsAPublishersOrder has a cp queue go through a crash.
func TestBroker_KeepsAPublishersOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		_, err := b.Client().Admin().CreateQueue(t.Context(), core.QueueSpec{Path: queue, Consistency: core.CP})
		ok(t, err)
		_, err = b.Client().Admin().CreateGroup(t.Context(), core.GroupSpec{Queue: queue, Name: "billing"})
		ok(t, err)
		var want []string
		for i := range 40 {
			want = append(want, fmt.Sprintf("%02d", i))
		}
		b.Publish(t, queue, want[:20]...)
		b.Crash(t)
		b.Publish(t, queue, want[20:]...)
		var got []string
		b.Work(t, queue, "billing", func(_ context.Context, d *client.Delivery) error {
			got = append(got, string(d.Body))
			return nil
		})
		b.WaitEmpty(t, queue, "billing", time.Minute)
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want them in order", got)
		}
	})
}

// TestBroker_TimePasses looks at what depends on the clock alone: expiry, a group's delay, retention.
func TestBroker_TimePasses(t *testing.T) {
	bubble(t, core.GroupSpec{Delay: 20 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
		pub, err := b.Client().Publisher(t.Context(), queue)
		ok(t, err)
		_, err = pub.Publish(t.Context(), client.Message{Body: []byte("expires"), ExpireAt: time.Now().Add(10 * time.Second)})
		ok(t, err)
		_, err = pub.Publish(t.Context(), client.Message{Body: []byte("stays")})
		ok(t, err)
		ok(t, pub.Close(t.Context()))
		got, handler := handling(done)
		b.Work(t, queue, "billing", handler)
		b.Advance(19 * time.Second)
		got.want(t)
		b.WaitEmpty(t, queue, "billing", time.Minute)
		got.want(t, attempt{"stays", 1, 20 * time.Second})
	})
}

// recorder is a test that a helper fails.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failing is what a helper says when it fails; "" if it does not.
func failing(t *testing.T, helper func(t testing.TB)) string {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() { // joined below
		defer close(ended)
		helper(r)
	}()
	<-ended
	return r.said
}

// TestBroker_HelpersFailTheTest has each of them go wrong.
func TestBroker_HelpersFailTheTest(t *testing.T) {
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		b.Publish(t, queue, "a")
		for _, c := range []struct {
			name   string
			helper func(t testing.TB)
			says   string
		}{
			{"CreateQueue", func(t testing.TB) { b.CreateQueue(t, queue) }, "create queue /demo/trips: "},
			{"CreateQueue, group", func(t testing.TB) { b.CreateQueue(t, "/demo/other", core.GroupSpec{Name: "g", MaxDeliveries: 5000}) }, "create group g of /demo/other: "},
			{"Publish", func(t testing.TB) { b.Publish(t, "/demo/none", "a") }, "publish to /demo/none: "},
			{"Publish, too large", func(t testing.TB) { b.Publish(t, queue, strings.Repeat("a", 2<<20)) }, "to /demo/trips: "},
			{"Depth", func(t testing.TB) { b.Depth(t, queue, "none") }, "depth of group none of /demo/trips: "},
			{"DeadLetters", func(t testing.TB) { b.DeadLetters(t, queue, "none") }, "dead letters of group none of /demo/trips: "},
			{"Redeliver", func(t testing.TB) { b.Redeliver(t, queue, "none") }, "redeliver to group none of /demo/trips: "},
			{"WaitEmpty", func(t testing.TB) { b.WaitEmpty(t, queue, "billing", 5*time.Second) }, "is not empty within 5s"},
		} {
			if said := failing(t, c.helper); !strings.Contains(said, c.says) {
				t.Errorf("%s says %q, want %q", c.name, said, c.says)
			}
		}
	})
}

// BenchmarkStart is how long a broker takes until it is ready, and to stop.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		broker, err := clienttest.Start()
		if err != nil {
			b.Fatal(err)
		}
		if err := broker.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
