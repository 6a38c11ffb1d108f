package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// sockets are the connections of one client.
type sockets struct {
	mu   sync.Mutex
	open []*net.TCPConn
}

func (s *sockets) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, c.(*net.TCPConn))
	return c, nil
}

// reset ends all of them with a TCP reset.
func (s *sockets) reset() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for _, c := range open {
		_ = c.SetLinger(0) // both fail on one that is closed already
		_ = c.Close()
	}
}

// TestConsumerSocketIsReset resets the sockets of the one consumer of a group, again and again, while it holds
// deliveries: the group drains to zero.
func TestConsumerSocketIsReset(t *testing.T) {
	resets, server := 40, (*process.Server)(nil)
	if os.Getenv(longEnv) == "" {
		server = process.StartServer(t)
	} else {
		resets, server = scaled(t, 500), process.StartCluster(t, process.Layout{}).Controller
	}
	server.Must("", "create", "queue", queue)
	l := newLoadOf(t, server, 500, []string{"work"}, "--lock-timeout", "1s", "--max-deliveries", "unlimited")
	l.start(1, 0)
	// No consumer has seen the messages of a connection that was lost.
	l.noted(verify.Crash{What: "sockets are reset from now on", From: time.Now(), To: time.Now()})
	var s sockets
	cl := server.Client(client.WithNetDial(s.dial))
	ctx, cancel := context.WithCancel(t.Context())
	h := &holding{load: l, group: "work", name: "reset"}
	var consumer sync.WaitGroup
	stop := func() { cancel(); consumer.Wait() }
	t.Cleanup(stop)
	consumer.Go(func() { h.consume(ctx, cl) })
	for range resets {
		from := h.taken()
		process.Eventually(t, "it holds deliveries", func() bool { return h.taken() > from })
		<-time.After(time.Duration(l.random(30)) * time.Millisecond)
		s.reset()
		h.reset()
	}
	l.goesOn(100)
	held, lost := h.acrossResets()
	report := l.finish()
	stop()
	if held < resets/4 {
		t.Errorf("%d deliveries were held when their socket was reset %d times", held, resets)
	}
	if lost > held/2 {
		t.Errorf("%d of %d deliveries that were held over a reset could not be acknowledged", lost, held)
	}
	l.row(fmt.Sprintf("the sockets of a group's only consumer reset %d times", resets), fmt.Sprintf("%d deliveries were held over a reset, %d could not be acknowledged, %d came again", held, lost, report.Counts[0].Retries))
}

// holding is a consumer that keeps a few deliveries before it acknowledges the oldest.
type holding struct {
	*load
	group, name string

	counts struct {
		sync.Mutex
		taken, held, lost int       // acknowledged; held over a reset; of those, not taken by the server
		last              time.Time // reset
	}
}

const holds = 20

func (h *holding) taken() int {
	h.counts.Lock()
	defer h.counts.Unlock()
	return h.counts.taken
}

func (h *holding) reset() {
	h.counts.Lock()
	defer h.counts.Unlock()
	h.counts.last = time.Now()
}

func (h *holding) acrossResets() (held, lost int) {
	h.counts.Lock()
	defer h.counts.Unlock()
	return h.counts.held, h.counts.lost
}

// consume goes on until ctx ends, and then acknowledges the rest.
func (h *holding) consume(ctx context.Context, cl *client.Client) {
	con, err := cl.Consumer(ctx, queue, h.group, client.Prefetch(100))
	if err != nil {
		h.t.Errorf("consumer %s: %v", h.name, err)
		return
	}
	var held []*client.Delivery
	var at []time.Time
	ack := func() {
		how := verify.Late
		if err := held[0].Ack(); err != nil {
			how = verify.Dropped
		}
		h.saw(h.group, h.name, held[0], how, at[0])
		h.counts.Lock()
		h.counts.taken++
		if at[0].Before(h.counts.last) {
			h.counts.held++
			if how == verify.Dropped {
				h.counts.lost++
			}
		}
		h.counts.Unlock()
		held, at = held[1:], at[1:]
	}
	for {
		// Without a message for a while it acknowledges what it holds: nothing else may be left.
		some, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		for d, err := range con.Deliveries(some) {
			if err != nil {
				h.t.Errorf("consumer %s: %v", h.name, err)
				break
			}
			if held, at = append(held, d), append(at, time.Now()); len(held) > holds {
				ack()
			}
		}
		idle := some.Err() != nil
		cancel()
		for idle && len(held) > 0 {
			ack()
		}
		if ctx.Err() != nil {
			break
		}
	}
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = con.Close(end)
}
