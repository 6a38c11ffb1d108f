package publish

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

// orderedHost notes the sessions that begin, and what comes on them.
type orderedHost struct {
	publishtest.Host
	mu       sync.Mutex
	sessions []uint64
	got      [][]string // of each session
}

// newOrderedHost answers each batch as answer says; n counts the batches of the session, from 1.
func newOrderedHost(answer func(session uint64, n int, b *publishtest.Batch)) *orderedHost {
	h := &orderedHost{}
	h.Limits = &pb.PublishHelloOK{MaxMessage: 1 << 20, MaxBatch: 1 << 20, Window: 4 << 20, Ordered: true}
	h.OnHello = func(hello *pb.PublishHello) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(hello.Producer) != len(core.ID{}) {
			return errors.New("no producer")
		}
		h.sessions = append(h.sessions, hello.Session)
		h.got = append(h.got, nil)
		return nil
	}
	batches := make(map[uint64]int)
	h.OnBatch = func(b *publishtest.Batch) {
		h.mu.Lock()
		session := h.sessions[len(h.sessions)-1]
		batches[session]++
		n := batches[session]
		h.got[len(h.got)-1] = append(h.got[len(h.got)-1], b.Payloads()...)
		h.mu.Unlock()
		answer(session, n, b)
	}
	return h
}

func (h *orderedHost) seen() (sessions []uint64, got [][]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sessions), slices.Clone(h.got)
}

// sendAll takes the payloads one by one, each a batch of its own as long as few are in flight.
func sendAll(t *testing.T, p *Publisher, payloads ...string) {
	t.Helper()
	for _, s := range payloads {
		if err := p.Append(t.Context(), &wire.Record{Payload: []byte(s)}, 0, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A record that is not stored ends the session: the next one begins with it, and with what came after it.
func TestPublisher_OrderedBeginsAgainAtWhatIsNotStored(t *testing.T) {
	for name, status := range map[string]wire.AckStatus{"refused": wire.AckRefused, "unknown": wire.AckUnknown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m memory
				var held []*publishtest.Batch
				h := newOrderedHost(func(session uint64, n int, b *publishtest.Batch) {
					switch {
					case session > 1 || n == 1:
						b.Ack()
					case n < 4:
						held = append(held, b)
					default:
						bad := held[0]
						bad.Answer(wire.AckRun{First: bad.First, Count: uint32(bad.Count), Status: status, Code: core.CodeUnavailable})
					}
				})
				m.serve("h", &h.Host)
				defer m.stop()
				p := m.publisher(func() []Host { return []Host{{ID: "h", Address: "h:1"}} })
				sendAll(t, p, "1", "2", "3", "4")
				if err := p.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				sessions, got := h.seen()
				if !slices.Equal(sessions, []uint64{1, 2}) || !slices.Equal(got[0], []string{"1", "2", "3", "4"}) || !slices.Equal(got[1], []string{"2", "3", "4"}) {
					t.Errorf("sessions %v with %v", sessions, got)
				}
			})
		})
	}
}

// A publisher that is asked to leave waits for what is in flight before it sends elsewhere.
func TestPublisher_OrderedMovesWithNothingInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		var first *publishtest.Batch
		h := newOrderedHost(func(session uint64, n int, b *publishtest.Batch) {
			if session == 1 && n == 1 {
				first = b
				b.Drain()
				return
			}
			b.Ack()
		})
		m.serve("h", &h.Host)
		defer m.stop()
		p := m.publisher(func() []Host { return []Host{{ID: "h", Address: "h:1"}} })
		sendAll(t, p, "1", "2")
		time.Sleep(time.Second)
		if sessions, got := h.seen(); len(sessions) != 1 || len(got[0]) != 1 {
			t.Errorf("sessions %v with %v while 1 has no answer", sessions, got)
		}
		first.Ack()
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sessions, got := h.seen(); len(sessions) != 2 || !slices.Equal(got[1], []string{"2"}) {
			t.Errorf("sessions %v with %v", sessions, got)
		}
	})
}
