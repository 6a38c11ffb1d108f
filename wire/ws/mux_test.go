package ws

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// recorder is a StreamHandler that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	types  []wire.FrameType
	ends   []error
	handle func(f wire.Frame)
}

func (r *recorder) HandleFrame(f wire.Frame, _ *Message) {
	r.mu.Lock()
	r.types = append(r.types, f.Type)
	r.mu.Unlock()
	if r.handle != nil {
		r.handle(f)
	}
}

func (r *recorder) Closed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, err)
}

func (r *recorder) got() []wire.FrameType {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.types
}

func TestMux_ManyStreamsOnOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{}, Options{})
		client := NewMux(l.client, nil)
		accepted := make(map[uint32]*recorder) // the server's reader alone writes it
		var server *Mux
		server = NewMux(l.server, func(f wire.Frame, _ *Message) StreamHandler {
			if f.Type != wire.TypeOpenAppend {
				return nil
			}
			accepted[f.Stream] = &recorder{handle: func(f wire.Frame) {
				server.Conn.Post(wire.AppendFrame(nil, wire.TypeOpened, f.Stream, nil))
			}}
			return accepted[f.Stream]
		})
		var wg sync.WaitGroup
		wg.Go(func() { client.Run(t.Context()) })
		wg.Go(func() { server.Run(t.Context()) })

		send := func(ty wire.FrameType, stream uint32) {
			t.Helper()
			if err := l.client.Send(t.Context(), wire.AppendFrame(nil, ty, stream, nil)); err != nil {
				t.Fatal(err)
			}
		}
		var a, b recorder
		one, err := client.Open(&a)
		if err != nil {
			t.Fatal(err)
		}
		two, err := client.Open(&b)
		if err != nil {
			t.Fatal(err)
		}
		send(wire.TypeOpenAppend, one)
		send(wire.TypeOpenAppend, two)
		send(wire.TypeAppend, two)
		send(wire.TypeAppend, 99) // of no stream: ignored
		synctest.Wait()
		if diff := cmp.Diff([]wire.FrameType{wire.TypeOpenAppend, wire.TypeAppend}, accepted[two].got()); diff != "" {
			t.Errorf("frames of the second stream differ (-want +got):\n%s", diff)
		}
		if got := len(a.got()); got != 1 {
			t.Errorf("the first stream got %d answers, want 1", got)
		}
		if got := server.Streams(); got != 2 {
			t.Errorf("the server has %d streams, want 2", got)
		}

		client.Forget(one)
		send(wire.TypeAppend, one)
		synctest.Wait()
		if got := len(a.got()); got != 1 {
			t.Errorf("a forgotten stream got %d frames, want the 1 of before", got)
		}
		if err := l.client.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if len(a.ends) != 0 || len(b.ends) != 1 {
			t.Errorf("streams were closed %d and %d times, want 0 (forgotten) and 1", len(a.ends), len(b.ends))
		}
		if _, err := client.Open(&a); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("Open after the end = %v, want %s", err, core.CodeUnavailable)
		}
	})
}

func TestMux_BadFrameEndsBothSidesWithItsCode(t *testing.T) {
	for name, test := range map[string]struct {
		frame []byte
		want  core.Code
	}{
		"cut off":       {wire.AppendFrame(nil, wire.TypeAppend, 1, []byte("body"))[:14], core.CodeBadFrame},
		"newer version": {[]byte{byte(wire.TypeAppend), wire.FrameVersion + 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, core.CodeVersion},
	} {
		t.Run(name, func(t *testing.T) {
			l := memoryLink(t, Options{}, Options{})
			client := running(t, l.client, ignore)
			if err := l.client.Send(t.Context(), test.frame); err != nil {
				t.Fatal(err)
			}
			if err := NewMux(l.server, nil).Run(t.Context()); core.CodeOf(err) != test.want {
				t.Errorf("Run of the mux = %v, want %s", err, test.want)
			}
			if err := client(); core.CodeOf(err) != core.CodeBadFrame {
				t.Errorf("Run of the peer = %v, want %s", err, core.CodeBadFrame)
			}
		})
	}
}
