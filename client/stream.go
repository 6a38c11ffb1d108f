package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// consumeHost is an output host of the group.
type consumeHost struct {
	id   core.HostID
	addr string
}

// consumeStream is the stream of a consumer to one output host. Its frames come on the connection's reader goroutine,
// which alone uses the fields below number.
type consumeStream struct {
	con   *Consumer
	host  consumeHost
	mux   *ws.Mux
	out   *outbox
	hello chan error    // buffered; the greeting's outcome
	ended chan struct{} // closed when it was lost or left
	quiet chan struct{} // closed when the host has confirmed that it delivers no more
	lost  atomic.Bool
	// number is the stream's on its connection.
	number uint32
	// account is of a consumer with a limit; the inbox's mutex guards it, and parted.
	account *account
	parted  parting
	terms   atomic.Pointer[lockTerms] // nil: the host has told no lock timeout; the reader alone changes them
	// run is the host's, as its greeting told it; zero: it does not say. Set before the stream is used.
	run core.ID

	greeted   bool
	route     uint64 // version of the last route that the host sent
	quietOnce sync.Once
	deliver   wire.Deliver
	results   wire.AckResult
	extents   struct {
		sync.Mutex
		byHandle map[uint32]*extentRef
	}
}

var _ ws.StreamHandler = (*consumeStream)(nil)

// maxHandles bounds what a host can make a stream remember.
const maxHandles = 1 << 20

// HandleFrame handles a frame of the host.
func (s *consumeStream) HandleFrame(f wire.Frame, _ *ws.Message) {
	if s.lost.Load() && !s.countsAfterEnd(f.Type) {
		return
	}
	var err error
	switch f.Type {
	case wire.TypeDeliver:
		if err = s.deliver.Decode(f.Body); err == nil {
			err = s.receive()
		}
	case wire.TypeHandle:
		var h wire.Handle
		if err = h.Decode(f.Body); err == nil {
			err = s.name(&h)
		}
	case wire.TypeAckResult:
		if err = s.results.Decode(f.Body); err == nil {
			s.refused()
		}
	case wire.TypeConfirm:
		var position uint64
		if position, err = wire.DecodePosition(f.Body); err == nil {
			s.out.applied(position)
		}
	case wire.TypeConsumeHelloOK:
		err = s.greet(f.Body)
	case wire.TypeReconfigure:
		var m pb.Reconfigure
		// Versions are clocks of the hosts that send them: those of two streams cannot be compared.
		if err = proto.Unmarshal(f.Body, &m); err == nil && m.Version >= s.route {
			s.route = m.Version
			err = s.con.reconfigure(m.Hosts)
		}
	case wire.TypeThrottled:
		var m pb.Throttled
		if err = proto.Unmarshal(f.Body, &m); err == nil && m.Reason != nil {
			s.con.pause(convert.ErrorFromProto(m.Reason))
		} else if err == nil {
			s.con.resume()
		}
	case wire.TypeConsumeClose:
		s.quietOnce.Do(func() { close(s.quiet) })
	case wire.TypeDrain:
		s.rest()
		s.con.lookAgain()
	case wire.TypeConsumeCredit:
		var back wire.Credit
		if err = back.Decode(f.Body); err == nil {
			s.out.recalled(back.Messages)
			s.con.inbox.recalled(s, int(back.Messages))
		}
	case wire.TypeError:
		s.fail(convert.FrameError(f.Body))
		return
	default:
		err = core.Errorf(core.CodeVersion, "output host sent a frame of type %d", f.Type)
	}
	if err != nil {
		s.fail(core.Errorf(core.CodeUnavailable, "output host %s: %w", s.host.id, err))
	}
}

// name records the extent of a handle.
func (s *consumeStream) name(h *wire.Handle) error {
	s.extents.Lock()
	defer s.extents.Unlock()
	s.extents.byHandle[h.Handle] = &extentRef{id: h.Extent, token: string(h.Token)}
	if len(s.extents.byHandle) > maxHandles {
		return core.Errorf(core.CodeBadFrame, "host named more than %d extents", maxHandles)
	}
	return nil
}

// extent is the extent of a handle, nil if the host has not named it.
func (s *consumeStream) extent(handle uint32) *extentRef {
	s.extents.Lock()
	defer s.extents.Unlock()
	return s.extents.byHandle[handle]
}

