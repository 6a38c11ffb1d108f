package clienttest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// TestBroker_Disconnect breaks connections under a publisher and a worker: both go on.
func TestBroker_Disconnect(t *testing.T) {
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		got, handler := handling(done)
		b.Work(t, queue, "billing", handler)
		pub, err := b.Client().Publisher(t.Context(), queue)
		ok(t, err)
		for range 5 {
			_, err := pub.Publish(t.Context(), client.Message{Body: []byte("a")})
			ok(t, err)
			b.Disconnect()
		}
		ok(t, pub.Close(t.Context()))
		b.WaitEmpty(t, queue, "billing", 5*time.Minute)
		if len(got.all) < 5 {
			t.Errorf("%d deliveries of 5 messages", len(got.all))
		}
	})
}

// TestBroker_LoseAnswers has a publish end unknown: it is stored. One that has time is sent again, under the same id.
func TestBroker_LoseAnswers(t *testing.T) {
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		pub, err := b.Client().Publisher(t.Context(), queue)
		ok(t, err)
		publish := func(body string, heal time.Duration) (client.Receipt, error) {
			_, err := pub.Publish(t.Context(), client.Message{Body: []byte("connects")})
			ok(t, err)
			undo := b.LoseAnswers()
			time.AfterFunc(heal, undo)
			return pub.Publish(t.Context(), client.Message{Body: []byte(body)})
		}
		if r, err := publish("unknown", 35*time.Second); !errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("published at %s, %v; want an unknown outcome", r, err)
		}
		b.Advance(10 * time.Second)
		again, err := publish("again", 10*time.Second)
		ok(t, err)
		b.Advance(time.Second) // the store has heard that the last one is committed
		counts := map[string]int{}
		var ids []client.MessageID
		for m, err := range b.Client().Admin().Peek(t.Context(), queue) {
			ok(t, err)
			counts[string(m.Message.Body)]++
			if string(m.Message.Body) == "again" {
				ids = append(ids, m.Message.ID)
			}
		}
		if counts["unknown"] == 0 || counts["again"] != 2 || ids[0] != again.ID || ids[1] != again.ID {
			t.Errorf("stored %v, again as %v; want unknown, and again twice under its id %s", counts, ids, again.ID)
		}
		ok(t, pub.Close(t.Context()))
	})
}

// TestBroker_LoseRequests has an ack not arrive: for a moment, then it is sent again; for longer than the lock timeout,
// then the message comes again.
func TestBroker_LoseRequests(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 20 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
		con := consumer(t, b)
		b.Publish(t, queue, "short")
		heal := b.LoseRequests()
		ok(t, take(t, con).Ack())
		b.Advance(time.Second)
		heal()
		b.WaitEmpty(t, queue, "billing", 10*time.Second)
		b.Publish(t, queue, "long")
		d := take(t, con)
		heal = b.LoseRequests()
		ok(t, d.Ack())
		b.Advance(2 * time.Minute)
		heal()
		again := take(t, con)
		if again.Attempt < 2 || again.ID != d.ID {
			t.Errorf("attempt %d of %s, want a later one of %s", again.Attempt, again.ID, d.ID)
		}
		ok(t, again.Ack())
		b.WaitEmpty(t, queue, "billing", time.Minute)
	})
}

// TestBroker_LosesBothWays cuts clients off: nothing is published, and what was not sent is known not to be stored.
func TestBroker_LosesBothWays(t *testing.T) {
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		pub, err := b.Client().Publisher(t.Context(), queue)
		ok(t, err)
		healRequests, healAnswers := b.LoseRequests(), b.LoseAnswers()
		_, err = pub.Publish(t.Context(), client.Message{Body: []byte("lost")})
		if !errors.Is(err, client.ErrUnknownOutcome) { // it was sent, and nobody can say how far it came
			t.Errorf("published into a cut: %v, want an unknown outcome", err)
		}
		_, err = pub.Publish(t.Context(), client.Message{Body: []byte("waits")})
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("published without a connection: %v, want unavailable", err)
		}
		healRequests()
		healRequests()
		healAnswers()
		_, err = pub.Publish(t.Context(), client.Message{Body: []byte("after")})
		ok(t, err)
		ok(t, pub.Close(t.Context()))
		got, handler := handling(done)
		b.Work(t, queue, "billing", handler)
		b.WaitEmpty(t, queue, "billing", time.Minute)
		got.want(t, attempt{"after", 1, 0})
	})
}

