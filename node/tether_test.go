package node

import (
	"context"
	"net"
	"testing"
	"time"
)

func TestTether_EndsWhatLeadsElsewhere(t *testing.T) {
	tether := newTether(func(context.Context, string, string) (net.Conn, error) {
		conn, other := net.Pipe()
		t.Cleanup(func() { other.Close() })
		return conn, nil
	})
	open := make(map[string]net.Conn)
	for _, addr := range []string{"here", "there"} {
		conn, err := tether.Dial(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open[addr] = conn
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := open["there"].Read(make([]byte, 1))
		waiting <- err
	}()
	tether.keep("here")
	if err := receive(t, "end of the read", waiting); err == nil {
		t.Error("a read of what was ended: got no error")
	}
	if err := open["here"].SetDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Errorf("what is kept: %v", err)
	}
	if err := open["here"].Close(); err != nil {
		t.Error(err)
	}
	if n := len(tether.mu.conns); n != 0 {
		t.Errorf("connections kept in mind after their end: %d", n)
	}
}
