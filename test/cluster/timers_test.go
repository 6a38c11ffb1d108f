package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// timerExtent is an open timer extent of the queue, written by the test instead of its input host.
type timerExtent struct {
	core.Extent
	w       *world
	peers   *peer.Pool
	streams []*timerAppend
	header  wire.BatchHeader
}

// timerAppend is its append stream to one store.
type timerAppend struct {
	mux    *ws.Mux
	stream uint32
	opened chan struct{}
	acks   chan core.Seq
}

// HandleFrame implements ws.StreamHandler.
func (a *timerAppend) HandleFrame(f wire.Frame, _ *ws.Message) {
	switch f.Type {
	case wire.TypeOpened:
		close(a.opened)
	case wire.TypeAppendAck:
		seq, _ := wire.DecodePosition(f.Body)
		a.acks <- core.Seq(seq)
	}
}

// Closed implements ws.StreamHandler.
func (a *timerAppend) Closed(error) {}

// timerExtent makes the extent, and tells the controller of it by its hints.
func (w *world) timerExtent() *timerExtent {
	w.t.Helper()
	ctx := w.t.Context()
	name, _, err := metadata.Read[metadata.NameRecord](ctx, w.Meta, metadata.Names, metadata.NameKey(queue), metadata.One)
	w.ok(err)
	now := time.Now()
	x := &timerExtent{w: w, peers: w.peers(), Extent: core.Extent{
		ID: core.ExtentID{ID: core.NewID(now)}, Queue: name.Queue, Kind: core.KindTimer, Durability: core.DurabilityFsync,
		Input: Input, InputRun: w.hosts[Input].run, Token: core.WriterToken{ID: core.NewID(now)},
	}}
	for i := range w.o.Stores {
		x.Replicas = append(x.Replicas, Store(i))
	}
	for _, id := range x.Replicas {
		a := &timerAppend{opened: make(chan struct{}), acks: make(chan core.Seq, 1000)}
		a.mux, err = x.peers.Link(ctx, w.hosts[id].addr, "/v1/store")
		w.ok(err)
		a.stream, err = a.mux.Open(a)
		w.ok(err)
		body, err := proto.Marshal(&pb.OpenAppend{Extent: convert.ExtentToProto(x.Extent)})
		w.ok(err)
		w.ok(a.mux.Conn.Send(ctx, wire.AppendFrame(nil, wire.TypeOpenAppend, a.stream, body)))
		<-a.opened
		x.streams = append(x.streams, a)
	}
	r := metadata.ExtentRecord{Extent: x.Extent, Created: now, Wanted: len(x.Replicas)}
	for _, partition := range []metadata.Hint{metadata.HintLive, metadata.HintOpen} {
		w.ok(metadata.Write(ctx, w.Meta, metadata.Work, metadata.HintKey(partition, x.ID), r, now, 0, metadata.One))
	}
	w.ok(metadata.Write(ctx, w.Meta, metadata.Extents, metadata.ExtentKey(x.Queue, x.ID), r, now, 0, metadata.One))
	w.Restart(Controller)
	return x
}

// timer is a message and when it is due.
type timer struct {
	body string
	due  time.Time
}

// append stores timers as one batch, durable on all replicas.
func (x *timerExtent) append(timers ...timer) {
	x.w.t.Helper()
	ctx := x.w.t.Context()
	var records []byte
	for _, m := range timers {
		var err error
		records, err = wire.AppendRecord(records, &wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, DeliverAt: m.due.UnixMilli(), Payload: []byte(m.body)})
		x.w.ok(err)
	}
	x.header = wire.BatchHeader{
		Base: x.header.Last() + 1, Count: uint32(len(timers)), AppendTime: time.Now().UnixMicro(), Checksum: wire.ExtendChecksum(x.header.Checksum, records),
	}
	if x.header.Base == 0 { // the first batch
		x.header.Base = 1
	}
	batch := make([]byte, wire.BatchHeaderLen)
	wire.PutBatchHeader(batch, x.header)
	batch = append(batch, records...)
	for _, a := range x.streams {
		x.w.ok(a.mux.Conn.Send(ctx, append(wire.AppendAppendHead(nil, a.stream, 0, len(batch)), batch...)))
	}
	for _, a := range x.streams {
		for seq := core.Seq(0); seq < x.header.Last(); seq = <-a.acks {
		}
	}
}

