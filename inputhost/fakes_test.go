package inputhost

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// store keeps how far its replicas are, in memory. An append is durable after the delay.
type store struct {
	r       *rig
	id      core.HostID
	mu      sync.Mutex
	delay   time.Duration
	group   time.Duration // an acknowledgement of all that waits, that often; 0: each for itself
	waiting []*appends
	refuses core.Code // every append, with it
	down    bool
	stopped chan struct{} // not nil: the process stands still until it is closed
	killed  chan struct{} // closed when it is: what waits for the delay ends
	conns   []*ws.Conn
	extents map[core.ExtentID]*replica
}

type replica struct {
	extent         core.Extent
	taken, durable core.Seq
	fenced         bool
	records        [][]byte // of a timer extent
}

// keep takes over encoded records.
func (r *replica) keep(records []byte) {
	for len(records) > 0 {
		record, rest, err := wire.NextRecord(records)
		if err != nil {
			panic(err)
		}
		r.records, records = append(r.records, record), rest
	}
}

func (s *store) addr() string { return string(s.id) + ":1" }

func (s *store) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// up listens.
func (s *store) up() {
	s.set(func() { s.down, s.killed = false, make(chan struct{}) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/store", func(w http.ResponseWriter, req *http.Request) {
		conn, err := ws.Upgrade(w, req, ws.Options{})
		if err != nil {
			return
		}
		s.set(func() { s.conns = append(s.conns, conn) })
		m := ws.NewMux(conn, func(f wire.Frame, _ *ws.Message) ws.StreamHandler {
			if f.Type != wire.TypeOpenAppend {
				return nil
			}
			return &appends{s: s, conn: conn, stream: f.Stream}
		})
		m.Run(context.Background())
	})
	s.r.serve(s.addr(), mux)
}

// cut breaks its connections.
func (s *store) cut() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for _, c := range conns {
		c.Abort(net.ErrClosed)
	}
}

// kill ends it: nothing listens and nothing answers; what was durable stays.
func (s *store) kill() {
	s.set(func() {
		if !s.down {
			s.down = true
			close(s.killed)
		}
	})
	s.r.mu.Lock()
	l := s.r.mu.listeners[s.addr()]
	delete(s.r.mu.listeners, s.addr())
	s.r.mu.Unlock()
	l.Close()
	s.cut()
}

// stop has it read and answer nothing until it goes on.
func (s *store) stop() (goOn func()) {
	c := make(chan struct{})
	s.set(func() { s.stopped = c })
	return func() {
		s.set(func() { s.stopped = nil })
		close(c)
	}
}

// fence answers what is durable; the rest is dropped.
func (s *store) fence(id core.ExtentID) (last core.Seq, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.stopped != nil {
		return 0, false
	}
	e := s.extents[id]
	if e == nil {
		e = &replica{}
		s.extents[id] = e
	}
	e.fenced = true
	return e.durable, true
}

// appends is an append stream.
type appends struct {
	s      *store
	conn   *ws.Conn
	stream uint32
	id     core.ExtentID
}

func (a *appends) Closed(error) {}

