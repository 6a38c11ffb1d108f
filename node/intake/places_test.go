package intake

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
)

func TestPlacesOfAnAddressAndOfAll(t *testing.T) {
	p := newPlaces([kinds]int{publicCall: 8, publicPull: 4, hostCall: 4, hostPull: 4})
	under := map[kind]map[string][]*call{publicCall: {}, publicPull: {}, hostPull: {}}
	enter := func(n int, k kind, address string, want core.Code) {
		t.Helper()
		for i := range n {
			c, err := p.enter(k, address, "conn of "+address)
			if core.CodeOf(err) != want {
				t.Fatalf("call %d of %s: %v, want %q", i, address, err, want)
			}
			if err == nil {
				under[k][address] = append(under[k][address], c)
			}
		}
	}
	leave := func(k kind, address string) {
		p.leave(under[k][address][0])
		under[k][address] = under[k][address][1:]
	}
	enter(3, publicPull, "a", "")
	enter(1, publicPull, "a", core.CodeThrottled) // three quarters
	enter(1, publicPull, "b", "")
	enter(1, publicPull, "b", core.CodeThrottled) // all are taken
	enter(6, publicCall, "a", "")                 // pulls take no place of calls
	enter(3, hostPull, "a", "")
	leave(publicPull, "a")
	enter(1, publicPull, "b", "")
	for range 2 {
		leave(publicPull, "a")
		leave(publicPull, "b")
	}
	if n := len(p.mu.byAddress[publicPull]) + len(p.mu.byConn[publicPull]); n != 0 || p.under(publicPull) != 0 {
		t.Errorf("%d addresses and connections without calls are kept, %d places are taken", n, p.under(publicPull))
	}
}

// TestCallWithoutAPlaceIsNotRead has a call more come than there are places for: it is refused before its body is
// there.
func TestCallWithoutAPlaceIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		call := servedIn(t, in)
		k := kindOf(pull, true)
		for range mostCalls[k] * 3 / 4 {
			if _, err := in.places.enter(k, "client", "another connection"); err != nil {
				t.Fatal(err)
			}
		}
		never, w := io.Pipe()
		defer w.Close()
		req := post(t, pull, "application/json", never)
		req.ContentLength = 16
		res, err := call(t.Context(), req)
		status, text := answerOf(t, res, err)
		for _, part := range []string{`"code":"resource_exhausted"`, "3000 pulls of this address are under way, which is the limit; pull with fewer at once"} {
			if !strings.Contains(text, part) {
				t.Errorf("the answer %s lacks %q", text, part)
			}
		}
		if status != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || in.public.Held() != 0 {
			t.Errorf("a pull too many: %d, Retry-After %q, %d bytes held", status, res.Header.Get("Retry-After"), in.public.Held())
		}
		res, err = call(t.Context(), post(t, publish, "application/json", strings.NewReader(`{}`)))
		if status, text := answerOf(t, res, err); status != http.StatusOK {
			t.Errorf("a call of another kind: %d %s", status, text)
		}
		if got := kindOf("/columba.v1.OutputService/Pull", false); got != hostPull {
			t.Errorf("a pull of a host is of kind %d", got)
		}
	})
}

// stalling runs an intake of eight places, six of which one address may have. A request says its address and connection
// in headers.
type stalling struct {
	t *testing.T
	l *netmem.Listener
}

func newStalling(t *testing.T) (*stalling, *Intake) {
	in := newIntake()
	in.places = newPlaces([kinds]int{publicCall: 8, publicPull: 8, hostCall: 8, hostPull: 8})
	l := netmem.Listen("server")
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	s := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.Serve(w, r, r.Header.Get("Address"), r.Header.Get("Conn"), page)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return &stalling{t: t, l: l}, in
}

// call sends the head of a publish and so much of its body of two bytes; the status comes later, if it comes.
func (s *stalling) call(address, conn string, sent string) <-chan int {
	s.t.Helper()
	client := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.l.Dial(ctx) }, DisableKeepAlives: true}
	s.t.Cleanup(client.CloseIdleConnections)
	var body io.Reader = strings.NewReader(sent) // a whole one goes with the head: the server may refuse that, and close, before more comes
	if len(sent) < 2 {
		rest, w := io.Pipe()
		s.t.Cleanup(func() { w.Close() })
		body = io.MultiReader(body, rest)
	}
	req := post(s.t, publish, "application/json", body)
	req.ContentLength = 2
	req.Header.Set("Address", address)
	req.Header.Set("Conn", conn)
	status := make(chan int, 1)
	go func() {
		if res, err := client.RoundTrip(req); err == nil {
			res.Body.Close()
			status <- res.StatusCode
		}
		close(status)
	}()
	synctest.Wait()
	return status
}

// refusedAsSlow is how many of the calls were cut by now.
func refusedAsSlow(calls []<-chan int) (n int) {
	for _, c := range calls {
		select {
		case status := <-c:
			if status == http.StatusRequestTimeout {
				n++
			}
		default:
		}
	}
	return n
}

// TestStalledBodiesGiveTheirPlacesAway has bodies that stall take all places of an address, by few connections and by
// many.
func TestStalledBodiesGiveTheirPlacesAway(t *testing.T) {
	t.Run("of few connections", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, in := newStalling(t)
			var stalled []<-chan int
			for range 6 {
				stalled = append(stalled, s.call("a", "greedy", "{"))
			}
			for i := range 3 {
				if status := <-s.call("a", "modest", "{}"); status != http.StatusOK {
					t.Fatalf("call %d of another connection: %d, want 200", i, status)
				}
			}
			if status := <-s.call("a", "greedy", "{}"); status != http.StatusOK {
				t.Errorf("a place that is free: %d, want 200", status)
			}
			if n := refusedAsSlow(stalled); n != 1 {
				t.Errorf("%d bodies were cut for one call at a time, want 1", n)
			}
			time.Sleep(calmPause + time.Second)
			if n := in.places.under(publicCall); n != 0 {
				t.Errorf("%d places are taken after all calls", n)
			}
		})
	})
	t.Run("of many connections", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newStalling(t)
			for i := range 6 {
				s.call("a", strconv.Itoa(i), "{")
			}
			if status := <-s.call("a", "modest", "{}"); status != http.StatusTooManyRequests {
				t.Errorf("a call more, while no body is slow: %d, want 429", status)
			}
			time.Sleep(pressedPause + time.Millisecond)
			if status := <-s.call("a", "modest", "{}"); status != http.StatusOK {
				t.Errorf("a call more, while bodies are slow: %d, want 200", status)
			}
		})
	})
	t.Run("of two addresses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newStalling(t)
			for i := range 8 {
				s.call([]string{"a", "a", "a", "b"}[i%4], strconv.Itoa(i), "{")
			}
			if status := <-s.call("c", "modest", "{}"); status != http.StatusOK {
				t.Errorf("a call of a third address: %d, want 200", status)
			}
		})
	})
}