// commit tells the stores that all that was appended is committed.
func (x *timerExtent) commit() {
	x.w.t.Helper()
	for _, a := range x.streams {
		b, at := wire.BeginFrame(nil, wire.TypeCommitted, 0, a.stream)
		b = wire.AppendPosition(b, uint64(x.header.Last()))
		wire.EndFrame(b, at)
		x.w.ok(a.mux.Conn.Send(x.w.t.Context(), b))
	}
}

// seal has the controller fix the end.
func (x *timerExtent) seal() {
	x.w.t.Helper()
	_, err := x.w.Client.Admin().SealExtent(x.w.t.Context(), queue, x.ID.String(), client.SealOptions{})
	x.w.ok(err)
}

// done waits until a group has consumed the extent to its end, as the metadata say.
func (x *timerExtent) done(group string, within time.Duration) {
	x.w.t.Helper()
	g, err := x.w.Client.Admin().GetGroup(x.w.t.Context(), queue, group)
	x.w.ok(err)
	x.w.eventually("the group is through with the timer extent", within, func() bool {
		now, _, err := metadata.Read[metadata.GroupRecord](x.w.t.Context(), x.w.Meta, metadata.Groups, metadata.GroupKey(g.QueueID, group), metadata.One)
		x.w.ok(err)
		for d, err := range metadata.DonesOf(x.w.t.Context(), x.w.Meta, g.ID, x.ID, metadata.One) {
			x.w.ok(err)
			if d.Value.In(now.Epoch) {
				return d.Value.L == x.header.Last()
			}
		}
		return false
	})
}

// onTime takes the timers, which must come in this order, none early and none late, and acks them.
func (w *world) onTime(con *client.Consumer, late time.Duration, timers ...timer) {
	w.t.Helper()
	for _, m := range timers {
		d := w.take(con, time.Until(m.due)+10*time.Second)
		if d == nil {
			w.t.Fatalf("%s did not come", m.body)
		}
		if by := time.Since(m.due); string(d.Body) != m.body || by < 0 || by > late {
			w.t.Fatalf("%s came, %s after %s was due", d.Body, by, m.body)
		}
		w.ok(d.Ack())
	}
}

// TestTimers_ComeInTheirOrderAndOnTime has due times in no order, before and after the consumer comes, over seconds and
// minutes.
func TestTimers_ComeInTheirOrderAndOnTime(t *testing.T) {
	bubble(t, Options{Stores: 3}, func(w *world) {
		w.group("g", nil)
		x := w.timerExtent()
		defer x.peers.Close()
		now := time.Now().Truncate(time.Millisecond)
		at := func(body string, in time.Duration) timer { return timer{body, now.Add(in)} }
		x.append(at("c", 20*time.Second), at("f", 4*time.Minute), at("a", 10*time.Second))
		x.append(at("b", 10*time.Second+time.Millisecond), at("e", 2*time.Minute))
		x.commit()
		con := w.consumer("g")
		w.onTime(con, 20*time.Millisecond, at("a", 10*time.Second), at("b", 10*time.Second+time.Millisecond), at("c", 20*time.Second))
		depth, err := w.Client.Admin().Depth(w.t.Context(), queue, "g")
		w.ok(err)
		if d := depth[0]; d.Delayed != 2 || d.Ready != 0 || d.UnknownExtents > 0 {
			t.Errorf("depth %+v, want two delayed", d)
		}
		x.append(at("d", time.Minute)) // due before what the store waits for
		x.append(at("late", -time.Hour))
		x.commit()
		w.ok(w.next(con, "late", 1).Ack())
		w.onTime(con, 20*time.Millisecond, at("d", time.Minute))
		x.seal()
		w.onTime(con, 20*time.Millisecond, at("e", 2*time.Minute), at("f", 4*time.Minute))
		x.done("g", time.Minute)
		w.close(con)
	})
}

