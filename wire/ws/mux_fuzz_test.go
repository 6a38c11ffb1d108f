package ws

import (
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// fuzzed is a stream that ends with its closing frame.
type fuzzed struct {
	m  *Mux
	id uint32
}

func (s *fuzzed) HandleFrame(f wire.Frame, _ *Message) {
	if f.Type == wire.TypeCloseAppend {
		s.m.Forget(s.id)
	}
}

func (s *fuzzed) Closed(error) {}

// FuzzMux feeds a mux messages of any content: it never panics, its streams stay within their limit and are counted
// right, and what it refuses has a code.
func FuzzMux(f *testing.F) {
	open := wire.AppendFrame(nil, wire.TypeOpenAppend, 1, []byte("x"))
	f.Add(open, wire.AppendFrame(nil, wire.TypeCloseAppend, 1, nil))
	f.Add(wire.AppendFrame(open, wire.TypeOpenAppend, 2, nil), wire.AppendFrame(nil, wire.TypeDrain, 0, nil))
	f.Add(open[:7], open)
	f.Add([]byte{}, []byte{255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		const most = 3
		a := NewAdmission(Limits{Connections: 10, Streams: 1000, PerConnection: most}, nil)
		p, err := a.connect("memory")
		if err != nil {
			t.Fatal(err)
		}
		var m *Mux
		m = NewMux(&Conn{place: p}, func(f wire.Frame, _ *Message) StreamHandler {
			if f.Type != wire.TypeOpenAppend || m.Admit() != nil {
				return nil
			}
			return &fuzzed{m, f.Stream}
		})
		for _, b := range [][]byte{one, two} {
			if err := m.message(&Message{Bytes: b}); err != nil {
				switch core.CodeOf(err) {
				case core.CodeBadFrame, core.CodeVersion, core.CodeTooLarge:
				default:
					t.Fatalf("refused with %v, which has no fitting code", err)
				}
				break
			}
		}
		if n := m.Streams(); n > most || n != a.mu.streams {
			t.Fatalf("%d streams are open and %d count, at most %d may", n, a.mu.streams, most)
		}
	})
}