// TestBroker_RefusePublishes has what is there be consumed, and nothing come in.
func TestBroker_RefusePublishes(t *testing.T) {
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		b.Publish(t, queue, "before")
		accept := b.RefusePublishes()
		pub, err := b.Client().Publisher(t.Context(), queue)
		ok(t, err)
		if _, err := pub.Publish(t.Context(), client.Message{Body: []byte("refused")}); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("published: %v, want unavailable", err)
		}
		got, handler := handling(done)
		b.Work(t, queue, "billing", handler)
		b.WaitEmpty(t, queue, "billing", time.Minute)
		accept()
		_, err = pub.Publish(t.Context(), client.Message{Body: []byte("after")})
		ok(t, err)
		ok(t, pub.Close(t.Context()))
		b.WaitEmpty(t, queue, "billing", time.Minute)
		if len(got.all) != 2 || got.all[0].body != "before" || got.all[1].body != "after" {
			t.Errorf("got %v, want before and after", got.all)
		}
	})
}

// TestBroker_Redeliver takes messages from a consumer that holds them: they come again. A late ack counts.
func TestBroker_Redeliver(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 20 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
		con := consumer(t, b)
		b.Publish(t, queue, "a")
		held := take(t, con)
		b.Redeliver(t, queue, "billing")
		if d := take(t, con); d.Attempt != 2 || d.ID != held.ID {
			t.Errorf("attempt %d of %s, want the second of %s", d.Attempt, d.ID, held.ID)
		}
		ok(t, held.Ack())
		b.WaitEmpty(t, queue, "billing", time.Minute)
	})
}

// TestBroker_Crash kills the broker under work: nothing that was acknowledged is lost, acks of just before are.
func TestBroker_Crash(t *testing.T) {
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		b.Publish(t, queue, "a")
		got, handler := handling(done)
		stop := b.Work(t, queue, "billing", handler)
		// The ack is saved, and the next checkpoint is not near: they are at whole seconds, as the bubble began with one.
		b.Advance(time.Until(time.Now().Truncate(time.Second).Add(5100 * time.Millisecond)))
		b.Publish(t, queue, "b")
		b.Advance(10 * time.Millisecond) // it is acked, and that is not saved
		b.Crash(t)
		b.Publish(t, queue, "c")
		b.WaitEmpty(t, queue, "billing", 5*time.Minute)
		stop()
		b.Advance(2 * time.Second)
		counts := map[string]int{}
		for _, a := range got.all {
			counts[a.body]++
		}
		if counts["a"] != 1 || counts["b"] != 2 || counts["c"] != 1 {
			t.Errorf("deliveries %v, want b twice", counts)
		}
		for range 3 {
			b.Crash(t)
		}
		b.Advance(20 * time.Second)
		if d := b.Depth(t, queue, "billing"); d.Ready+d.InFlight+d.Delayed+d.Dead != 0 {
			t.Errorf("%+v, want nothing", d)
		}
	})
}

// TestBroker_CrashInRealTime has a client of before go on after it.
func TestBroker_CrashInRealTime(t *testing.T) {
	b := clienttest.New(t)
	b.CreateQueue(t, queue, core.GroupSpec{Name: "billing"})
	pub, err := b.Client().Publisher(t.Context(), queue)
	ok(t, err)
	for range 3 {
		_, err := pub.Publish(t.Context(), client.Message{Body: []byte("a")})
		ok(t, err)
		b.Crash(t)
	}
	ok(t, pub.Close(t.Context()))
	n := make(chan struct{}, 100)
	b.Work(t, queue, "billing", func(context.Context, *client.Delivery) error {
		n <- struct{}{}
		return nil
	})
	for range 3 {
		<-n
	}
}
