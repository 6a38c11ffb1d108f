package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// The page on retries.

type busyError struct{ after time.Duration }

func (e busyError) Error() string { return fmt.Sprintf("busy for %s", e.after) }

var errNoSuchAddress = errors.New("no such address")

// mailServer answers each message in turn, and notes when it was asked. Handlers that run side by side ask it.
type mailServer struct {
	began   time.Time
	mu      sync.Mutex
	answers map[string][]error
	asked   map[string][]time.Duration
}

var mailer *mailServer

func send(_ context.Context, to string) error {
	mailer.mu.Lock()
	defer mailer.mu.Unlock()
	mailer.asked[to] = append(mailer.asked[to], time.Since(mailer.began))
	answers := mailer.answers[to]
	if len(answers) == 0 {
		return nil
	}
	mailer.answers[to] = answers[1:]
	return answers[0]
}

func deliver(ctx context.Context, d *client.Delivery) error {
	err := send(ctx, string(d.Body))
	var busy busyError
	switch {
	case errors.As(err, &busy):
		return client.Retry(busy.after) // the other side said when
	case errors.Is(err, errNoSuchAddress):
		return client.Reject("no such address") // no attempt will help: a dead letter, at once
	}
	return err // nil: done. Any other: again, after the backoff
}

func TestGuide_Retry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		b.CreateQueue(t, "/demo/mail")
		ctx, stop := context.WithCancel(t.Context())
		c := b.Client()
		createMail(t, ctx, c)
		down := errors.New("down")
		mailer = &mailServer{
			answers: map[string][]error{"flaky": {down, down}, "busy": {busyError{30 * time.Second}}, "nobody": {errNoSuchAddress}},
			asked:   map[string][]time.Duration{}, began: time.Now(),
		}
		b.Publish(t, "/demo/mail", "flaky", "busy", "nobody")
		ended := make(chan error, 1)
		go func() { // joined below
			err := c.Work(ctx, "/demo/mail", "send", deliver, client.Concurrency(16))
			ended <- err
		}()
		b.WaitEmpty(t, "/demo/mail", "send", time.Hour)
		stop()
		ok(t, <-ended)
		wantGaps(t, "flaky", 0.2, 20*time.Second, 40*time.Second)
		wantGaps(t, "busy", 0, 30*time.Second)
		wantGaps(t, "nobody", 0)
		if dead := b.DeadLetters(t, "/demo/mail", "send"); len(dead) != 1 || string(dead[0].Message.Body) != "nobody" {
			t.Errorf("dead letters %+v, want nobody", dead)
		}
	})
}

func createMail(t *testing.T, ctx context.Context, c *client.Client) {
	t.Helper()
	_, err := c.Admin().CreateGroup(ctx, core.GroupSpec{
		Queue: "/demo/mail", Name: "send",
		Backoff:       core.Backoff{Min: 20 * time.Second, Factor: 2, Max: 30 * time.Minute, Jitter: 0.2},
		MaxDeliveries: 8,
	})
	ok(t, err)
}

// wantGaps compares the times between attempts, which may differ by a part of them and a second.
func wantGaps(t *testing.T, to string, jitter float64, gaps ...time.Duration) {
	t.Helper()
	mailer.mu.Lock()
	asked := mailer.asked[to]
	mailer.mu.Unlock()
	if len(asked) != len(gaps)+1 {
		t.Errorf("%s was tried at %v, want %d attempts", to, asked, len(gaps)+1)
		return
	}
	for i, want := range gaps {
		off := (asked[i+1] - asked[i] - want).Abs()
		if most := time.Duration(jitter*float64(want)) + time.Second; off > most {
			t.Errorf("%s was tried at %v, want gaps of %v", to, asked, gaps)
		}
	}
}

// The page on poison messages.

type trip struct{ to string }

func parseTrip(body []byte) (trip, error) {
	to, isTrip := strings.CutPrefix(string(body), "to ")
	if !isTrip {
		return trip{}, errors.New("no destination")
	}
	return trip{to}, nil
}

func charge(_ context.Context, t trip) error {
	if t.to == "nowhere" {
		return errors.New("no such place")
	}
	return nil
}

func bill(ctx context.Context, d *client.Delivery) error {
	trip, err := parseTrip(d.Body)
	if err != nil {
		return client.Reject(err.Error()) // a dead letter, at once; the reason is kept
	}
	return charge(ctx, trip)
}

func printDead(ctx context.Context, c *client.Client) error {
	for dead, err := range c.Admin().DeadLetters(ctx, "/demo/rides", "billing") {
		if err != nil {
			return err
		}
		fmt.Printf("%s after %d attempts: %s\n", dead.Message.Body, dead.Attempts, dead.Error)
	}
	return nil
}

func publishDead(ctx context.Context, c *client.Client, pub *client.Publisher) error {
	for dead, err := range c.Admin().DeadLetters(ctx, "/demo/rides", "billing") {
		if err != nil {
			return err
		}
		again := dead.Message
		again.ID = client.MessageID{} // a new message
		if _, err := pub.Publish(ctx, again); err != nil {
			return err
		}
	}
	return nil
}