// TestTimers_NothingIsLostWhenHostsDie kills, one after another while timers fire, the store they are read from, the
// output host that owns them, and the controller; then the extent is sealed.
func TestTimers_NothingIsLostWhenHostsDie(t *testing.T) {
	bubble(t, Options{Stores: 3, Outputs: 2}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 5 * time.Second })
		x := w.timerExtent()
		defer x.peers.Close()
		random := rand.New(rand.NewPCG(1, 2))
		now := time.Now().Truncate(time.Millisecond)
		due := make(map[string]time.Time)
		for i := range 20 {
			var timers []timer
			for j := range 30 {
				m := timer{fmt.Sprintf("%02d-%02d", i, j), now.Add(5*time.Second + time.Duration(random.IntN(60_000))*time.Millisecond)}
				timers, due[m.body] = append(timers, m), m.due
			}
			x.append(timers...)
		}
		x.commit()
		con := w.consumer("g", client.Prefetch(20))
		got := make(map[string]int)
		take := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				d := w.take(con, min(100*time.Millisecond, time.Until(end)))
				if d == nil {
					continue
				}
				if early := time.Until(due[string(d.Body)]); early > 0 {
					t.Fatalf("%s came %s early", d.Body, early)
				}
				got[string(d.Body)]++
				d.Ack() // its connection may be lost
			}
		}
		take(10 * time.Second)
		read := core.Rank(x.ID.String(), x.Replicas, func(id core.HostID) core.HostID { return id })[0]
		w.Crash(read)
		take(10 * time.Second)
		g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, "g")
		w.ok(err)
		owner := core.HostID("")
		for r, err := range metadata.All[metadata.AssignmentRecord](w.t.Context(), w.Meta, metadata.Assignments, g.ID.String(), metadata.One) {
			w.ok(err)
			owner = r.Value.Owner
		}
		w.Crash(owner)
		take(10 * time.Second)
		w.Up(read, owner)
		w.Restart(Controller)
		take(10 * time.Second)
		x.seal()
		take(35 * time.Second)
		twice := 0
		for body := range due {
			if got[body] == 0 {
				t.Errorf("%s, due after %s, did not come", body, due[body].Sub(now))
			}
			twice += max(0, got[body]-1)
		}
		if twice > 2*20+10 { // in flight when the owner died, and its acks of a tenth of a second
			t.Errorf("%d messages came twice", twice)
		}
		x.done("g", time.Minute)
		w.close(con)
	})
}

// TestTimers_GoByTheStoresClock sets the clock of the store that is read ahead, and then back: messages come when it
// says so, none earlier.
func TestTimers_GoByTheStoresClock(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		x := w.timerExtent()
		defer x.peers.Close()
		now := time.Now().Truncate(time.Millisecond)
		x.append(timer{"a", now.Add(4 * time.Minute)}, timer{"b", now.Add(5 * time.Minute)})
		x.commit()
		con := w.consumer("g")
		if d := w.take(con, 30*time.Second); d != nil {
			t.Fatalf("%s came", d.Body)
		}
		w.hosts[Store(0)].skew.Store(int64(3 * time.Minute))
		w.onTime(con, time.Minute+20*time.Millisecond, timer{"a", now.Add(time.Minute)}) // the clock is looked at once a minute
		w.hosts[Store(0)].skew.Store(-int64(time.Minute))
		w.onTime(con, time.Minute+20*time.Millisecond, timer{"b", now.Add(6 * time.Minute)})
		w.close(con)
	})
}

// TestTimers_SettlementsAreAsEver nacks, rejects, loses a lock, and dead-letters.
func TestTimers_SettlementsAreAsEver(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout, g.MaxDeliveries = 5*time.Second, 2 })
		x := w.timerExtent()
		defer x.peers.Close()
		now := time.Now().Truncate(time.Millisecond)
		x.append(timer{"twice", now.Add(4 * time.Second)}, timer{"rejected", now.Add(2 * time.Second)}, timer{"nacked", now.Add(3 * time.Second)})
		x.commit()
		con := w.consumer("g")
		w.ok(w.next(con, "rejected", 1).Reject("bad"))
		w.ok(w.next(con, "nacked", 1).Nack(client.After(20 * time.Second)))
		w.next(con, "twice", 1)
		w.next(con, "twice", 2)
		w.ok(w.next(con, "nacked", 2).Ack())
		w.eventually("two are dead letters", 10*time.Second, func() bool { return w.letters("g") == 2 })
		var bodies []string
		for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			bodies = append(bodies, string(l.Message.Body))
		}
		if slices.Sort(bodies); !slices.Equal(bodies, []string{"rejected", "twice"}) {
			t.Errorf("dead letters %v", bodies)
		}
		x.seal()
		x.done("g", time.Minute)
		w.close(con)
	})
}
