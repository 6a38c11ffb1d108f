package inputhost

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// controller places extents on the stores that are up and not avoided, if there are two of them, and seals by the
// longest fenced replica.
type controller struct {
	columbav1connect.UnimplementedControllerServiceHandler
	r  *harness
	n  int // replicas
	mu struct {
		sync.Mutex
		away    bool
		hangs   bool                   // EnsureExtent answers nothing
		blind   bool                   // places on stores that are down
		chain   func() (uint64, error) // of a CP queue: the place of the next extent
		gone    core.QueueID           // was deleted
		holders int                    // says so many of them; 0: as it is
		ensures int
		row     []byte // the last one of a queue that an input host gave
		sealing int    // calls under way, and the most there were
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
	away, blind, hangs, gone := c.mu.away, c.mu.blind, c.mu.hangs, c.mu.gone
	c.mu.ensures++
	c.mu.row = req.Msg.QueueRow
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
	if gone.ID == queue && !gone.IsZero() {
		return nil, convert.RPCError(core.Errorf(core.CodeNotFound, "the queue was deleted"))
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
		if c.hasOpen(req.Msg.Have) {
			return nil, convert.RPCError(core.Errorf(core.CodeExists, "the input host has the head already"))
		}
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

// hasOpen reports whether one of the extents is not sealed.
func (c *controller) hasOpen(have [][]byte) bool {
	c.sealMu.Lock()
	defer c.sealMu.Unlock()
	return slices.ContainsFunc(have, func(b []byte) bool {
		id, err := core.IDFromBytes(b)
		return err == nil && c.seals[core.ExtentID{ID: id}] == nil
	})
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

// take lets time pass; none arms no timer: one at the bubble's present time would run on this very thread, which the
// race detector does not survive.
func take(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
