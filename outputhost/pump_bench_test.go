package outputhost

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/outputhost/lease"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// The benchmarks of the pump measure one message that is read, delivered and acked, in runs of 1 and of 100 messages: a
// run comes as one batch, is delivered as one, and is acked by one frame. A consumer grants anew when it has taken half
// of what it may hold. The shares are those of open extents, read to their end; the time of the group goes on by 10 µs
// with each frame.

func BenchmarkPump_OneShareOneConsumer(b *testing.B)    { pump(b, 1, 1, 1, 1) }
func BenchmarkPump_1000SharesOneBusy(b *testing.B)      { pump(b, 1000, 1, 1, 1) }
func BenchmarkPump_1000SharesAllBusy(b *testing.B)      { pump(b, 1000, 1000, 1, 1) }
func BenchmarkPump_1000ConsumersOneCredit(b *testing.B) { pump(b, 1, 1, 1000, 1) }
func BenchmarkPump_1000ConsumersAllCredit(b *testing.B) { pump(b, 1, 1, 1000, 1000) }

// BenchmarkPump_1000ConsumersOneNacked pumps a group in which one consumer nacked and did not ack since.
func BenchmarkPump_1000ConsumersOneNacked(b *testing.B) {
	p := newPumped(b, 1, 1000, 1, 1)
	seq := p.read(p.shares[0], 1)
	p.g.mu.Lock()
	p.g.mu.rules.Tick(p.now)
	p.g.mu.rules.Connected(1000)
	p.g.mu.rules.Want(dispatch.Credit{Messages: 1, Bytes: pumpedBytes}, true)
	p.g.mu.rules.Take(p.consumers[999].id, dispatch.Credit{Messages: 1, Bytes: pumpedBytes}, p.now, nil)
	err := p.shares[0].rules.Nack(seq, 1, 25*time.Second, nil, 0, p.now)
	p.g.mu.Unlock()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.pass()
		p.g.pump()
	}
}

// BenchmarkSaver_1000BusyShares is a second of 1,000 shares that each bring a message, and the round that saves them.
func BenchmarkSaver_1000BusyShares(b *testing.B) {
	p := newPumped(b, 1000, 1, 1, 1)
	for b.Loop() {
		for _, s := range p.shares {
			p.round(s)
		}
		p.saver.save(b.Context(), false)
	}
}

