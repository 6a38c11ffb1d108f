package ws

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestAdmission_LeavesConnectionsForOthers lets addresses connect as often as they can, one after another.
func TestAdmission_LeavesConnectionsForOthers(t *testing.T) {
	a := NewAdmission(Limits{Connections: 120, Streams: 1, PerConnection: 1}, nil)
	var places []*place
	greedy := func(addr string) (taken int) {
		for i := 0; ; i++ {
			p, err := a.connect(fmt.Sprintf(addr, 1000+i))
			if err != nil {
				if core.CodeOf(err) != core.CodeThrottled {
					t.Errorf("connect = %v, want %s", err, core.CodeThrottled)
				}
				return taken
			}
			taken++
			places = append(places, p)
		}
	}
	for _, step := range []struct {
		addr string
		want int
	}{
		{"192.0.2.1:%d", 60},
		{"192.0.2.1:%d", 0},
		{"192.0.2.2:%d", 30},
		{"[2001:db8::1]:%d", 15},
		{"[2001:db8::2]:%d", 0}, // of the same /64
		{"[2001:db8:0:1::2]:%d", 8},
		{"[::ffff:192.0.2.1]:%d", 0}, // the first again
		{"memory", 4},
	} {
		if got := greedy(step.addr); got != step.want {
			t.Errorf("%s got %d connections, want %d", step.addr, got, step.want)
		}
	}
	for _, p := range places {
		p.leave()
	}
	if n := len(a.mu.addresses); n != 0 || a.mu.connections != 0 {
		t.Errorf("%d addresses and %d connections are left when all have gone", n, a.mu.connections)
	}
}

// TestAdmission_LeavesStreamsForOthers opens streams on several connections, as many as they can.
func TestAdmission_LeavesStreamsForOthers(t *testing.T) {
	a := NewAdmission(Limits{Connections: 100, Streams: 1000, PerConnection: 300}, nil)
	connect := func(addr string) *place {
		p, err := a.connect(addr)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	greedy := func(p *place) (taken int) {
		for p.open() == nil {
			taken++
		}
		if err := p.open(); core.CodeOf(err) != core.CodeThrottled {
			t.Errorf("open = %v, want %s", err, core.CodeThrottled)
		}
		return taken
	}
	one, two, three, other := connect("127.0.0.1:1"), connect("127.0.0.1:2"), connect("127.0.0.1:3"), connect("192.0.2.1:1")
	if got := greedy(one); got != 300 {
		t.Errorf("the first connection got %d streams, want its limit of 300", got)
	}
	if got := greedy(two); got != 134 { // it may have as many as are left to its address: 1000-434-434
		t.Errorf("the second connection of the address got %d streams, want 134", got)
	}
	for i := range 3 {
		if got := greedy(three); i == 0 && got != fewStreams {
			t.Errorf("the third connection of the address got %d streams, want %d of the last ones", got, fewStreams)
		}
		three = connect("127.0.0.1:4")
	}
	if one.from.streams > 500 {
		t.Errorf("one address holds %d of 1000 streams, want at most half", one.from.streams)
	}
	if got := greedy(other); got < 100 {
		t.Errorf("another address got %d streams, want a fair share", got)
	}
	one.close()
	one.leave()
	one.close() // after the end it counts for nothing
	for _, p := range []*place{two, other} {
		p.leave()
	}
	if a.mu.streams != 3*fewStreams {
		t.Errorf("%d streams count, want those of three connections with %d", a.mu.streams, fewStreams)
	}
}

// TestAdmission_OpensInTurn has one connection open many streams, each of which takes a second, and another one few:
// these do not wait for all of those.
func TestAdmission_OpensInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		working, most := 0, 0
		a := NewAdmission(Limits{Connections: 10, Streams: 100_000, PerConnection: 10_000}, func(f func(context.Context)) bool {
			working++ // spawned under no lock, but here by one goroutine
			most = max(most, working)
			wg.Go(func() { f(t.Context()) })
			return true
		})
		many, err := a.connect("192.0.2.1:1")
		if err != nil {
			t.Fatal(err)
		}
		few, err := a.connect("192.0.2.1:2")
		if err != nil {
			t.Fatal(err)
		}
		slow := func(context.Context) { time.Sleep(time.Second) }
		refused := 0
		for i := range openingsAtOnce + 10_001 {
			if err := many.do(slow); core.CodeOf(err) == core.CodeThrottled {
				refused++
			}
			if i == openingsAtOnce-1 {
				synctest.Wait() // these have begun, and do not wait any more
			}
		}
		if refused != 1 {
			t.Errorf("%d openings were refused, want the one beyond those under way and 10,000 that wait", refused)
		}
		begin := time.Now()
		done := make(chan time.Duration, 1)
		if err := few.do(func(context.Context) { done <- time.Since(begin) }); err != nil {
			t.Fatal(err)
		}
		if took := <-done; took > 2*time.Second {
			t.Errorf("a stream of another connection was opened after %s, want at its turn", took)
		}
		if most != openingsAtOnce {
			t.Errorf("%d goroutines opened streams, want %d", most, openingsAtOnce)
		}
		many.leave() // what waits is dropped
		time.Sleep(2 * time.Second)
		wg.Wait()
		if a.mu.working != 0 || len(many.openings) != 0 {
			t.Errorf("%d goroutines and %d openings are left", a.mu.working, len(many.openings))
		}
	})
}

