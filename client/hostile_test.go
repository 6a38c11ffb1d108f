package client

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// TestConsumer_DeliveriesBeyondTheCredit has a host send all it has for a credit of eight: the stream ends, and the
// inbox holds no more than was asked for.
func TestConsumer_DeliveriesBeyondTheCredit(t *testing.T) {
	for name, opts := range map[string][]ConsumerOption{"prefetch": {Prefetch(8)}, "limit": {Prefetch(8), Limit(8)}} {
		t.Run(name, func(t *testing.T) {
			var hellos atomic.Int32
			f := startFake(t, &fake{greedy: true, hello: func(*pb.ConsumeHello) error { hellos.Add(1); return nil }})
			f.add(t, 100)
			con := consume(t, dial(t, f), opts...)
			eventually(t, "the host is greeted again", func() bool { return hellos.Load() > 1 })
			con.inbox.mu.Lock()
			defer con.inbox.mu.Unlock()
			held := 0
			for _, s := range append(con.inbox.mu.slabs, con.inbox.mu.apart...) {
				held += len(s.deliveries)
			}
			if held > 8 {
				t.Errorf("the inbox holds %d messages", held)
			}
		})
	}
}

// TestClient_LargeAnswer has a server answer a call with more than any server sends, packed and as an error too: the
// call fails, and says why.
func TestClient_LargeAnswer(t *testing.T) {
	const most = 1 << 20 // in place of maxAnswer, which takes half a minute to unpack under the race detector
	for name, answer := range map[string]func(w http.ResponseWriter){
		"packed": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.CopyN(z, zeros{}, most+1)
			_ = z.Close()
		},
		"error": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.CopyN(w, zeros{}, most+1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				answer(w)
			}))
			defer server.Close()
			c, err := Dial(t.Context(), server.Listener.Addr().String(), func(o *options) { o.answer = most })
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Pull(limited(t), "/t/q", "g", 1, time.Second); core.CodeOf(err) != core.CodeTooLarge {
				t.Errorf("the call ends with %v, want too large", err)
			}
		})
	}
}

// TestClient_ServerThatStarts refuses a change as a server does that is not serving yet: it certainly did nothing, and
// another server is asked.
func TestClient_ServerThatStarts(t *testing.T) {
	starting := func() string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "frontend is not serving; try again", http.StatusServiceUnavailable)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	c, err := Dial(t.Context(), starting())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Admin().CreateQueue(limited(t), core.QueueSpec{Path: "/t/q"}); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("the call ends with %v, want unavailable", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestConsumer_RouteOfManyHosts has a server name more output hosts than any cluster has: none of them is connected to.
// Nor are those that a host names.
func TestConsumer_RouteOfManyHosts(t *testing.T) {
	var many atomic.Bool
	f := &fake{}
	f.route = func() ([]*pb.HostAddress, error) {
		hosts := []*pb.HostAddress{{Id: "h1", Address: f.addr}}
		for i := 0; many.Load() && i < maxHosts; i++ {
			hosts = append(hosts, &pb.HostAddress{Id: fmt.Sprintf("no-%d", i), Address: "nowhere"})
		}
		return hosts, nil
	}
	c := dial(t, startFake(t, f))
	con := consume(t, c)
	many.Store(true)
	hosts, _ := f.route()
	if err := con.reconfigure(hosts); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("a list of %d hosts ends with %v, want unavailable", len(hosts), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // a busy machine takes its time for the first route
	defer cancel()
	if _, err := c.Consumer(ctx, "/t/q", "g"); err == nil || !strings.Contains(err.Error(), "a route names") {
		t.Errorf("a route of %d hosts ends with %v", len(hosts), err)
	}
}
