package outputhost

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/outputhost/budget"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// client is the other end of a session.
type client struct {
	s        *session
	conn     *ws.Conn
	messages int
	closed   []int // how many messages had come when a close was answered, each time
	refused  []wire.AckFailure
	failed   []error // of streams
	read     func()  // begins to read
	ended    error   // of the session
	mu       sync.Mutex
}

func (c *client) got() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages
}

// connect makes a session whose client does not read yet.
func (b *harness) connect() *client {
	b.t.Helper()
	l := netmem.Listen("out")
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{}
	ready := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := b.newSession(w, r)
		if err != nil {
			b.t.Error(err)
			return
		}
		c.s = s
		close(ready)
		err = s.mux.Run(ctx)
		c.mu.Lock()
		c.ended = err
		c.mu.Unlock()
	})}
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(l) })
	conn, err := ws.Dial(ctx, "out", "/", ws.Options{NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }})
	if err != nil {
		b.t.Fatal(err)
	}
	<-ready
	c.conn = conn
	c.read = func() {
		wg.Go(func() {
			conn.Run(ctx, func(m *ws.Message) error {
				for rest := m.Bytes; len(rest) > 0; {
					f, r, err := wire.NextFrame(rest)
					if err != nil {
						return err
					}
					rest = r
					switch f.Type {
					case wire.TypeDeliver:
						c.mu.Lock()
						c.messages++
						c.mu.Unlock()
					case wire.TypeConsumeClose:
						c.mu.Lock()
						c.closed = append(c.closed, c.messages)
						c.mu.Unlock()
					case wire.TypeError:
						c.mu.Lock()
						c.failed = append(c.failed, convert.FrameError(f.Body))
						c.mu.Unlock()
					case wire.TypeAckResult:
						var refused wire.AckResult
						if err := refused.Decode(f.Body); err != nil {
							return err
						}
						c.mu.Lock()
						c.refused = append(c.refused, refused.Entries...)
						c.mu.Unlock()
					}
				}
				return nil
			})
		})
	}
	b.t.Cleanup(func() {
		conn.Abort(nil)
		cancel()
		server.Close()
		wg.Wait()
	})
	return c
}

// large is a group with n ready messages of 1 MiB.
func (b *harness) large(version uint64, n int) *group {
	b.t.Helper()
	_, a := b.group()
	if err := b.give(version, a); err != nil {
		b.t.Fatal(err)
	}
	var g *group
	for _, loaded := range b.groupList() {
		if string(loaded.id.ID[:]) == string(a.Group) {
			g = loaded
		}
	}
	if n == 0 {
		return g
	}
	records := dispatch.Records{Base: 1, Offsets: []uint32{0}, Bytes: make([]byte, n<<20)}
	for i := range n {
		records.Offsets = append(records.Offsets, uint32(i+1)<<20)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.mu.shares {
		s.end, s.l, s.last = true, core.Seq(n), core.Seq(n)
		if err := s.rules.Offer(records, b.deps.Now()); err != nil {
			b.t.Fatal(err)
		}
		s.reader = &reader{g: g, s: s}
		b.t.Cleanup(func() {
			g.mu.Lock()
			s.reader = nil
			g.mu.Unlock()
		})
	}
	return g
}

// consume lets a stream of a connection take everything the group has.
func (c *client) consume(g *group) *consumer {
	o := &consumer{s: c.s, h: g.h, id: dispatch.SessionID(g.h.nextSession.Add(1))}
	o.group.Store(g)
	o.credit.messages, o.credit.bytes = 1000, g.h.cfg.MaxCredit
	g.mu.Lock()
	g.mu.consumers = append(g.mu.consumers, o)
	g.countCreditLocked(o)
	g.mu.Unlock()
	return o
}

// TestConsumer_ThatDoesNotReadHoldsUpNobody: whoever pumps a group never waits for a client, what its connection has no
// room for goes to others, and in the end the connection is given up.
func TestConsumer_ThatDoesNotReadHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		stalled := b.connect()
		var groups []*group
		for i := range 5 {
			g := b.large(uint64(i+1), 20)
			groups = append(groups, g)
			stalled.consume(g)
			begin := time.Now()
			g.pump()
			if took := time.Since(begin); took > 0 {
				t.Fatalf("a pump of group %d took %s", i, took)
			}
		}
		if !stalled.s.mux.Conn.Full() {
			t.Fatal("100 MiB were ready for the connection, and it is not full")
		}
		last := groups[len(groups)-1]
		other := b.connect()
		other.read()
		other.consume(last)
		last.pump()
		synctest.Wait()
		if got := other.got(); got < 11 {
			t.Errorf("a consumer that reads got %d of 20 messages, want all but those the other connection had room for", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		stalled.mu.Lock()
		defer stalled.mu.Unlock()
		if core.CodeOf(stalled.ended) != core.CodeUnavailable {
			t.Errorf("the session of the consumer that does not read ended with %v, want %s", stalled.ended, core.CodeUnavailable)
		}
	})
}

// TestConsumer_ThatReadsLateGetsAll: a connection that was full gets the rest once it reads.
func TestConsumer_ThatReadsLateGetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		c := b.connect()
		g := b.large(1, 30)
		o := c.consume(g)
		g.pump()
		if g.mu.Lock(); o.held > 10 {
			t.Errorf("%d messages of 1 MiB were sent to a connection with room for 8", o.held)
		}
		g.mu.Unlock()
		time.Sleep(time.Second)
		c.read()
		synctest.Wait()
		if got := c.got(); got != 30 {
			t.Errorf("%d of 30 messages arrived", got)
		}
	})
}

// TestConsumers_ThatDoNotReadShareTheMemory: many connections that leave their deliveries unread hold little more
// together than a few, each gets some, and all go on when they read.
func TestConsumers_ThatDoNotReadShareTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, messages, bound = 10, 60, 16 << 20
		b := newHarness(t)
		b.unread = budget.New(bound)
		g := b.large(1, messages)
		var clients []*client
		var consumers []*consumer
		for range many {
			c := b.connect()
			clients, consumers = append(clients, c), append(consumers, c.consume(g))
		}
		g.pump()
		queued := 0
		g.mu.Lock()
		for i, o := range consumers {
			if o.held == 0 {
				t.Errorf("consumer %d got nothing", i)
			}
			queued += o.held << 20
		}
		g.mu.Unlock()
		if most := bound + many<<20; queued > most {
			t.Errorf("%d MiB wait for %d connections that do not read, want at most %d", queued>>20, many, most>>20)
		}
		got := 0
		for _, c := range clients {
			c.read()
			synctest.Wait()
		}
		for _, c := range clients {
			got += c.got()
		}
		if held := b.unread.Held(); got != messages || held != 0 {
			t.Errorf("%d of %d messages arrived, and %d bytes are counted, want all and none", got, messages, held)
		}
	})
}