// fail drops the stream while its connection lives.
func (s *consumeStream) fail(err error) {
	s.mux.Forget(s.number)
	s.end(err)
}

func (s *consumeStream) greet(body []byte) error {
	var ok pb.ConsumeHelloOK
	if err := proto.Unmarshal(body, &ok); err != nil {
		return core.Errorf(core.CodeBadFrame, "hello does not parse: %w", err)
	}
	if !s.con.isGroup(ok.GroupId) {
		err := core.Errorf(core.CodeNotFound, "group %s of queue %s was deleted, and created again since; consume it with a new consumer", s.con.group, s.con.queue)
		s.con.fail(err)
		return err
	}
	if d := ok.LockTimeout.AsDuration(); d > 0 {
		s.terms.Store(s.terms.Load().told(d, s.con.now()))
		s.con.lockTimeout.Store(int64(d))
	}
	if !s.greeted {
		s.greeted = true
		if id, err := core.IDFromBytes(ok.Run); err == nil {
			s.run = id
		}
		if ok.LockTimeout == nil {
			s.con.inbox.setOnce()
		}
		if ok.Confirms {
			s.out.expectConfirms()
		}
		s.hello <- nil
	}
	return nil
}

// receive turns a Deliver frame into deliveries. It copies the records once, so that they may be kept for ever.
func (s *consumeStream) receive() error {
	d := &s.deliver
	ref := s.extent(d.Handle)
	if ref == nil {
		return core.Errorf(core.CodeBadFrame, "delivery of extent handle %d, which was not named", d.Handle)
	}
	total := 0
	for _, r := range d.Runs {
		total += int(r.Count)
	}
	if !s.out.arrived(total, len(d.Records)) { // credit alone bounds what the inbox holds
		return core.Errorf(core.CodeBadFrame, "%d messages were delivered beyond the credit", total)
	}
	extent := ref.id
	slab := &slab{stream: s, carrier: s, deliveries: make([]Delivery, total), received: time.Now()}
	if t := s.terms.Load(); t != nil {
		slab.timeout = t.timeout
	}
	rest := append([]byte(nil), d.Records...)
	tokens := d.Tokens
	var record wire.Record
	i := 0
	for _, run := range d.Runs {
		enqueued := time.UnixMicro(run.Enqueued)
		for k := range run.Count {
			n, err := wire.DecodeRecord(rest, &record)
			if err != nil {
				return core.Errorf(core.CodeOf(err), "delivered record %s:%d: %w", extent, run.Base+core.Seq(k), err)
			}
			rest = rest[n:]
			v := &slab.deliveries[i]
			i++
			v.Body, v.ID, v.Attempt, v.Enqueued = record.Payload, record.ID, int(run.Attempt), enqueued
			if record.FirstEnqueue != 0 { // it was a dead letter since
				v.Enqueued = time.UnixMicro(record.FirstEnqueue)
			}
			v.Receipt = core.Receipt{Extent: extent, Seq: run.Base + core.Seq(k)}
			v.attributes = attributesOf(&record)
			v.slab, v.handle, v.size = slab, d.Handle, n
			if len(tokens) > 0 {
				var token []byte
				if token, tokens, err = wire.NextToken(tokens); err != nil {
					return err
				}
				v.Token = string(token)
			}
		}
	}
	if len(rest) > 0 {
		return core.Errorf(core.CodeBadFrame, "deliver frame holds %d bytes beyond its records", len(rest))
	}
	if total > 0 {
		s.out.cameAgain(d.Handle, d.Runs)
		s.con.inbox.push(slab)
	}
	return nil
}

// refused reports refused settlements; settlements of an extent that has moved go to its new owner.
func (s *consumeStream) refused() {
	for _, e := range s.results.Entries {
		ref := s.extent(e.Handle)
		if ref == nil {
			continue // of a settlement that this stream cannot have sent
		}
		sent := s.out.unconfirmed(e.Handle, e.Seq, e.Attempt, ref)
		if e.Code == core.CodeMoved && ref.token != "" && (len(sent) > 0 || ref.moved) {
			if len(sent) > 0 { // else it was taken with an entry before
				s.moved(e.Handle, ref)
			}
			continue
		}
		verb := wire.TypeAck
		for _, x := range sent {
			verb = x.verb
			s.con.notExtended(x)
		}
		s.con.refusedSettlement(verb, core.Receipt{Extent: ref.id, Seq: e.Seq}, int(e.Attempt), refusal(s.host.id, e.Code))
	}
}

