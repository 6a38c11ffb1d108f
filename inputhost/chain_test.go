package inputhost

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

const chainPath = "/t/ordered"

// chained runs f with a CP queue, whose extents have the places 1, 2, 3 … until f says otherwise.
func chained(t *testing.T, edit func(*Config), f func(r *harness)) {
	bubble(t, 4, edit, func(r *harness) {
		r.queue(chainPath)
		place := uint64(0)
		r.ctl.set(func() { r.ctl.mu.chain = func() (uint64, error) { place++; return place, nil } })
		f(r)
	})
}

// theQueue is the router of the CP queue.
func (r *harness) theQueue() *queue {
	r.t.Helper()
	for _, q := range r.host.list() {
		if q.path == chainPath {
			return q
		}
	}
	r.t.Fatal("the queue is not there")
	return nil
}

// head is the writer of the queue's open extent, nil when there is none.
func (q *queue) head() (w interface{ Fail(core.HostID, error) }) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.open.slots) == 0 {
		return nil
	}
	return q.mu.open.slots[0].w
}

// inOrder checks that the messages of a publisher were acknowledged at rising places: extents in the order in which
// they were made.
func (r *harness) inOrder(name string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var bodies []string
	for body := range r.mu.outcomes {
		if len(body) > len(name) && body[:len(name)] == name {
			bodies = append(bodies, body)
		}
	}
	slices.Sort(bodies)
	var last core.Receipt
	for _, body := range bodies {
		at := r.mu.outcomes[body].at
		if c := cmp.Or(slices.Compare(at.Extent.ID[:], last.Extent.ID[:]), cmp.Compare(at.Seq, last.Seq)); c <= 0 {
			r.t.Errorf("%s is at %s, behind what was published later at %s", body, at, last)
		}
		last = at
	}
}

func TestChain_OrderOverFailuresAndRolls(t *testing.T) {
	chained(t, func(c *Config) { c.RollBytes = 5_000 }, func(r *harness) {
		r.ctl.set(func() { r.ctl.mu.delay = 20 * time.Millisecond })
		for _, s := range r.stores {
			s.delay = time.Millisecond
		}
		p, o := r.publisher("p", chainPath), r.publisher("o", chainPath)
		most := 0
		for i := range 20 {
			for range 20 {
				p.load(5*time.Millisecond, time.Millisecond)
				o.send()
				most = max(most, len(r.open(chainPath)))
			}
			if w := r.theQueue().head(); w != nil && i%2 == 0 {
				w.Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
			}
			if i%2 == 1 {
				sleep(paceForgive) // else the next failure would cost a pause
			}
		}
		p.flush()
		o.flush()
		r.all(p.n + o.n)
		r.inOrder("p")
		r.inOrder("o")
		if most != 1 || r.ctl.sealed() < 10 {
			t.Errorf("up to %d open extents, %d seals; want one and at least ten", most, r.ctl.sealed())
		}
	})
}

// Nothing is opened while the old extent is not sealed with enough holders.
func TestChain_NoPublishingUntilTheEndIsDecided(t *testing.T) {
	chained(t, nil, func(r *harness) {
		p := r.publisher("p", chainPath)
		p.send()
		p.flush()
		slow := r.open(chainPath)[0].Replicas[0]
		for _, s := range r.stores {
			if s.id == slow {
				s.set(func() { s.delay = time.Minute })
			}
		}
		r.ctl.set(func() { r.ctl.mu.holders = 1 })
		p.send() // the other two have it
		sleep(5 * time.Millisecond)
		r.theQueue().head().Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
		p.load(2*time.Second, 100*time.Millisecond)
		if n := len(r.acknowledged()); n != 1 || len(r.open(chainPath)) != 0 {
			t.Errorf("%d acknowledged, %d extents open while the old one has one holder", n, len(r.open(chainPath)))
		}
		r.ctl.set(func() { r.ctl.mu.holders = 0 })
		p.flush()
		r.all(p.n)
		r.inOrder("p")
	})
}

// stream is a publish stream by hand.
type stream struct {
	r      *harness
	link   *ws.Mux
	number uint32
	got    frames
	next   uint64
}

// hello opens a stream; the answer is OK or an error.
func (r *harness) hello(producer core.ID, session uint64) (*stream, error) {
	r.t.Helper()
	link, err := r.pool.Link(r.t.Context(), r.self.Address, "/v1/publish")
	if err != nil {
		r.t.Fatal(err)
	}
	s := &stream{r: r, link: link, got: make(frames, 100), next: 1}
	if s.number, err = link.Open(s.got); err != nil {
		r.t.Fatal(err)
	}
	body, err := proto.Marshal(&pb.PublishHello{Queue: chainPath, Producer: producer[:], Session: session})
	if err != nil {
		r.t.Fatal(err)
	}
	link.Conn.Post(wire.AppendFrame(nil, wire.TypePublishHello, s.number, body))
	f := <-s.got
	if f.Type == wire.TypeError {
		link.Forget(s.number)
		return nil, convert.FrameError(f.Body)
	}
	var ok pb.PublishHelloOK
	if err := proto.Unmarshal(f.Body, &ok); err != nil || !ok.Ordered {
		r.t.Errorf("hello: %v, ordered %t", err, ok.Ordered)
	}
	return s, nil
}

// send publishes one record.
func (s *stream) send() {
	record, err := wire.AppendRecord(nil, &wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, Payload: fmt.Append(nil, s.next)})
	if err != nil {
		s.r.t.Fatal(err)
	}
	b := wire.AppendPublishHead(nil, s.number, s.next, len(record))
	s.next++
	s.link.Conn.Post(append(b, record...))
}