// pump gives a group shares, of which so many bring messages in turn, and consumers, of which so many have credit.
func pump(b *testing.B, shares, busy, consumers, credited int) {
	for _, run := range []int{1, 100} {
		b.Run(fmt.Sprintf("run=%d", run), func(b *testing.B) {
			p := newPumped(b, shares, consumers, credited, run)
			for i := range max(busy, credited) { // a consumer's first message of a share names the extent
				p.round(p.shares[i%busy])
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += run {
				p.round(p.shares[i/run%busy])
			}
		})
	}
}

const (
	pumpedSize  = 100     // bytes of a message
	pumpedHeld  = 2000    // messages that a consumer with credit may hold, like the client's
	pumpedBytes = 8 << 20 // and bytes
)

// pumped is a group in memory. The connection of its consumers has ended, and what is sent on it is dropped: the
// benchmarks measure the group, and not the websocket.
type pumped struct {
	*harness
	g         *group
	now       time.Time
	leased    time.Time // when the lease began
	shares    []*share
	consumers []*consumer // by session, from the first one on
	batch     *ws.Message // that all batches are
	offsets   []uint32
	settled   wire.Settled
	body      []byte // scratch
}

func newPumped(b testing.TB, shares, consumers, credited, run int) *pumped {
	b.Helper()
	p := &pumped{harness: newHarness(b), now: time.Now(), batch: ws.Copy(make([]byte, run*pumpedSize)), settled: wire.Settled{Runs: make([]wire.SeqRun, 1)}}
	p.deps.Now = func() time.Time { return p.now }
	for i := range run + 1 {
		p.offsets = append(p.offsets, uint32(i*pumpedSize))
	}
	_, first := p.group()
	e, err := convert.Extent(first.Extent)
	if err != nil {
		b.Fatal(err)
	}
	var list []*pb.Assignment
	for range shares {
		e.ID = core.ExtentID{ID: core.NewID(time.Now())}
		list = append(list, &pb.Assignment{Group: first.Group, Name: first.Name, Extent: convert.ExtentToProto(e), Counter: 1, By: first.By})
	}
	if err := p.give(1, list...); err != nil {
		b.Fatal(err)
	}
	p.g = p.groupList()[0]
	conn := p.connect()
	conn.s.mux.Conn.Abort(nil)
	for i := range consumers {
		c := conn.consume(p.g)
		c.credit = window{}
		if i < credited {
			c.credit = window{messages: pumpedHeld, bytes: pumpedBytes}
		}
		p.g.mu.Lock()
		p.g.countCreditLocked(c)
		p.g.mu.Unlock()
		p.consumers = append(p.consumers, c)
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	for _, s := range p.g.orderedLocked() {
		s.reader = &reader{g: p.g, s: s, mux: conn.s.mux, told: true}
		p.readers.Add(1)
		p.g.touchLocked(s)
		p.shares = append(p.shares, s)
	}
	return p
}

// pass lets time go on. The lease begins anew before it lapses, as no controller renews it.
func (p *pumped) pass() {
	p.now = p.now.Add(10 * time.Microsecond)
	if p.now.Sub(p.leased) > dispatch.OwnerLease/2 {
		p.leased = p.now
		p.g.under.Store(&leaseSet{lease.New(lease.Config{Members: p.deps.Members, Log: p.log, Lapses: p.metrics.lapses}, leased{p.Host}).Of(lease.Maker{Controller: "controller"})})
	}
}

// round has one run of a share read, delivered and acked.
func (p *pumped) round(s *share) {
	n := len(p.offsets) - 1
	first := p.read(s, n)
	p.g.pump()

	p.pass()
	p.g.mu.Lock()
	given := s.rules.Standing(first)
	p.g.mu.Unlock()
	if given.Place != dispatch.PlaceInFlight {
		p.t.Fatalf("message %d is not delivered: %+v", first, given)
	}
	c := p.consumers[given.Session-p.consumers[0].id]
	p.settled.Handle = c.handles[s]
	p.settled.Runs[0] = wire.SeqRun{Base: first, Count: uint32(n), Attempt: 1}
	p.body = p.settled.Append(p.body[:0])
	c.HandleFrame(wire.Frame{Type: wire.TypeAck, Body: p.body}, nil)
	if at := s.rules.Frontier(); at != first+core.Seq(n)-1 {
		p.t.Fatalf("%d messages from %d on were acked, the frontier is %d", n, first, at)
	}
	if c.credit.messages > pumpedHeld/2 {
		return
	}
	p.pass()
	credit := wire.Credit{Messages: uint32(pumpedHeld - c.credit.messages), Bytes: uint64(pumpedBytes - c.credit.bytes)}
	p.body = credit.Append(p.body[:0])
	c.HandleFrame(wire.Frame{Type: wire.TypeConsumeCredit, Body: p.body}, nil)
}

// read offers the share its next batch of n messages, as its reader does with one that came.
func (p *pumped) read(s *share, n int) (first core.Seq) {
	p.pass()
	bytes, buffer := hold(p.batch.Bytes, p.batch)
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	first = s.rules.ReadFrom()
	s.reader.hearLocked()
	s.reader.granted -= len(bytes)
	s.last = first + core.Seq(n) - 1
	if err := s.rules.Offer(dispatch.Records{Base: first, Offsets: p.offsets, Bytes: bytes, Enqueued: p.now.UnixMicro(), Buffer: buffer}, p.now); err != nil {
		p.t.Fatal(err)
	}
	return first
}
