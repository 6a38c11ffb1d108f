package client

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/wire"
)

// twoHosts are output hosts of one group; the first is also the frontend.
func twoHosts(t *testing.T) (a, b *fake) {
	t.Helper()
	a, b = &fake{}, startFake(t, &fake{})
	a.route = func() ([]*pb.HostAddress, error) {
		return []*pb.HostAddress{{Id: "a", Address: a.addr}, {Id: "b", Address: b.addr}}, nil
	}
	return startFake(t, a), b
}

// sent is how many messages were sent, and did not come back.
func sent(hosts ...*fake) (n int) {
	for _, f := range hosts {
		f.state(func() { n += len(f.mu.messages) - len(f.mu.ready) })
	}
	return n
}

func TestLimit_EndsDeliveries(t *testing.T) {
	for name, each := range map[string][2]int{"both have some": {300, 300}, "the first has all": {600, 0}, "the second has all": {0, 600}, "just enough": {31, 70}} {
		t.Run(name, func(t *testing.T) {
			a, b := twoHosts(t)
			a.add(t, each[0])
			b.add(t, each[1])
			con := consume(t, dial(t, a), Limit(101), Prefetch(40))
			var n atomic.Int32
			var wg sync.WaitGroup
			ctx := limited(t)
			for range 3 {
				wg.Go(func() {
					for d, err := range con.Deliveries(ctx) {
						if err != nil {
							t.Error(err)
							return
						}
						n.Add(1)
						if err := d.Ack(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if err := con.Flush(ctx); err != nil {
				t.Error(err)
			}
			if n.Load() != 101 || sent(a, b) != 101 {
				t.Errorf("%d were yielded and %d sent, want 101", n.Load(), sent(a, b))
			}
			eventually(t, "all are acked", func() bool { return a.ackedCount()+b.ackedCount() == 101 })
		})
	}
}

// TestLimit_LostConnection loses what was sent and not yielded; so many more are asked for, and no more.
func TestLimit_LostConnection(t *testing.T) {
	a, b := twoHosts(t)
	a.add(t, 100)
	b.add(t, 100)
	con := consume(t, dial(t, a), Limit(20))
	eventually(t, "the limit is used", func() bool { return sent(a, b) == 20 })
	n := 0
	for d, err := range con.Deliveries(limited(t)) {
		if err != nil {
			t.Fatal(err)
		}
		d.Ack() // stale, if its connection is lost
		if n++; n == 5 {
			a.cut()
			b.cut()
		}
	}
	if n != 20 {
		t.Errorf("%d were yielded, want 20", n)
	}
	eventually(t, "20 at most are held or done", func() bool { return sent(a, b) <= 20 }) // a host may not have heard yet that its connection was lost
}

func TestLimit_EndsWork(t *testing.T) {
	a, b := twoHosts(t)
	a.add(t, 40)
	b.add(t, 40)
	var n atomic.Int32
	err := dial(t, a).Work(limited(t), "/t/q", "g", func(context.Context, *Delivery) error {
		n.Add(1)
		return nil
	}, Limit(30), Concurrency(4))
	if err != nil || n.Load() != 30 {
		t.Errorf("%d were worked on, want 30: %v", n.Load(), err)
	}
	eventually(t, "they are acked", func() bool { return a.ackedCount()+b.ackedCount() == 30 })
	if got := sent(a, b); got != 30 {
		t.Errorf("%d were sent, want 30", got)
	}
}

// TestConsumer_LockTimeoutIsToldAgain has the host answer the hello once more.
func TestConsumer_LockTimeoutIsToldAgain(t *testing.T) {
	f := startFake(t, &fake{lock: time.Minute})
	con := consume(t, dial(t, f))
	f.state(func() {
		for s := range f.mu.streams {
			s.send(wire.TypeConsumeHelloOK, &pb.ConsumeHelloOK{LockTimeout: durationpb.New(5 * time.Minute)})
		}
	})
	eventually(t, "the consumer knows", func() bool { return con.LockTimeout() == 5*time.Minute })
}
