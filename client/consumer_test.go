package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func consume(t testing.TB, c *Client, opts ...ConsumerOption) *Consumer {
	t.Helper()
	con, err := c.Consumer(limited(t), "/t/q", "g", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { con.Close(context.Background()) })
	return con
}

func TestConsumer_DeliversAndAcks(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 1000)
	con := consume(t, dial(t, f), Prefetch(50))
	n := 0
	for d, err := range con.Deliveries(limited(t)) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if want := core.Seq(n); d.Receipt.Seq != want || d.Receipt.Extent != f.extent {
			t.Fatalf("receipt %v, want seq %d", d.Receipt, want)
		}
		if n == 1 && (string(d.Body) != "m0001" || d.Key() != "k" || d.Attempt != 1 || d.ID.IsZero() || d.Enqueued.Unix() != 1_700_000_000 || d.Token != "") {
			t.Errorf("first delivery: %+v", d)
		}
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(); !errors.Is(err, ErrStale) {
			t.Errorf("second ack: %v, want stale", err)
		}
		if n == 1000 {
			break
		}
	}
	if err := con.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all acked", func() bool { return f.ackedCount() == 1000 })
}

func TestConsumer_NeverHoldsMoreThanPrefetch(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 100)
	con := consume(t, dial(t, f), Prefetch(8))
	eventually(t, "the first credit is used", func() (ok bool) {
		f.state(func() { ok = len(f.mu.ready) == 92 })
		return ok
	})
	for range con.Deliveries(limited(t)) {
		break
	}
	f.state(func() {
		if got := len(f.mu.ready); got < 92-8 || got > 92 {
			t.Errorf("%d are left ready after one was yielded", got)
		}
	})
}

func TestConsumer_NackRejectExtendTokens(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 3)
	con := consume(t, dial(t, f), WithTokens())
	n := 0
	for d, err := range con.Deliveries(limited(t)) {
		if err != nil {
			t.Fatal(err)
		}
		switch n++; n {
		case 1:
			if d.Token != "token-1" {
				t.Errorf("token %q", d.Token)
			}
			if err := d.Nack(After(2*time.Second), Reason("no")); err != nil {
				t.Error(err)
			}
		case 2:
			if err := d.Reject("poison"); err != nil {
				t.Error(err)
			}
		case 3:
			if err := d.Extend(time.Minute); err != nil {
				t.Error(err)
			}
			if err := d.Nack(); err != nil {
				t.Error(err)
			}
			if err := d.Extend(time.Minute); !errors.Is(err, ErrStale) {
				t.Errorf("extend after nack: %v", err)
			}
		default:
			if d.Attempt != 2 {
				t.Errorf("attempt %d, want 2", d.Attempt)
			}
			if err := d.Ack(); err != nil {
				t.Error(err)
			}
		}
		if n == 5 {
			break
		}
	}
	eventually(t, "two acked", func() bool { return f.ackedCount() == 2 })
	f.state(func() {
		if len(f.mu.nacks) != 2 || f.mu.nacks[0].DelayMillis != 2000 || string(f.mu.nacks[0].Reason) != "no" || f.mu.nacks[1].DelayMillis != -1 {
			t.Errorf("nacks %+v", f.mu.nacks)
		}
		if !slices.Equal(f.mu.rejected, []string{"poison"}) || f.mu.extended != 1 {
			t.Errorf("rejected %q, extended %d", f.mu.rejected, f.mu.extended)
		}
	})
}

func TestConsumer_LostConnection(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 20)
	con := consume(t, dial(t, f), Prefetch(5))
	ctx := limited(t)
	var held *Delivery
	for d := range con.Deliveries(ctx) {
		held = d
		break
	}
	f.cut()
	eventually(t, "the ack of a lost delivery is stale", func() bool { return errors.Is(held.Extend(time.Second), ErrStale) })
	if err := held.Ack(); !errors.Is(err, ErrStale) {
		t.Errorf("ack: %v, want stale", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for d, err := range con.Deliveries(ctx) {
			if err != nil {
				t.Error(err)
			}
			d.Ack()
			if d.Receipt.Seq == 10 && d.Attempt == 1 {
				f.cut()
			}
		}
	})
	eventually(t, "all acked", func() bool { return f.ackedCount() == 20 })
	cancel()
	wg.Wait()
}

func TestConsumer_CloseReturnsWhatWasNotYielded(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 30)
	con := consume(t, dial(t, f), Prefetch(20))
	n := 0
	for d := range con.Deliveries(limited(t)) {
		d.Ack()
		if n++; n == 3 {
			break
		}
	}
	if err := con.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rest is ready again", func() (ok bool) {
		f.state(func() { ok = len(f.mu.ready) == 27 && len(f.mu.acked) == 3 && len(f.mu.streams) == 0 })
		return ok
	})
	for d, err := range con.Deliveries(limited(t)) {
		t.Fatalf("closed consumer yields %v, %v", d, err)
	}
}