// moved sends all unconfirmed settlements of a handle to the extent's new owner: a host lists a bounded number of those
// that it refuses. It may have applied those that it does not list.
func (s *consumeStream) moved(handle uint32, ref *extentRef) {
	ref.moved = true
	type delivered struct {
		seq     core.Seq
		attempt uint16
	}
	listed := make(map[delivered]bool, len(s.results.Entries))
	for _, e := range s.results.Entries {
		if e.Handle == handle && e.Code == core.CodeMoved {
			listed[delivered{e.Seq, e.Attempt}] = true
		}
	}
	var parts [2][]settlement // not listed, listed
	for _, x := range s.out.takeUnconfirmed(handle, ref) {
		s.con.notExtended(x)
		for i := range x.run.Count {
			seq, part := x.run.Base+core.Seq(i), &parts[0]
			if listed[delivered{seq, x.run.Attempt}] {
				part = &parts[1]
			}
			if n := len(*part); n > 0 && (*part)[n-1].continues(&x, seq) {
				(*part)[n-1].run.Count++
				continue
			}
			one := x
			one.run.Base, one.run.Count = seq, 1
			*part = append(*part, one)
		}
	}
	s.con.resettle(parts[1], s.longestLock(), false)
	s.con.resettle(parts[0], s.longestLock(), true)
}

// Closed is the connection's end.
func (s *consumeStream) Closed(err error) { s.end(err) }

// end makes the stream lost. From now on its deliveries are settled by calls, beginning with the settlements that were
// not sent or not confirmed.
func (s *consumeStream) end(err error) {
	if s.lost.Swap(true) {
		return
	}
	s.handOver()
	close(s.ended)
	s.con.inbox.part(s, true)
	s.hello <- err // buffered; read while greeting only
	s.con.streamEnded(s, err)
}

// handOver gives the settlements that the host may not have to the settler.
func (s *consumeStream) handOver() {
	unsent, unsure, waited := s.out.end(s.con.now())
	for _, u := range [...]struct {
		what     *unconfirmed
		repeated bool
	}{{&unsure, true}, {&unsent, false}} {
		var all []settlement
		u.what.each(s.extent, func(x settlement) { all = append(all, x) })
		s.con.resettle(all, s.longestLock()-waited, u.repeated)
	}
	s.out.endFlushes()
}

// silence asks the host to deliver no more, and waits a moment for the answer.
func (s *consumeStream) silence(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s.postClose()
	select {
	case <-s.quiet:
	case <-s.ended:
	case <-ctx.Done():
	}
}

// leave ends the stream in good order.
func (s *consumeStream) leave() {
	if s.lost.Swap(true) {
		return
	}
	s.mux.Forget(s.number)
	s.postClose()
	s.handOver()
	close(s.ended)
	s.con.inbox.part(s, false)
}

// setLimit changes the host's part of the prefetch.
func (s *consumeStream) setLimit(part wire.Credit) {
	s.out.setLimit(part)
	s.con.inbox.setMost(s, int(part.Messages))
}

// rest stops asking the host for more messages until goOn.
func (s *consumeStream) rest() {
	s.out.stopCredit()
	s.con.inbox.setStopped(s, true)
}

func (s *consumeStream) goOn() {
	s.out.resumeCredit()
	s.con.inbox.setStopped(s, false)
}

// send writes what the outbox gathers, until the stream ends.
func (s *consumeStream) send(ctx context.Context) {
	var buf []byte
	var pause time.Duration
	written := make(chan struct{}, 1)
	later := time.NewTimer(time.Hour)
	defer later.Stop()
	for {
		if buf, pause = s.out.take(buf[:0], s.con.now()); len(buf) == 0 {
			if pause == 0 {
				pause = time.Hour
			}
			later.Reset(pause)
			select {
			case <-s.out.wake:
				continue
			case <-later.C: // a confirmation is due
				continue
			case <-s.ended:
				return
			case <-ctx.Done():
				s.leave()
				return
			}
		}
		err := s.mux.Conn.SendOwned(ctx, buf[:wire.FrameHeaderLen], buf[wire.FrameHeaderLen:], func() { written <- struct{}{} })
		<-written // it comes even if the connection ends
		if err != nil {
			s.fail(core.Errorf(core.CodeUnavailable, "send to output host %s: %w", s.host.id, err))
			return
		}
	}
}
