package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// held publishes n messages to a group that delivers at most once and has a consumer receive them all. It answers the
// first, so the others wait at the client.
func held(t *testing.T, b *clienttest.Broker, n int, opts ...client.ConsumerOption) (*client.Consumer, *client.Delivery) {
	t.Helper()
	con := consumer(t, b, append(opts, client.Prefetch(10*n))...)
	for i := range n {
		b.Publish(t, queue, fmt.Sprint(i))
	}
	first := take(t, con)
	b.Advance(10 * time.Second)
	return con, first
}

// wantRest takes what the client holds after the first of n messages: all of it, in order, at once.
func wantRest(t *testing.T, con *client.Consumer, n int) {
	t.Helper()
	began := time.Now()
	for i := 1; i < n; i++ {
		d := take(t, con)
		if string(d.Body) != fmt.Sprint(i) || d.Attempt != 1 {
			t.Fatalf("got %s as attempt %d, want %d as the first", d.Body, d.Attempt, i)
		}
		if err := d.Ack(); err != nil {
			t.Errorf("ack of %d: %v", i, err)
		}
	}
	if since := time.Since(began); since > time.Second {
		t.Errorf("the client yielded what it holds within %s, want at once", since)
	}
}

func setStatus(t *testing.T, b *clienttest.Broker, status core.Status) {
	t.Helper()
	_, err := b.Client().Admin().UpdateGroup(t.Context(), core.GroupSpec{Queue: queue, Name: "billing", Status: status}, "status")
	ok(t, err)
}

// TestConsumer_AtMostOnceYieldsInAPause disables the group while messages wait at the client: they are yielded first,
// then the pause is told of.
func TestConsumer_AtMostOnceYieldsInAPause(t *testing.T) {
	for _, limit := range []int{0, 100} {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			bubble(t, core.GroupSpec{Delivery: core.AtMostOnce}, func(t *testing.T, b *clienttest.Broker) {
				const n = 50
				con, _ := held(t, b, n, client.Limit(limit))
				setStatus(t, b, core.StatusDisabled)
				b.Advance(10 * time.Second)
				wantRest(t, con, n)
				for _, err := range con.Deliveries(t.Context()) {
					if !errors.Is(err, client.ErrDisabled) {
						t.Errorf("after the last message: %v, want disabled", err)
					}
					break
				}
				setStatus(t, b, core.StatusEnabled)
				b.Publish(t, queue, "later")
				if d := take(t, con); string(d.Body) != "later" {
					t.Errorf("got %s after the pause, want what was published then", d.Body)
				}
				ok(t, con.Close(t.Context()))
			})
		})
	}
}

// TestConsumer_AtMostOnceYieldsAfterAReset loses the connection, or the broker, while messages wait at the client.
func TestConsumer_AtMostOnceYieldsAfterAReset(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *clienttest.Broker){
		"reset": func(_ *testing.T, b *clienttest.Broker) { b.Disconnect() },
		"crash": func(t *testing.T, b *clienttest.Broker) { b.Crash(t) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, core.GroupSpec{Delivery: core.AtMostOnce}, func(t *testing.T, b *clienttest.Broker) {
				const n = 50
				con, first := held(t, b, n)
				lose(t, b)
				b.Advance(10 * time.Second)
				ok(t, first.Ack())
				wantRest(t, con, n)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for d, err := range con.Deliveries(ctx) {
					t.Fatalf("%s came twice (%v)", d.Body, err)
				}
				ok(t, con.Close(t.Context()))
			})
		})
	}
}

// TestAck_AtMostOnce settles by token what a group got that delivers at most once: an ack is taken, however often and
// late, all else is refused.
func TestAck_AtMostOnce(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *clienttest.Broker){
		"while the owner lives": func(*testing.T, *clienttest.Broker) {},
		"after a crash":         func(t *testing.T, b *clienttest.Broker) { b.Crash(t) },
		"after a seek": func(t *testing.T, b *clienttest.Broker) {
			_, err := b.Client().Admin().Seek(t.Context(), queue, "billing", core.Start{Mode: core.StartLatest})
			ok(t, err)
			b.Advance(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, core.GroupSpec{Delivery: core.AtMostOnce}, func(t *testing.T, b *clienttest.Broker) {
				b.Publish(t, queue, "a", "b")
				pulled, err := b.Client().Pull(t.Context(), queue, "billing", 2, time.Minute)
				ok(t, err)
				con := consumer(t, b, client.WithTokens())
				b.Publish(t, queue, "c")
				tokens := []string{take(t, con).Token}
				for _, p := range pulled {
					tokens = append(tokens, p.Token)
				}
				ok(t, con.Close(t.Context()))
				before(t, b)
				for range 2 {
					failures, err := b.Client().Ack(t.Context(), tokens...)
					ok(t, err)
					for _, f := range failures {
						t.Errorf("ack: %v", f.Err)
					}
				}
				wantStale := func(verb string, failures []client.TokenError, err error) {
					t.Helper()
					ok(t, err)
					if len(failures) != len(tokens) {
						t.Errorf("%s: %d of %d were refused", verb, len(failures), len(tokens))
					}
					for _, f := range failures {
						if !errors.Is(f.Err, client.ErrStale) {
							t.Errorf("%s: %v, want stale", verb, f.Err)
						}
					}
				}
				failures, err := b.Client().Nack(t.Context(), tokens)
				wantStale("nack", failures, err)
				failures, err = b.Client().Reject(t.Context(), tokens, "no")
				wantStale("reject", failures, err)
				failures, err = b.Client().Extend(t.Context(), tokens, time.Minute)
				wantStale("extend", failures, err)
			})
		})
	}
}

// TestConsumer_AtMostOnceAcksAfterASeek acks over the stream what the group got before a seek: it is taken like every
// ack, so nothing is refused.
func TestConsumer_AtMostOnceAcksAfterASeek(t *testing.T) {
	bubble(t, core.GroupSpec{Delivery: core.AtMostOnce}, func(t *testing.T, b *clienttest.Broker) {
		var refused causes
		con, first := held(t, b, 2, client.OnRefused(func(r client.Refusal) { refused.add(r.Err) }))
		_, err := b.Client().Admin().Seek(t.Context(), queue, "billing", core.Start{Mode: core.StartLatest})
		ok(t, err)
		b.Advance(time.Minute)
		ok(t, first.Ack())
		ok(t, con.Flush(t.Context()))
		for _, err := range refused.get() {
			t.Errorf("refused: %v", err)
		}
		ok(t, con.Close(t.Context()))
	})
}