// TestConsumer_GivenUpReturnsWhatCame: a host that is connected to just as the time of Consumer ends has messages for a
// consumer that nobody gets. They go back at once, and not after the lock timeout.
func TestConsumer_GivenUpReturnsWhatCame(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 30)
	con := consume(t, dial(t, f), Prefetch(20))
	eventually(t, "the prefetch is full", func() (ok bool) {
		f.state(func() { ok = len(f.mu.ready) == 10 })
		return ok
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	con.giveUp(ctx)
	eventually(t, "the messages came back", func() (ok bool) {
		f.state(func() { ok = f.mu.returned == 20 && len(f.mu.ready) == 30 })
		return ok
	})
}

func TestConsumer_DeliveriesEndWithContext(t *testing.T) {
	f := startFake(t, &fake{})
	con := consume(t, dial(t, f))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for d, err := range con.Deliveries(ctx) {
		t.Fatalf("got %v, %v", d, err)
	}
}

func TestConsumer_SeveralRanges(t *testing.T) {
	f := startFake(t, &fake{})
	con := consume(t, dial(t, f), Prefetch(16))
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	var wg sync.WaitGroup
	var n atomic.Int32
	for range 4 {
		wg.Go(func() {
			for d := range con.Deliveries(ctx) {
				d.Ack()
				if n.Add(1) == 500 {
					cancel()
				}
			}
		})
	}
	for range 50 {
		f.add(t, 10)
	}
	wg.Wait()
	con.Flush(limited(t))
	eventually(t, "all acked", func() bool { return f.ackedCount() == 500 })
}

func TestConsumer_RefusedForGood(t *testing.T) {
	f := startFake(t, &fake{hello: func(*pb.ConsumeHello) error {
		return core.Errorf(core.CodeNotFound, "group g of /t/q is not there; create it first")
	}})
	if _, err := dial(t, f).Consumer(limited(t), "/t/q", "g"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
	if _, err := dial(t, f).Consumer(limited(t), "t", "g"); !errors.Is(err, ErrBadName) {
		t.Errorf("got %v, want bad name", err)
	}
}

func TestConsumer_GroupDeletedEndsDeliveries(t *testing.T) {
	var gone atomic.Bool
	f := &fake{}
	f.route = func() ([]*pb.HostAddress, error) {
		if gone.Load() {
			return nil, core.Errorf(core.CodeNotFound, "group g of /t/q is not there")
		}
		return []*pb.HostAddress{{Id: "h1", Address: f.addr}}, nil
	}
	startFake(t, f)
	con := consume(t, dial(t, f))
	gone.Store(true)
	f.cut()
	for _, err := range con.Deliveries(limited(t)) {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v, want not found", err)
		}
	}
}

func TestConsumer_RefusalIsReported(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 1)
	got := make(chan Refusal, 1)
	con := consume(t, dial(t, f), OnRefused(func(r Refusal) { got <- r }))
	for d := range con.Deliveries(limited(t)) {
		f.steal(1)
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
		break
	}
	select {
	case r := <-got:
		if r.Receipt.Seq != 1 || r.Receipt.Extent != f.extent || !errors.Is(r.Err, ErrStale) {
			t.Errorf("refusal %+v", r)
		}
	case <-limited(t).Done():
		t.Error("no refusal")
	}
}

func TestConsumer_WaitedTooLongIsGivenBack(t *testing.T) {
	f := startFake(t, &fake{lock: time.Second})
	f.add(t, 5)
	consume(t, dial(t, f), Prefetch(2))
	eventually(t, "what nobody takes is returned", func() (ok bool) {
		f.state(func() { ok = f.mu.returned >= 2 })
		return ok
	})
}

// TestConsumer_EndedAsksForNoMore: the group is not there any more, and a host that has not heard it goes on to
// deliver. The messages go back, and the client asks for no more: else the same ones go to and fro until the
// application closes the consumer.
func TestConsumer_EndedAsksForNoMore(t *testing.T) {
	f := startFake(t, &fake{})
	con := consume(t, dial(t, f), Prefetch(2))
	con.fail(core.Errorf(core.CodeNotFound, "group g of /t/q is not there"))
	f.add(t, 5)
	returned := func() (n int) {
		f.state(func() { n = f.mu.returned })
		return n
	}
	eventually(t, "what comes is returned", func() bool { return returned() >= 2 })
	if err := con.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	if n := returned(); n > 2 {
		t.Errorf("%d deliveries came and went back, want 2", n)
	}
}

// TestConsumer_Release gives deliveries back: they come again, and count as settled here.
func TestConsumer_Release(t *testing.T) {
	f := startFake(t, &fake{})
	f.add(t, 5)
	con := consume(t, dial(t, f), Prefetch(2))
	for d, err := range con.Deliveries(limited(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Release(); err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(); !errors.Is(err, ErrStale) {
			t.Errorf("ack after release: %v, want stale", err)
		}
		break
	}
	if err := con.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are ready again", func() (ok bool) {
		f.state(func() { ok = len(f.mu.ready) == 5 && len(f.mu.acked) == 0 })
		return ok
	})
}
