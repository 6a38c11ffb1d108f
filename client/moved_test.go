package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// refusingHost is an output host that confirms, delivers messages of one extent when it has been given credit, and
// refuses all settlements.
type refusingHost struct {
	conn     *ws.Conn
	number   uint32
	messages int
	listed   int // refusals of one frame that the host lists
	code     core.Code
	lock     time.Duration
	started  bool
}

func (*refusingHost) Closed(error) {}

func (h *refusingHost) HandleFrame(fr wire.Frame, _ *ws.Message) {
	switch fr.Type {
	case wire.TypeConsumeHello:
		body, err := proto.Marshal(&pb.ConsumeHelloOK{LockTimeout: durationpb.New(h.lock), Confirms: true, Run: make([]byte, 16)})
		if err != nil {
			panic(err)
		}
		h.conn.Post(wire.AppendFrame(nil, wire.TypeConsumeHelloOK, h.number, body))
	case wire.TypeConsumeCredit:
		h.deliver()
	case wire.TypeAck, wire.TypeReturn:
		var v wire.Settled
		must(v.Decode(fr.Body))
		var seqs []core.Seq
		for _, r := range v.Runs {
			for i := range r.Count {
				seqs = append(seqs, r.Base+core.Seq(i))
			}
		}
		h.refuse(seqs...)
	case wire.TypeNack, wire.TypeReject:
		var n wire.Nack
		must(n.Decode(fr.Body))
		h.refuse(n.Seq)
	case wire.TypeExtend:
		var e wire.Extend
		must(e.Decode(fr.Body))
		h.refuse(e.Seq)
	case wire.TypeConfirm, wire.TypeConsumeClose:
		h.conn.Post(wire.AppendFrame(nil, fr.Type, h.number, fr.Body))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (h *refusingHost) deliver() {
	if h.started {
		return
	}
	h.started = true
	name := wire.Handle{Handle: 3, Extent: core.ExtentID{ID: core.NewID(time.Now())}, Token: []byte("extent")}
	frames, at := wire.BeginFrame(nil, wire.TypeHandle, wire.FlagTokens, h.number)
	frames = name.Append(frames)
	wire.EndFrame(frames, at)
	record, err := wire.AppendRecord(nil, &wire.Record{ID: NewMessageID(), Payload: []byte("x")})
	must(err)
	d := wire.Deliver{Handle: 3, Runs: []wire.DeliverRun{{Base: 1, Count: uint32(h.messages), Attempt: 1}}}
	for range h.messages {
		d.Records = append(d.Records, record...)
	}
	h.conn.Post(wire.AppendFrame(frames, wire.TypeDeliver, h.number, d.Append(nil)))
}

func (h *refusingHost) refuse(seqs ...core.Seq) {
	var r wire.AckResult
	for _, seq := range seqs[:min(h.listed, len(seqs))] {
		r.Entries = append(r.Entries, wire.AckFailure{Handle: 3, Seq: seq, Attempt: 1, Code: h.code})
	}
	h.conn.Post(wire.AppendFrame(nil, wire.TypeAckResult, h.number, r.Append(nil)))
}

// refusing starts a server with such a host. by answers what is settled by token; nil: it is applied.
func refusing(t *testing.T, like refusingHost, by func(token string) error) (*fake, *tokens) {
	t.Helper()
	seen := &tokens{times: make(map[string]int)}
	f := &fake{settle: func(all []string) *pb.SettleResponse {
		out := &pb.SettleResponse{}
		for _, token := range all {
			seen.add(token)
			if err := by(token); err != nil {
				out.Failures = append(out.Failures, &pb.SettleResponse_Failure{Token: token, Error: convert.ErrorToProto(err)})
			}
		}
		return out
	}}
	f.stream = func(conn *ws.Conn, number uint32) ws.StreamHandler {
		h := like
		h.conn, h.number = conn, number
		return &h
	}
	return startFake(t, f), seen
}

// tokens are those that were settled, and how often.
type tokens struct {
	mu    sync.Mutex
	times map[string]int
}

func (k *tokens) add(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.times[token]++
}

// wantEach checks that each of the messages from 1 on was settled by token once.
func (k *tokens) wantEach(t *testing.T, n int) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	missing, again := 0, 0
	for i := range n {
		switch k.times[core.DeliveryToken("extent", core.Seq(i+1), 1)] {
		case 0:
			missing++
		case 1:
		default:
			again++
		}
	}
	if missing > 0 || again > 0 {
		t.Errorf("of %d messages the new owner heard of %d not at all, and of %d more than once", n, missing, again)
	}
}

// TestConsumer_AcksOfAMovedExtentAreNotAllListed acks more messages of a moved extent at once than the host lists as
// refused: the new owner hears of each. It refuses all: those that the first host listed were not applied, so the
// application is told; of the others it may have applied some.
func TestConsumer_AcksOfAMovedExtentAreNotAllListed(t *testing.T) {
	const n, listed = 2000, 1000
	for name, answer := range map[string]error{"applied": nil, "refused": core.Errorf(core.CodeStale, "settled before")} {
		t.Run(name, func(t *testing.T) {
			f, seen := refusing(t, refusingHost{messages: n, listed: listed, code: core.CodeMoved, lock: time.Minute}, func(string) error { return answer })
			var refused refusals
			con := consume(t, dial(t, f), Prefetch(2*n), OnRefused(func(r Refusal) { refused.add(r.Receipt.Seq) }))
			var all []*Delivery
			for d, err := range con.Deliveries(limited(t)) {
				if err != nil {
					t.Fatal(err)
				}
				if all = append(all, d); len(all) == n {
					break
				}
			}
			for _, d := range all {
				if err := d.Ack(); err != nil {
					t.Fatal(err)
				}
			}
			if err := con.Flush(limited(t)); err != nil {
				t.Fatal(err)
			}
			seen.wantEach(t, n)
			if got := refused.count(); (answer == nil) != (got == 0) {
				t.Errorf("the application was told of %d refusals", got)
			}
		})
	}
}

// refusals counts refusals by seq.
type refusals struct {
	mu   sync.Mutex
	seqs map[core.Seq]bool
}

func (c *refusals) add(seq core.Seq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seqs == nil {
		c.seqs = make(map[core.Seq]bool)
	}
	c.seqs[seq] = true
}

func (c *refusals) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seqs)
}

