package inputhost

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// store keeps how far its replicas are, in memory. An append is durable after the delay.
type store struct {
	r        *harness
	id       core.HostID
	mu       sync.Mutex
	delay    time.Duration
	group    time.Duration // an acknowledgement of all that waits, that often; 0: each for itself
	waiting  []*appends
	refuses  core.Code // every append, with it
	down     bool
	stopped  chan struct{} // not nil: the process stands still until it is closed
	killed   chan struct{} // closed when it is: what waits for the delay ends
	conns    []*ws.Conn
	appended time.Time // the time of the last batch
	extents  map[core.ExtentID]*replica
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
		a.conn.Post(wire.AppendFrame(nil, wire.TypeOpened, a.stream, nil))
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
	e.taken, a.s.appended = b.Last(), time.UnixMicro(b.AppendTime)
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
	a.conn.Post(wire.AppendPosition(b, uint64(durable)))
}

func (a *appends) refuse(code core.Code) {
	body, err := proto.Marshal(convert.ErrorToProto(core.Errorf(code, "refused")))
	if err != nil {
		panic(err)
	}
	a.conn.Post(wire.AppendFrame(nil, wire.TypeRefused, a.stream, body))
}