// answer is the status of the next answer, or the error that ended the stream.
func (s *stream) answer() (wire.AckStatus, error) {
	f := <-s.got
	for f.Type == wire.TypeThrottled { // why it is refused
		f = <-s.got
	}
	if f.Type == wire.TypeError {
		s.link.Forget(s.number)
		return 0, convert.FrameError(f.Body)
	}
	var ack wire.PublishAck
	if err := ack.Decode(f.Body); err != nil || len(ack.Runs) != 1 {
		s.r.t.Fatalf("frame %d: %v", f.Type, err)
	}
	return ack.Runs[0].Status, nil
}

func (r *harness) helloOK(producer core.ID, session uint64) *stream {
	r.t.Helper()
	s, err := r.hello(producer, session)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// stuck ends the open extent and keeps its end from being decided.
func (r *harness) stuck() {
	for _, s := range r.stores {
		s.set(func() { s.delay = 10 * time.Millisecond })
	}
	r.ctl.set(func() { r.ctl.mu.away = true })
}

func TestChain_NewerSessionEndsTheOlder(t *testing.T) {
	chained(t, nil, func(r *harness) {
		producer := core.NewID(time.Now())
		first := r.helloOK(producer, 1)
		first.send()
		if status, err := first.answer(); status != wire.AckOK || err != nil {
			t.Fatal(status, err)
		}
		r.stuck()
		r.theQueue().head().Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
		first.send() // waits
		sleep(100 * time.Millisecond)
		done := make(chan *stream)
		go func() { done <- r.helloOK(producer, 2) }()
		if status, err := first.answer(); status != wire.AckRefused || err != nil {
			t.Errorf("what waited of the older session: %v %v, want refused", status, err)
		}
		if _, err := first.answer(); core.CodeOf(err) != core.CodeMoved {
			t.Errorf("the older session ended with %v", err)
		}
		r.ctl.set(func() { r.ctl.mu.away = false })
		second := <-done
		second.send()
		if status, err := second.answer(); status != wire.AckOK || err != nil {
			t.Errorf("newer session: %v %v", status, err)
		}
		if _, err := r.hello(producer, 2); core.CodeOf(err) != core.CodeMoved {
			t.Errorf("the same session again: %v", err)
		}
		if _, err := r.hello(core.NewID(time.Now()), 1); err != nil {
			t.Errorf("another publisher: %v", err)
		}
		if _, err := r.hello(core.ID{}, 1); err == nil {
			t.Error("a hello without a producer began a session")
		}
	})
}

func TestChain_UnknownEndsTheSession(t *testing.T) {
	chained(t, func(c *Config) { c.PublishDeadline = 2 * time.Second }, func(r *harness) {
		s := r.helloOK(core.NewID(time.Now()), 1)
		r.stuck()
		s.send()
		sleep(5 * time.Millisecond)
		r.theQueue().head().Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
		sleep(1500 * time.Millisecond)
		s.send() // its own time is up later
		if status, err := s.answer(); status != wire.AckUnknown || err != nil {
			t.Fatalf("in flight: %v %v, want unknown", status, err)
		}
		r.ctl.set(func() { r.ctl.mu.away = false })
		s.send()
		for range 2 {
			if status, err := s.answer(); status == wire.AckOK || err != nil {
				t.Errorf("after an unknown one: %v %v, want not stored", status, err)
			}
		}
	})
}

func TestChain_AnotherHostsHeadEndsAllSessions(t *testing.T) {
	for name, next := range map[string]func() (uint64, error){
		"it is open":         func() (uint64, error) { return 0, core.Errorf(core.CodeMoved, "input host x takes the messages") },
		"it has ended since": func() (uint64, error) { return 9, nil },
	} {
		t.Run(name, func(t *testing.T) {
			chained(t, nil, func(r *harness) {
				s := r.helloOK(core.NewID(time.Now()), 1)
				s.send()
				if status, err := s.answer(); status != wire.AckOK || err != nil {
					t.Fatal(status, err)
				}
				r.ctl.set(func() { r.ctl.mu.chain = next })
				r.theQueue().head().Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
				s.send()
				if status, err := s.answer(); status != wire.AckRefused || err != nil {
					t.Errorf("a waiting record: %v %v, want refused", status, err)
				}
				if _, err := s.answer(); core.CodeOf(err) != core.CodeMoved {
					t.Errorf("the session ended with %v", err)
				}
				if _, err := r.hello(core.NewID(time.Now()), 1); name == "it is open" && core.CodeOf(err) != core.CodeMoved {
					t.Errorf("a new session: %v, want to be sent away", err)
				}
			})
		})
	}
}

// A record that waits for the end of an older extent is refused before its publisher counts it as unknown, however long
// that end is not decided.
func TestChain_WaitsNoLongerThanPublishersDo(t *testing.T) {
	chained(t, nil, func(r *harness) {
		s := r.helloOK(core.NewID(time.Now()), 1)
		s.send()
		if status, err := s.answer(); status != wire.AckOK || err != nil {
			t.Fatalf("status %d, %v", status, err)
		}
		r.ctl.set(func() { r.ctl.mu.away = true })
		r.theQueue().head().Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
		sleep(time.Second)
		s.send()
		began := time.Now()
		if status, err := s.answer(); status != wire.AckRefused || err != nil {
			t.Errorf("status %d, %v; want a refusal: it was never sent to a store", status, err)
		}
		if took, most := time.Since(began), unsentMost+time.Second; took > most {
			t.Errorf("the answer came after %s, want at most %s", took, most)
		}
		s.link.Forget(s.number)
	})
}
