package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame is a valid frame whose body is n bytes that tell of i.
func frame(i, n int) []byte {
	return wire.AppendFrame(nil, wire.TypeBatches, uint32(i), bytes.Repeat([]byte{byte(i)}, n))
}

// eachFrame is a Handler that takes messages apart.
func eachFrame(f func(wire.Frame) error) Handler {
	return func(m *Message) error {
		for rest := m.Bytes; len(rest) > 0; {
			var fr wire.Frame
			var err error
			if fr, rest, err = wire.NextFrame(rest); err != nil {
				return err
			}
			if err := f(fr); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestConn_CarriesFramesInOrderBothWays(t *testing.T) {
	sizes := []int{0, 1, 100, 4083, 4084, 4085, 30_000, 70_000, 1 << 20, 3 << 20}
	onEach(t, func(t *testing.T, connect transport) {
		l := connect(t, Options{}, Options{})
		const rounds = 3
		var wg sync.WaitGroup
		for _, dir := range []struct{ from, to *Conn }{{l.client, l.server}, {l.server, l.client}} {
			next := 0
			wg.Add(1)
			running(t, dir.to, eachFrame(func(f wire.Frame) error {
				if want := frame(next, sizes[next%len(sizes)])[wire.FrameHeaderLen:]; int(f.Stream) != next || !bytes.Equal(f.Body, want) {
					t.Errorf("got frame %d of %d bytes, want %d of %d", f.Stream, len(f.Body), next, len(want))
				}
				if next++; next == rounds*len(sizes) {
					wg.Done()
				}
				return nil
			}))
		}
		var released atomic.Int32
		for _, from := range []*Conn{l.client, l.server} {
			wg.Go(func() {
				for i := range rounds * len(sizes) {
					b := frame(i, sizes[i%len(sizes)])
					var err error
					if i%3 == 0 {
						err = from.SendOwned(t.Context(), b[:wire.FrameHeaderLen], b[wire.FrameHeaderLen:], func() { released.Add(1) })
					} else {
						err = from.Send(t.Context(), b)
						clear(b) // it was copied
					}
					if err != nil {
						t.Errorf("send frame %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		if err := l.client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := l.server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if got, want := int(released.Load()), 2*rounds*len(sizes)/3; got != want {
			t.Errorf("%d bodies were released, want %d", got, want)
		}
	})
}

func TestConn_CoalescesWhatIsQueued(t *testing.T) {
	l := memoryLink(t, Options{}, Options{})
	const frames = 3000
	for i := range frames {
		if err := l.client.Send(t.Context(), frame(i, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	var messages, got int
	all := make(chan struct{})
	running(t, l.server, func(m *Message) error {
		if messages++; len(m.Bytes) > MaxMessage {
			t.Errorf("message of %d bytes, want at most %d", len(m.Bytes), MaxMessage)
		}
		return eachFrame(func(wire.Frame) error {
			if got++; got == frames {
				close(all)
			}
			return nil
		})(m)
	})
	running(t, l.client, ignore)
	<-all
	if messages != 3 {
		t.Errorf("%d frames of 1 KB that were queued before Run arrived in %d messages, want 3", frames, messages)
	}
}

func TestConn_CleanClose(t *testing.T) {
	onEach(t, func(t *testing.T, connect transport) {
		for _, side := range []string{"client", "server"} {
			t.Run(side, func(t *testing.T) {
				l := connect(t, Options{}, Options{})
				near, far := l.client, l.server
				if side == "server" {
					near, far = far, near
				}
				var got atomic.Int32
				farEnd := running(t, far, func(m *Message) error {
					got.Add(int32(len(m.Bytes)))
					return nil
				})
				nearEnd := running(t, near, ignore)
				want := 0
				for i := range 20 {
					b := frame(i, 100_000)
					want += len(b)
					if err := near.Send(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
				if err := near.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				if err := nearEnd(); err != nil {
					t.Errorf("Run of the closing side = %v, want nil", err)
				}
				if err := farEnd(); err != nil {
					t.Errorf("Run of the other side = %v, want nil", err)
				}
				if int(got.Load()) != want {
					t.Errorf("%d bytes arrived before the close, want %d", got.Load(), want)
				}
				for _, c := range []*Conn{near, far} {
					if err := c.Send(t.Context(), frame(1, 1)); core.CodeOf(err) != core.CodeUnavailable {
						t.Errorf("Send after the end = %v, want %s", err, core.CodeUnavailable)
					}
					c.Post(frame(1, 1)) // nobody gets it, and nothing comes of it
				}
			})
		}
	})
}

func TestConn_AbortReleasesEverythingOnce(t *testing.T) {
	for _, started := range []bool{false, true} {
		t.Run(fmt.Sprintf("running=%t", started), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := memoryLink(t, Options{SendBytes: 1 << 20}, Options{})
				if started {
					running(t, l.client, ignore) // the server never reads
				}
				const senders, each = 8, 20
				var releases [senders * each]atomic.Int32
				var wg sync.WaitGroup
				for s := range senders {
					wg.Go(func() {
						for i := range each {
							b := frame(i, 100_000)
							release := &releases[s*each+i]
							err := l.client.SendOwned(t.Context(), b[:wire.FrameHeaderLen], b[wire.FrameHeaderLen:], func() { release.Add(1) })
							if err != nil && core.CodeOf(err) != core.CodeUnavailable {
								t.Errorf("SendOwned = %v, want %s", err, core.CodeUnavailable)
							}
						}
					})
				}
				synctest.Wait() // some is written, some queued, and the senders wait for room
				cause := errors.New("test")
				l.client.Abort(cause)
				wg.Wait()
				if err := l.client.Send(t.Context(), frame(0, 0)); !errors.Is(err, cause) {
					t.Errorf("Send after Abort = %v, want its cause", err)
				}
				if err := l.client.Run(t.Context(), ignore); !started && !errors.Is(err, cause) {
					t.Errorf("Run after Abort = %v, want its cause", err)
				}
				synctest.Wait() // what was being written is released by the writer
				for n := range releases {
					if got := releases[n].Load(); got != 1 {
						t.Errorf("body %d was released %d times", n, got)
					}
				}
			})
		})
	}
}

func TestConn_HandlerErrorSendsWhatIsQueuedFirst(t *testing.T) {
	onEach(t, func(t *testing.T, connect transport) {
		l := connect(t, Options{}, Options{})
		bad := core.Errorf(core.CodeBadFrame, "no such frame")
		serverEnd := running(t, l.server, func(m *Message) error {
			l.server.Post(wire.AppendFrame(nil, wire.TypeError, 0, []byte("why")))
			return bad
		})
		var told atomic.Bool
		clientEnd := running(t, l.client, eachFrame(func(f wire.Frame) error {
			told.Store(f.Type == wire.TypeError && string(f.Body) == "why")
			return nil
		}))
		for l.client.Send(t.Context(), frame(1, 50_000)) == nil { // keeps sending past the error
		}
		if err := serverEnd(); err != error(bad) {
			t.Errorf("Run of the refusing side = %v, want the handler's error", err)
		}
		if err := clientEnd(); core.CodeOf(err) != core.CodeBadFrame {
			t.Errorf("Run of the refused side = %v, want %s", err, core.CodeBadFrame)
		}
		if !told.Load() {
			t.Error("the error frame did not arrive")
		}
	})
}

func TestConn_RefusesWhatIsNotFrames(t *testing.T) {
	for name, test := range map[string]struct {
		send func(c *websocket.Conn) error
		code core.Code
	}{
		"text message": {func(c *websocket.Conn) error { return c.WriteMessage(websocket.TextMessage, []byte("hello")) }, core.CodeBadFrame},
		"garbage": {func(c *websocket.Conn) error {
			_, err := c.NetConn().Write(bytes.Repeat([]byte{0xff}, 100))
			return err
		}, core.CodeBadFrame},
		"unmasked": {func(c *websocket.Conn) error {
			_, err := c.NetConn().Write([]byte{0x82, 0x01, 0x00})
			return err
		}, core.CodeBadFrame},
		"too large": {func(c *websocket.Conn) error { return c.WriteMessage(websocket.BinaryMessage, make([]byte, 1001)) }, core.CodeTooLarge},
		"claims exabytes": {func(c *websocket.Conn) error {
			_, err := c.NetConn().Write([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4})
			return err
		}, core.CodeTooLarge},
		"lost in a message": {func(c *websocket.Conn) error { c.NetConn().Write([]byte{0x82, 0x85, 1, 2}); return c.Close() }, core.CodeUnavailable},
		"lost":              {func(c *websocket.Conn) error { return c.Close() }, core.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			handler, accepted := acceptor(t, Options{ReadLimit: 1000})
			s := httptest.NewServer(handler)
			defer s.Close()
			c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.URL, "http"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			end := running(t, <-accepted, ignore)
			if err := test.send(c); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			for err == nil {
				_, _, err = c.ReadMessage() // answers the close message
			}
			if err := end(); core.CodeOf(err) != test.code {
				t.Errorf("Run = %v (%s), want %s", err, core.CodeOf(err), test.code)
			}
		})
	}
}

func TestConn_MessageAtTheReadLimit(t *testing.T) {
	l := memoryLink(t, Options{}, Options{ReadLimit: 8192})
	end := running(t, l.client, ignore)
	sizes := make(chan int, 1)
	running(t, l.server, func(m *Message) error { sizes <- len(m.Bytes); return nil })
	if err := l.client.Send(t.Context(), frame(0, 8192-wire.FrameHeaderLen)); err != nil {
		t.Fatal(err)
	}
	if got := <-sizes; got != 8192 {
		t.Errorf("got a message of %d bytes, want 8192", got)
	}
	if err := l.client.Send(t.Context(), frame(0, 8193-wire.FrameHeaderLen)); err != nil {
		t.Fatal(err)
	}
	if err := end(); core.CodeOf(err) != core.CodeTooLarge {
		t.Errorf("Run = %v, want %s", err, core.CodeTooLarge)
	}
}

func TestDial_Fails(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	addr := strings.TrimPrefix(s.URL, "http://")
	if _, err := Dial(t.Context(), addr, "/x", Options{}); core.CodeOf(err) != core.CodeUnavailable || !strings.Contains(err.Error(), "404") {
		t.Errorf("Dial to a server without websockets = %v, want %s and the status", err, core.CodeUnavailable)
	}
	s.Close()
	if _, err := Dial(t.Context(), addr, "/x", Options{}); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("Dial to nobody = %v, want %s", err, core.CodeUnavailable)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, addr, "/x", Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial with a cancelled context = %v, want context.Canceled", err)
	}
}

func TestUpgrade_AnswersOrdinaryRequests(t *testing.T) {
	w := httptest.NewRecorder()
	if _, err := Upgrade(w, httptest.NewRequest("GET", "/v1/publish", nil), Options{}); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("Upgrade = %v, want %s", err, core.CodeBadArgument)
	}
	if w.Code != http.StatusBadRequest {
		t.Errorf("answered %d, want %d", w.Code, http.StatusBadRequest)
	}
}