// TestConsumer_ReturnsOfAMovedExtent closes a consumer that has yielded nothing: the new owner is given back all. The
// application hears of no refusal: it has not seen the messages.
func TestConsumer_ReturnsOfAMovedExtent(t *testing.T) {
	const n = 50
	for code, unseen := range map[core.Code]int{core.CodeMoved: n, core.CodeStale: 0} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			f, seen := refusing(t, refusingHost{messages: n, listed: 1000, code: code, lock: time.Minute}, func(string) error { return nil })
			var refused refusals
			con := consume(t, dial(t, f), Prefetch(2*n), OnRefused(func(r Refusal) { refused.add(r.Receipt.Seq) }))
			eventually(t, "all are here", func() bool {
				con.inbox.mu.Lock()
				defer con.inbox.mu.Unlock()
				return len(con.inbox.mu.slabs) == 1
			})
			if err := con.Close(limited(t)); err != nil {
				t.Fatal(err)
			}
			if unseen > 0 {
				seen.wantEach(t, n)
			}
			f.state(func() {
				if f.mu.unseen != unseen {
					t.Errorf("%d were given back to the new owner, want %d", f.mu.unseen, unseen)
				}
			})
			if got := refused.count(); got > 0 {
				t.Errorf("the application was told of %d refusals", got)
			}
		})
	}
}

// TestConsumer_ClosesWithoutAnOwnerOfReturns closes a consumer whose messages nobody takes back: it gives up soon, and
// without an error, since they come again when their locks end.
func TestConsumer_ClosesWithoutAnOwnerOfReturns(t *testing.T) {
	f, _ := refusing(t, refusingHost{messages: 50, listed: 1000, code: core.CodeMoved, lock: time.Minute}, func(string) error {
		return core.Errorf(core.CodeUnavailable, "no owner")
	})
	con := consume(t, dial(t, f), Prefetch(100))
	eventually(t, "all are here", func() bool {
		con.inbox.mu.Lock()
		defer con.inbox.mu.Unlock()
		return len(con.inbox.mu.slabs) == 1
	})
	if err := con.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
}

// TestWork_RefusedExtensionIsNotConfirmed has a host refuse all extensions, and nobody grant them by token: the handler
// is told when its lock ends.
func TestWork_RefusedExtensionIsNotConfirmed(t *testing.T) {
	for _, code := range []core.Code{core.CodeMoved, core.CodeUnavailable} {
		t.Run(string(code), func(t *testing.T) {
			var owned atomic.Bool
			f, _ := refusing(t, refusingHost{messages: 1, listed: 1000, code: code, lock: time.Second}, func(string) error {
				if owned.Load() {
					return nil
				}
				return core.Errorf(core.CodeUnavailable, "no owner yet")
			})
			c := dial(t, f)
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			err := c.Work(ctx, "/t/q", "g", func(hctx context.Context, _ *Delivery) error {
				began := time.Now()
				defer cancel()
				select {
				case <-hctx.Done():
				case <-ctx.Done():
				}
				var lost *LockLostError
				if err := context.Cause(hctx); !errors.As(err, &lost) || !errors.Is(err, ErrStale) {
					t.Errorf("the handler was told: %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it was told after %s, its lock lasted a second", took)
				}
				owned.Store(true)
				return nil
			}, Grace(time.Second))
			if err != nil {
				t.Errorf("work: %v", err)
			}
		})
	}
}