func (a *appends) HandleFrame(f wire.Frame, _ *ws.Message) {
	a.s.mu.Lock()
	stopped := a.s.stopped
	a.s.mu.Unlock()
	if stopped != nil {
		<-stopped // the whole connection's reader
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	switch f.Type {
	case wire.TypeOpenAppend:
		var req pb.OpenAppend
		if err := proto.Unmarshal(f.Body, &req); err != nil {
			panic(err)
		}
		extent, err := convert.Extent(req.Extent)
		if err != nil {
			panic(err)
		}
		a.id = extent.ID
		if a.s.extents[a.id] != nil {
			a.refuse(core.CodeExists)
			return
		}
		a.s.extents[a.id] = &replica{extent: extent}
		a.conn.TrySend(wire.AppendFrame(nil, wire.TypeOpened, a.stream, nil))
	case wire.TypeAppend:
		a.append(f.Body)
	}
}

func (a *appends) append(body []byte) {
	_, batch, err := wire.DecodeAppend(body)
	if err != nil {
		panic(err)
	}
	b, err := wire.DecodeBatch(batch)
	if err != nil {
		panic(err)
	}
	e := a.s.extents[a.id]
	switch {
	case a.s.refuses != "":
		a.refuse(a.s.refuses)
		return
	case e.fenced:
		a.refuse(core.CodeFenced)
		return
	case b.Base != e.taken+1:
		a.refuse(core.CodeGap)
		return
	}
	e.taken = b.Last()
	if e.extent.Kind == core.KindTimer {
		e.keep(bytes.Clone(b.Records))
	}
	if a.s.group > 0 {
		if a.s.waiting = append(a.s.waiting, a); len(a.s.waiting) == 1 {
			a.s.r.wg.Go(a.s.sync)
		}
		return
	}
	if a.s.delay == 0 {
		e.durable = e.taken
		a.ack(e.durable)
		return
	}
	delay, killed, last := a.s.delay, a.s.killed, e.taken
	a.s.r.wg.Go(func() {
		select {
		case <-time.After(delay):
		case <-killed:
			return
		}
		a.s.mu.Lock()
		defer a.s.mu.Unlock()
		switch {
		case a.s.killed != killed || a.s.down:
		case e.fenced:
			a.refuse(core.CodeFenced)
		default:
			e.durable = max(e.durable, last)
			a.ack(e.durable)
		}
	})
}

// sync is a group commit.
func (s *store) sync() {
	take(s.group)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.waiting {
		if e := s.extents[a.id]; !e.fenced && e.durable < e.taken {
			e.durable = e.taken
			a.ack(e.durable)
		}
	}
	s.waiting = s.waiting[:0]
}

func (a *appends) ack(durable core.Seq) {
	var room [wire.FrameHeaderLen + 8]byte
	b := wire.AppendFrameHeader(room[:0], wire.TypeAppendAck, 0, a.stream, 8)
	a.conn.TrySend(wire.AppendPosition(b, uint64(durable)))
}

func (a *appends) refuse(code core.Code) {
	body, err := proto.Marshal(convert.ErrorToProto(core.Errorf(code, "refused")))
	if err != nil {
		panic(err)
	}
	a.conn.TrySend(wire.AppendFrame(nil, wire.TypeRefused, a.stream, body))
}

// controller places extents on the stores that are up and not avoided, if there are two of them, and seals by the longest fenced replica.
type controller struct {
	columbav1connect.UnimplementedControllerServiceHandler
	r  *rig
	n  int // replicas
	mu struct {
		sync.Mutex
		away    bool
		hangs   bool                   // EnsureExtent answers nothing
		blind   bool                   // places on stores that are down
		chain   func() (uint64, error) // of a CP queue: the place of the next extent
		holders int                    // says so many of them; 0: as it is
		ensures int
		sealing int // calls under way, and the most there were
		most    int
		delay   time.Duration
	}
	sealMu sync.Mutex
	seals  map[core.ExtentID]*sealed
}

type sealed struct {
	extent  core.Extent
	due     time.Time
	l       core.Seq
	holders []string
}

func (c *controller) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *controller) EnsureExtent(ctx context.Context, req *connect.Request[pb.EnsureExtentRequest]) (*connect.Response[pb.EnsureExtentResponse], error) {
	c.mu.Lock()
	away, blind, hangs := c.mu.away, c.mu.blind, c.mu.hangs
	c.mu.ensures++
	c.mu.Unlock()
	if hangs {
		return hang(ctx)
	}
	if away {
		return nil, convert.RPCError(core.Errorf(core.CodeUnavailable, "the controller is away"))
	}
	queue, err := core.IDFromBytes(req.Msg.Queue)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	var good, rest []core.HostID
	for _, s := range c.r.stores {
		s.mu.Lock()
		down := s.down && !blind
		s.mu.Unlock()
		switch {
		case down:
		case slices.Contains(req.Msg.Avoid, string(s.id)):
			rest = append(rest, s.id)
		default:
			good = append(good, s.id)
		}
	}
	if len(good) < min(c.n, 2) {
		good = append(good, rest...)
	}
	good = good[:min(len(good), c.n)]
	if len(good) < min(c.n, 2) {
		return nil, convert.RPCError(core.Errorf(core.CodeUnavailable, "%d stores", len(good)))
	}
	now := time.Now()
	e := core.Extent{
		ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: queue}, Kind: core.ExtentKind(req.Msg.Kind), Durability: core.DurabilityFsync,
		Horizon: core.Horizon(req.Msg.Horizon), Input: c.r.self.ID, InputRun: c.r.self.Run, Token: core.WriterToken{ID: core.NewID(now)}, Replicas: good,
	}
	c.mu.Lock()
	chain := c.mu.chain
	c.mu.Unlock()
	if chain != nil && e.Kind == core.KindLog {
		if e.Chain, err = chain(); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	out := &pb.EnsureExtentResponse{Extent: convert.ExtentToProto(e)}
	for _, id := range good {
		out.Stores = append(out.Stores, &pb.HostAddress{Id: string(id), Address: string(id) + ":1"})
	}
	return connect.NewResponse(out), nil
}

