// Package clienttest is a broker in memory for the tests of programs that use Columba.
//
//	func TestBilling(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			b := clienttest.New(t)
//			b.CreateQueue(t, "/demo/trips", core.GroupSpec{Name: "billing", MaxDeliveries: 3})
//			b.Work(t, "/demo/trips", "billing", bill) // the handler under test
//			b.Publish(t, "/demo/trips", "to the station")
//			b.WaitEmpty(t, "/demo/trips", "billing", time.Minute)
//			…
//		})
//	}
//
// The broker is the server itself: all roles of `columba serve`, on a network, a disk and metadata in memory, without
// process, file or port. So it has all delivery rules – locks, attempts, backoff, dead letters, expiry, the order of CP
// queues – and a program gets the same [client.Client] as in production, with the same errors.
//
// In a testing/synctest bubble, as above, time is virtual: lock timeouts, backoffs and retentions pass at once when all
// goroutines wait, and in [Broker.Advance]. Without a bubble the broker works in real time.
//
// These methods inject failures: [Broker.Disconnect], [Broker.LoseRequests], [Broker.LoseAnswers],
// [Broker.RefusePublishes], [Broker.Redeliver], [Broker.Crash].
package clienttest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
)

// Addr is the address of every Broker, for programs that dial one. Only [Broker.NetDial] connects to it.
const Addr = "broker.test:4922"

// Broker is a server in memory. Safe for concurrent use, except Crash and Close. If a method that has a testing.TB
// fails, it ends the test.
type Broker struct {
	client  *client.Client
	net     *network
	disk    *memdisk.Disk
	meta    metadata.Store
	log     *journal
	process *process
	ctx     context.Context // of the handlers of Work
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // handlers of Work, and processes that have crashed
	mu      struct {
		sync.Mutex
		clients []*client.Client
		closed  bool
	}
}

// New starts a broker that stops when the test ends. If the test fails, its log has the end of the broker's log.
func New(t testing.TB) *Broker {
	t.Helper()
	b, err := Start()
	if err != nil {
		t.Fatalf("start the broker: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("stop the broker: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the broker:\n%s", b.log.text())
		}
	})
	return b
}

// Start starts a broker without a test, for TestMain and for examples. Stop it with Close.
func Start() (*Broker, error) {
	b := &Broker{net: newNetwork(), disk: memdisk.New(), meta: memory.New(), log: &journal{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	err := b.start()
	if err == nil {
		b.client, err = b.Dial(context.Background(), client.WithName("test"))
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close ends the handlers of Work and the clients, and stops the broker. Its messages are lost. Idempotent.
func (b *Broker) Close() error {
	b.mu.Lock()
	again := b.mu.closed
	b.mu.closed = true
	clients := b.mu.clients
	b.mu.Unlock()
	if again {
		return nil
	}
	b.cancel()
	b.net.heal()
	b.tasks.Wait()
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	if b.process != nil {
		errs = append(errs, b.process.stop())
	}
	return errors.Join(append(errs, b.meta.Close())...)
}

// Client is connected to the broker. It ends with the broker, and may be closed before.
func (b *Broker) Client() *client.Client { return b.client }

// Dial makes another client, as [client.Dial] does. It ends with the broker at the latest.
func (b *Broker) Dial(ctx context.Context, opts ...client.Option) (*client.Client, error) {
	c, err := client.Dial(ctx, Addr, append([]client.Option{client.WithNetDial(b.NetDial)}, opts...)...)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.mu.clients = append(b.mu.clients, c)
	closed := b.mu.closed
	b.mu.Unlock()
	if closed {
		return nil, errors.Join(core.Errorf(core.CodeUnavailable, "the broker is closed"), c.Close())
	}
	return c, nil
}

// NetDial connects to the broker, whatever the address is. A program that dials by itself takes it as an option:
//
//	client.Dial(ctx, clienttest.Addr, client.WithNetDial(b.NetDial))
func (b *Broker) NetDial(ctx context.Context, _, _ string) (net.Conn, error) {
	return b.net.dial(ctx)
}

// Advance lets time pass, and waits for it. In a bubble no real time passes, and everything that is due in between
// happens.
func (b *Broker) Advance(d time.Duration) { time.Sleep(d) }
