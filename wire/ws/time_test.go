package ws

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func TestConn_IdleConnectionLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		got := make(chan int, 1)
		running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		running(t, l.client, ignore)
		time.Sleep(time.Hour) // of the bubble
		if err := l.client.Send(t.Context(), frame(1, 10)); err != nil {
			t.Fatalf("Send after an idle hour: %v", err)
		}
		<-got
	})
}

func TestConn_DeadPeerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		begin := time.Now()
		end := running(t, l.server, ignore) // the client neither reads nor writes
		err := end()
		if core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("Run = %v, want %s", err, core.CodeUnavailable)
		}
		if d := time.Since(begin); d != readTimeout {
			t.Errorf("the dead peer was noticed after %s, want %s", d, readTimeout)
		}
	})
}

func TestConn_PeerThatDoesNotReadIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		begin := time.Now()
		end := running(t, l.client, ignore)
		if err := l.client.Send(t.Context(), frame(1, 5<<20)); err != nil {
			t.Fatal(err)
		}
		if err := end(); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("Run = %v, want %s", err, core.CodeUnavailable)
		}
		if d := time.Since(begin); d != writeTimeout {
			t.Errorf("the write was given up after %s, want %s", d, writeTimeout)
		}
	})
}

func TestConn_SendWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{SendBytes: 1000}, Options{})
		if err := l.client.Send(t.Context(), frame(0, 2000)); err != nil {
			t.Fatal(err)
		}
		l.client.Post(frame(1, 1)) // control frames have room of their own
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		released := 0
		begin := time.Now()
		err := l.client.SendOwned(ctx, frame(2, 0), nil, func() { released++ })
		if core.CodeOf(err) != core.CodeUnavailable || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("SendOwned over the bound = %v after %s, want context.DeadlineExceeded after 1m", err, time.Since(begin))
		}
		if released != 1 {
			t.Errorf("the body that was not sent was released %d times", released)
		}

		streams := make(chan uint32, 10)
		sent := make(chan error, 5)
		for i := range uint32(5) {
			go func() { sent <- l.client.Send(t.Context(), frame(int(10+i), 2000)) }()
			synctest.Wait() // so that they wait in this order
		}
		running(t, l.server, eachFrame(func(f wire.Frame) error { streams <- f.Stream; return nil }))
		running(t, l.client, ignore)
		for _, want := range []uint32{0, 1, 10, 11, 12, 13, 14} {
			if got := <-streams; got != want {
				t.Errorf("got the frame of stream %d, want %d", got, want)
			}
		}
		for range 5 {
			if err := <-sent; err != nil {
				t.Errorf("Send = %v", err)
			}
		}
	})
}

func TestConn_CloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		end := running(t, l.client, ignore)
		if err := l.client.Send(t.Context(), frame(0, 1<<20)); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := l.client.Close(); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("Close with a peer that does not read = %v, want %s", err, core.CodeUnavailable)
		}
		if d := time.Since(begin); d != closeTimeout {
			t.Errorf("Close took %s, want %s", d, closeTimeout)
		}
		if err := end(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestConn_CancelledRunEndsBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		peer := running(t, l.server, ignore)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if err := l.client.Run(ctx, ignore); !errors.Is(err, context.Canceled) || core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("Run = %v, want context.Canceled as %s", err, core.CodeUnavailable)
		}
		if err := peer(); err != nil {
			t.Errorf("Run of the peer = %v, want nil", err)
		}
	})
}

func TestConn_CloseBeforeRunTellsOfWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		peer := running(t, l.server, ignore)
		released := 0
		if err := l.client.SendOwned(t.Context(), frame(0, 0), nil, func() { released++ }); err != nil {
			t.Fatal(err)
		}
		if err := l.client.Close(); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("Close = %v, want %s", err, core.CodeUnavailable)
		}
		if released != 1 {
			t.Errorf("the queued body was released %d times", released)
		}
		if err := l.client.Run(t.Context(), ignore); err != nil {
			t.Errorf("Run after Close = %v, want nil", err)
		}
		if err := l.client.Close(); err != nil {
			t.Errorf("second Close = %v, want nil", err)
		}
		if err := peer(); err != nil {
			t.Errorf("Run of the peer = %v, want nil", err)
		}
	})
}

// TestConn_PingTellsLife asks a peer that lives, and one that does not read.
func TestConn_PingTellsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		running(t, l.client, ignore)
		blocked := make(chan struct{})
		running(t, l.server, func(*Message) error { <-blocked; return nil })
		time.Sleep(pingEvery / 2) // before the client pings by itself
		if d := l.client.Silent(); d < pingEvery/2 {
			t.Fatalf("silent for %s, want the whole time", d)
		}
		l.client.Ping()
		synctest.Wait()
		if d := l.client.Silent(); d > 0 {
			t.Fatalf("silent for %s after the answer to a ping", d)
		}
		if err := l.client.Send(t.Context(), frame(1, 10)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		l.client.Ping()
		synctest.Wait()
		if d := l.client.Silent(); d < time.Second {
			t.Fatalf("silent for %s, want a second: the peer's reader stands still", d)
		}
		close(blocked)
		synctest.Wait()
		if d := l.client.Silent(); d > 0 {
			t.Fatalf("silent for %s though the peer reads again", d)
		}
	})
}

// TestConn_LateSaysThatTheReaderStoodStill reads on after a time in which nothing was read, although the peer sent:
// from then on what comes may be old. An idle connection is not late.
func TestConn_LateSaysThatTheReaderStoodStill(t *testing.T) {
	for _, stood := range []time.Duration{0, LateAfter + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := memoryLink(t, Options{}, Options{})
			late := make(chan bool, 3)
			n := 0
			running(t, l.server, func(*Message) error {
				late <- l.server.Late()
				if n++; n == 2 {
					time.Sleep(stood)
				}
				return nil
			})
			running(t, l.client, ignore)
			for range 3 {
				time.Sleep(10 * time.Minute)
				if err := l.client.Send(t.Context(), frame(1, 10)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if <-late {
					t.Errorf("late after idle minutes")
				}
			}
			if got := <-late; got != (stood > 0) {
				t.Errorf("late is %v after the reader stood still for %s", got, stood)
			}
		})
	}
}
