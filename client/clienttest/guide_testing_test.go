package clienttest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
)

// The page on tests.

// billing is a program under test.
type billing struct {
	down    int // how many charges fail
	charged map[string]int
}

func (s *billing) handle(_ context.Context, d *client.Delivery) error {
	if !strings.HasPrefix(string(d.Body), "to ") {
		return client.Reject("not a trip")
	}
	if s.down--; s.down >= 0 {
		return errors.New("down")
	}
	if s.charged == nil {
		s.charged = map[string]int{}
	}
	s.charged[string(d.Body)]++
	return nil
}

func TestBilling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := clienttest.New(t)
		b.CreateQueue(t, "/demo/trips", core.GroupSpec{
			Name: "billing", MaxDeliveries: 3, Backoff: core.Backoff{Min: time.Minute, Factor: 2, Max: time.Hour},
		})
		service := &billing{down: 1} // what is under test; its first charge fails
		b.Work(t, "/demo/trips", "billing", service.handle)
		b.Publish(t, "/demo/trips", "to the station", "not a trip")
		b.WaitEmpty(t, "/demo/trips", "billing", time.Hour)

		if service.charged["to the station"] != 1 {
			t.Errorf("charged %d times", service.charged["to the station"])
		}
		dead := b.DeadLetters(t, "/demo/trips", "billing")
		if len(dead) != 1 || dead[0].Error != "not a trip" {
			t.Errorf("dead letters: %+v", dead)
		}
	})
}

// placeOrder publishes with a time limit.
func placeOrder(ctx context.Context, pub *client.Publisher) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := pub.Publish(ctx, client.Message{Body: []byte("a pizza")})
	return err
}

func TestGuide_Testing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := clienttest.New(t)
		c, err := client.Dial(ctx, clienttest.Addr, client.WithNetDial(b.NetDial))
		ok(t, err)
		b.CreateQueue(t, "/demo/accounts", core.GroupSpec{Name: "ledger"})
		pub, err := c.Publisher(ctx, "/demo/accounts")
		ok(t, err)
		n := 0
		b.Work(t, "/demo/accounts", "ledger", func(context.Context, *client.Delivery) error {
			n++
			time.Sleep(500 * time.Millisecond)
			return nil
		})
		b.Publish(t, "/demo/accounts", "10")
		b.Advance(200 * time.Millisecond)

		heal := b.LoseRequests()   // what the worker sends does not arrive
		b.Advance(2 * time.Minute) // longer than the group's lock timeout
		heal()
		b.WaitEmpty(t, "/demo/accounts", "ledger", time.Hour)
		if n != 2 {
			t.Errorf("%d deliveries of a message whose ack was lost, want two", n)
		}

		accept := b.RefusePublishes()
		err = placeOrder(ctx, pub) // publishes with a deadline
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("ordered without a queue: %v", err)
		}
		accept()
		ok(t, pub.Close(ctx))
		ok(t, c.Close())
	})
}