// TestAdmission_CountsStreamsOfAMux: a stream counts until it is forgotten, or its connection ends.
func TestAdmission_CountsStreamsOfAMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(Limits{Connections: 10, Streams: 100, PerConnection: 2}, nil)
		l := memoryLink(t, Options{}, Options{Admission: a})
		var server *Mux
		refused := 0
		server = NewMux(l.server, func(f wire.Frame, _ *Message) StreamHandler {
			if server.Admit() != nil {
				refused++
				return nil
			}
			return &recorder{}
		})
		running := sync.WaitGroup{}
		running.Go(func() { server.Run(t.Context()) })
		running.Go(func() { l.client.Run(t.Context(), ignore) })
		for i := range 5 {
			l.client.Post(frame(i+1, 1))
		}
		synctest.Wait()
		if a.mu.streams != 2 || refused != 3 {
			t.Errorf("%d streams count and %d were refused, want 2 and 3", a.mu.streams, refused)
		}
		server.Forget(1)
		server.Forget(1)
		server.Forget(77)
		l.client.Post(frame(9, 1))
		synctest.Wait()
		if a.mu.streams != 2 || refused != 3 {
			t.Errorf("after one was forgotten, %d streams count and %d were refused, want 2 and 3", a.mu.streams, refused)
		}
		l.client.Abort(nil)
		running.Wait()
		if a.mu.streams != 0 || a.mu.connections != 0 {
			t.Errorf("%d streams and %d connections are left after the end", a.mu.streams, a.mu.connections)
		}
	})
}

// TestUpgrade_RefusesByItsAdmission: whoever dials is told that there are too many connections, not that something
// broke.
func TestUpgrade_RefusesByItsAdmission(t *testing.T) {
	a := NewAdmission(Limits{Connections: 2, Streams: 1, PerConnection: 1}, nil)
	o := Options{Admission: a}
	addr := serve(t, o)
	first, err := Dial(t.Context(), addr, "/", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Abort(nil)
	if _, err := Dial(t.Context(), addr, "/", Options{}); core.CodeOf(err) != core.CodeThrottled {
		t.Errorf("Dial beyond the limit = %v, want %s", err, core.CodeThrottled)
	}
}

// TestConn_EndsWhenItsHandlerPanics: the HTTP server recovers, so the process lives, and nobody else would give back
// what the connection holds.
func TestConn_EndsWhenItsHandlerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		l := s.connect(one)
		end := running(t, l.client, ignore)
		if err := l.client.Send(t.Context(), frame(1, 10)); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { recover() }()
			l.server.Run(t.Context(), func(*Message) error { panic("a defect") })
		}()
		synctest.Wait()
		if s.mu.connections != 0 || len(s.mu.addresses) != 0 {
			t.Errorf("%d connections are counted, want none", s.mu.connections)
		}
		select {
		case <-l.client.done:
			end()
		default:
			t.Error("the peer's connection has not ended")
		}
	})
}