func (c *controller) SealExtent(_ context.Context, req *connect.Request[pb.SealExtentRequest]) (*connect.Response[pb.SealExtentResponse], error) {
	c.mu.Lock()
	away, holders, delay := c.mu.away, c.mu.holders, c.mu.delay
	c.mu.sealing++
	c.mu.most = max(c.mu.most, c.mu.sealing)
	c.mu.Unlock()
	defer c.set(func() { c.mu.sealing-- })
	if away {
		return nil, convert.RPCError(core.Errorf(core.CodeUnavailable, "the controller is away"))
	}
	take(delay)
	e, err := convert.Extent(req.Msg.Extent)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	s, err := c.seal(e, core.Seq(req.Msg.Floor))
	if err != nil {
		return nil, convert.RPCError(err)
	}
	if req.Msg.Due != nil {
		c.sealMu.Lock()
		s.due = req.Msg.Due.AsTime()
		c.sealMu.Unlock()
	}
	out := &pb.SealExtentResponse{L: uint64(s.l), Holders: s.holders}
	if holders > 0 {
		out.Holders = out.Holders[:min(holders, len(out.Holders))]
	}
	return connect.NewResponse(out), nil
}

func (c *controller) seal(e core.Extent, floor core.Seq) (*sealed, error) {
	c.sealMu.Lock()
	defer c.sealMu.Unlock()
	if s := c.seals[e.ID]; s != nil {
		return s, nil
	}
	s := &sealed{extent: e}
	for _, st := range c.r.stores {
		if !slices.Contains(e.Replicas, st.id) {
			continue
		}
		if last, ok := st.fence(e.ID); ok {
			s.l = max(s.l, last)
			s.holders = append(s.holders, string(st.id)) // those that are shorter are copied to
		}
	}
	if len(s.holders) == 0 {
		return nil, core.Errorf(core.CodeUnavailable, "no store of extent %s answers", e.ID)
	}
	if s.l < floor {
		c.r.t.Errorf("extent %s: L %d is below the floor %d", e.ID, s.l, floor)
	}
	c.seals[e.ID] = s
	return s, nil
}

// check that nothing was acknowledged that is not in a sealed extent.
func (c *controller) check() {
	for id, acked := range c.r.mu.acked {
		if s := c.seals[id]; s != nil && acked > s.l {
			c.r.t.Errorf("extent %s is sealed at %d, %d was acknowledged", id, s.l, acked)
		}
	}
}

// take lets time pass; none arms no timer: one at the bubble's present time would run on this very thread, which the race detector does not survive.
func take(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