func TestGuide_Poison(t *testing.T) {
	const rides = "/demo/rides"
	bubble(t, core.GroupSpec{}, func(t *testing.T, b *clienttest.Broker) {
		b.CreateQueue(t, rides, core.GroupSpec{Name: "billing", MaxDeliveries: 3})
		stop := b.Work(t, rides, "billing", bill)
		b.Publish(t, rides, "not a trip", "to nowhere", "to the station")
		b.WaitEmpty(t, rides, "billing", time.Minute)
		stop()
		ok(t, printDead(t.Context(), b.Client()))
		got := map[string]int{}
		for _, d := range b.DeadLetters(t, rides, "billing") {
			got[string(d.Message.Body)+": "+d.Error] = d.Attempts
		}
		if len(got) != 2 || got["not a trip: no destination"] != 1 || got["to nowhere: no such place"] != 3 {
			t.Errorf("dead letters %v", got)
		}
		pub, err := b.Client().Publisher(t.Context(), rides)
		ok(t, err)
		ok(t, publishDead(t.Context(), b.Client(), pub))
		ok(t, pub.Close(t.Context()))
		again, handler := handling(done)
		b.Work(t, rides, "billing", handler)
		b.WaitEmpty(t, rides, "billing", time.Minute)
		if len(again.all) != 2 || again.all[0].n != 1 {
			t.Errorf("came back: %v, want both as first attempts", again.all)
		}
	})
}

// The page on delays.

type order struct {
	due      time.Time
	customer string
}

func parseOrder(body []byte) (order, error) {
	due, customer, _ := strings.Cut(string(body), " ")
	at, err := time.Parse(time.RFC3339, due)
	return order{at, customer}, err
}

var reminded map[string]time.Time

func mail(_ context.Context, customer string) error {
	reminded[customer] = time.Now()
	return nil
}

func remind(ctx context.Context, d *client.Delivery) error {
	order, err := parseOrder(d.Body)
	if err != nil {
		return client.Reject(err.Error())
	}
	if wait := time.Until(order.due); wait > 0 {
		return client.Retry(min(wait, time.Hour)) // ask again, when it is due or in an hour
	}
	return mail(ctx, order.customer)
}

func publishExpiring(ctx context.Context, pub *client.Publisher, body []byte) error {
	_, err := pub.Publish(ctx, client.Message{Body: body, ExpireAt: time.Now().Add(time.Minute)})
	return err
}

func cancelled(ctx context.Context, c *client.Client, pub *client.Publisher, body []byte) error {
	receipt, err := pub.Publish(ctx, client.Message{Body: body, Delay: time.Hour}) // or DeliverAt: a time
	if err != nil {
		return err
	}
	results, err := c.Cancel(ctx, "/demo/alarms", receipt.Receipt)
	if err != nil {
		return err
	}
	for _, g := range results[0].Groups {
		fmt.Println(g.Group, g.Outcome) // phone cancelled, or delivered: it was too late
	}
	again, err := client.ParseReceipt(receipt.String())
	if err != nil {
		return err
	}
	if results, err = c.Cancel(ctx, "/demo/alarms", again); err != nil {
		return err
	}
	if len(results) != 1 || results[0].Err != nil || len(results[0].Groups) != 1 || results[0].Groups[0].Outcome != client.OutcomeCancelled {
		return fmt.Errorf("cancelled: %+v", results)
	}
	return nil
}

func TestGuide_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		b.CreateQueue(t, "/demo/alarms", core.GroupSpec{Name: "phone"})
		pub, err := b.Client().Publisher(t.Context(), "/demo/alarms")
		ok(t, err)
		ok(t, cancelled(t.Context(), b.Client(), pub, []byte("never mind")))
		for began := time.Now(); ; time.Sleep(100 * time.Millisecond) { // what is counted may be of a moment before
			d, err := b.Client().Admin().Depth(t.Context(), "/demo/alarms", "phone")
			if err == nil && len(d) == 1 && d[0].Delayed == 0 {
				break
			}
			if time.Since(began) > time.Second {
				t.Fatalf("depth %+v, %v: nothing waits any more", d, err)
			}
		}
	})
}

func TestGuide_Delays(t *testing.T) {
	bubble(t, core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries}, func(t *testing.T, b *clienttest.Broker) {
		reminded = map[string]time.Time{}
		b.Work(t, queue, "billing", remind)
		due := time.Now().Add(time.Minute).Truncate(time.Second)
		b.Publish(t, queue, due.Format(time.RFC3339)+" Ada", "soon Bob")
		b.WaitEmpty(t, queue, "billing", time.Hour)
		if late := reminded["Ada"].Sub(due); len(reminded) != 1 || late < 0 || late > time.Second {
			t.Errorf("reminded at %v, want Ada at %s", reminded, due)
		}
		b.CreateQueue(t, "/demo/cars", core.GroupSpec{Name: "drivers"})
		pub, err := b.Client().Publisher(t.Context(), "/demo/cars")
		ok(t, err)
		ok(t, publishExpiring(t.Context(), pub, []byte("here")))
		ok(t, pub.Close(t.Context()))
		b.Advance(70 * time.Second)
		got, handler := handling(done)
		b.Work(t, "/demo/cars", "drivers", handler)
		b.WaitEmpty(t, "/demo/cars", "drivers", time.Minute)
		got.want(t)
	})
}
