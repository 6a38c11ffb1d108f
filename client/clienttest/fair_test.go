package clienttest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// drained has a consumer take deliveries, give each to settle, and expects that many messages within ten minutes.
func drained(t *testing.T, b *clienttest.Broker, consumers []*client.Consumer, want int, settle func(*client.Delivery)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	got := make(map[core.MessageID]bool)
	var all sync.WaitGroup
	for _, con := range consumers {
		all.Go(func() {
			for d, err := range con.Deliveries(ctx) {
				if err != nil {
					return
				}
				mu.Lock()
				got[d.ID] = true
				mu.Unlock()
				settle(d)
			}
		})
	}
	b.Advance(10 * time.Minute)
	mu.Lock()
	if len(got) != want {
		t.Errorf("%d of %d messages were delivered in ten minutes; the depth is %+v", len(got), want, b.Depth(t, queue, "billing"))
	}
	mu.Unlock()
	cancel()
	all.Wait()
}

// Another process settles the tokens of two consumers at once. The two consumers no longer hold those messages.
func TestConsumers_TokensAreSettledElsewhere(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: time.Hour}, func(t *testing.T, b *clienttest.Broker) {
		const n = 12_000 // more than the two may hold
		for i := 0; i < n; i += 1000 {
			var bodies []string
			for k := range 1000 {
				bodies = append(bodies, fmt.Sprint(i+k))
			}
			b.Publish(t, queue, bodies...)
		}
		tokens := make(chan string, n)
		ctx, cancel := context.WithCancel(t.Context())
		var settler sync.WaitGroup
		settler.Go(func() {
			for {
				var all []string
				select {
				case x := <-tokens:
					all = append(all, x)
				case <-ctx.Done():
					return
				}
				for len(tokens) > 0 && len(all) < 1000 {
					all = append(all, <-tokens)
				}
				if bad, err := b.Client().Ack(ctx, all...); ctx.Err() == nil && (err != nil || len(bad) > 0) {
					t.Errorf("ack: %v %v", bad, err)
				}
			}
		})
		two := []*client.Consumer{consumer(t, b, client.WithTokens()), consumer(t, b, client.WithTokens())}
		drained(t, b, two, n, func(d *client.Delivery) { tokens <- d.Token })
		cancel()
		settler.Wait()
	})
}

// Messages are larger than the consumer's window of bytes. Each comes alone, when the consumer holds nothing.
func TestConsumer_MessagesLargerThanItsWindow(t *testing.T) {
	large := strings.Repeat("x", 3000)
	for name, c := range map[string]struct {
		spec   core.GroupSpec
		opts   []client.ConsumerOption
		settle func(*clienttest.Broker, *client.Delivery)
	}{
		"at most once, never acked": {core.GroupSpec{Delivery: core.AtMostOnce}, nil, func(*clienttest.Broker, *client.Delivery) {}},
		"tokens that are acked elsewhere": {
			core.GroupSpec{LockTimeout: time.Hour}, []client.ConsumerOption{client.WithTokens()},
			func(b *clienttest.Broker, d *client.Delivery) { _, _ = b.Client().Ack(context.Background(), d.Token) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			underrace.One(t, c.opts != nil)
			bubble(t, c.spec, func(t *testing.T, b *clienttest.Broker) {
				con := consumer(t, b, append(c.opts, client.PrefetchBytes(1000))...)
				b.Publish(t, queue, large, large, large, large, large)
				drained(t, b, []*client.Consumer{con}, 5, func(d *client.Delivery) { c.settle(b, d) })
			})
		})
	}
}

// A message was delivered, forgotten, delivered again and settled. It counts no more, and messages larger than the
// window come.
func TestConsumer_ForgottenDeliveryIsNotHeld(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 30 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
		con := consumer(t, b, client.PrefetchBytes(1000))
		b.Publish(t, queue, "forgotten")
		take(t, con)
		again := take(t, con)
		ok(t, again.Ack())
		b.Advance(time.Minute)
		b.Publish(t, queue, strings.Repeat("x", 3000), strings.Repeat("y", 3000))
		drained(t, b, []*client.Consumer{con}, 2, func(d *client.Delivery) { ok(t, d.Ack()) })
	})
}
