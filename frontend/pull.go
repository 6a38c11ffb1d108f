package frontend

import (
	"context"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend/turns"
	"github.com/columbamq/columba/internal/serving"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	maxWait = 60 * time.Second // for the first message of a Pull
	// turn is how long a Pull waits at one owner, while there are several output hosts. Then it reads the owners again and
	// asks the next: a share may have moved, or a new extent be on another host. So while a group has no messages, each of
	// pullTurns pulls costs one call in this time, and all of them together one read of the group's shares.
	turn = time.Second
	// pullPause is the least time between two rounds: an owner that stops answers at once, however long it is to wait.
	pullPause = 100 * time.Millisecond
)

// Pull takes up to max_messages of the group, and waits for the first. None in time is no error. A frontend that stops
// answers at once.
func (s *service) Pull(ctx context.Context, req *connect.Request[pb.PullRequest]) (*connect.Response[pb.PullResponse], error) {
	m := proto.CloneOf(req.Msg)
	wait := m.GetWait().AsDuration()
	switch {
	case m.MaxMessages < 0 || m.MaxMessages > maxMessages:
		return nil, core.Errorf(core.CodeBadArgument, "max_messages %d is not in 1 … %d", m.MaxMessages, maxMessages)
	case m.GetWait().CheckValid() != nil && m.Wait != nil || wait < 0 || wait > maxWait:
		return nil, core.Errorf(core.CodeBadArgument, "wait %s is not in 0 … %s", wait, maxWait)
	}
	if s.draining.Err() != nil {
		return nil, core.Errorf(core.CodeDraining, "the frontend is stopping; use another one")
	}
	m.MaxMessages = max(m.MaxMessages, 1)
	g, err := s.consumable(ctx, m.GetQueue(), m.GetGroup())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait+s.cfg.CallTimeout)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	out, err := s.pull(ctx, m, g, wait)
	if s.draining.Err() != nil && err != nil {
		out, err = &pb.PullResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	serving.HoldAnswer(ctx, proto.Size(out))
	return connect.NewResponse(out), nil
}

// pull asks the owners in turn, the first one at random, until one has a message or the wait is over. An owner that has
// just died is given a moment to be replaced; it fails when no owner answers then.
func (s *service) pull(ctx context.Context, m *pb.PullRequest, g metadata.GroupRecord, wait time.Duration) (*pb.PullResponse, error) {
	began := time.Now()
	answered := began // when a round was, last
	first := rand.IntN(1 << 20)
	pause := time.NewTicker(pullPause)
	defer pause.Stop()
	for round := 0; ; round++ {
		asked := s.now()
		hosts, only, err := s.owners(ctx, g)
		if err != nil {
			return nil, err
		}
		resp, err := s.pullRound(ctx, m, g, hosts, first, func() time.Duration {
			left := max(0, wait-time.Since(began))
			switch {
			case only:
				return left
			case round == 0 && len(hosts) > 1:
				return 0 // whoever has something shall not wait for the others' turns
			}
			return min(left, turn)
		})
		if err == nil {
			answered = time.Now()
		} else {
			s.known.groups.Outdate(groupEpoch{g.ID, g.Epoch}, asked)
		}
		switch {
		case err == nil && (len(resp.GetMessages()) > 0 || only || time.Since(began) >= wait):
			return resp, nil
		case err != nil && (!elsewhere(err) || time.Since(answered) >= pullRetry):
			return nil, err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return &pb.PullResponse{}, nil
		}
	}
}

// pullRetry is how long a pull looks for an owner that answers.
const pullRetry = time.Second

// pullRound asks each owner once, and fails when none answers.
func (s *service) pullRound(ctx context.Context, m *pb.PullRequest, g metadata.GroupRecord, hosts []membership.Host, first int, wait func() time.Duration) (*pb.PullResponse, error) {
	answered := false
	var last error
	for i := range hosts {
		timeout := s.cfg.CallTimeout
		if len(hosts) > 1 {
			timeout = askTimeout
		}
		h := hosts[(first+i)%len(hosts)]
		resp, err := s.pullFrom(ctx, h, m, wait(), timeout)
		if err == nil && len(resp.GetMessages()) > 0 {
			if len(hosts) > 1 {
				s.learnOwner(g.ID, h.ID, resp)
			}
			return resp, nil
		}
		if err != nil {
			last = err
		}
		answered = answered || err == nil
	}
	if !answered {
		return nil, last
	}
	return &pb.PullResponse{}, nil
}

// pullTurns is how many pulls of a group that wait ask one owner at once. Each costs this process and the owner a
// stream of a shared connection. The pulls in line behind them cost none, and miss nothing: while a pull that asks gets
// no message, the owner has none for them either.
const pullTurns = 16

// pullFrom asks one owner; a pull that waits asks in its turn. A turn that does not come in time is an answer without
// messages. While the server has no room for answers, none is asked: the messages would be locked, and their bytes
// held.
func (s *service) pullFrom(ctx context.Context, h membership.Host, m *pb.PullRequest, wait, timeout time.Duration) (*pb.PullResponse, error) {
	if err := serving.AwaitAnswerRoom(ctx); err != nil {
		return nil, err
	}
	at := s.peers.Output
	if wait > 0 {
		at = s.peers.Waiting
		until := time.Now().Add(wait)
		line, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		of := turns.Of{Queue: m.GetQueue(), Group: m.GetGroup(), Owner: h.Address}
		if !s.turns.Begin(line, of) {
			return &pb.PullResponse{}, nil
		}
		defer s.turns.End(of)
		wait = max(0, time.Until(until))
	}
	m.Wait = durationpb.New(wait)
	return askOne(ctx, h, wait+timeout, m, func(addr string) rpc[pb.PullRequest, pb.PullResponse] { return at(addr).Pull })
}
