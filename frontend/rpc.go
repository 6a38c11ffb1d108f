package frontend

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend/gate"
	"github.com/columbamq/columba/frontend/publishers"
	"github.com/columbamq/columba/frontend/turns"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/retell"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// service answers the calls. Its methods return errors of the catalogue; intercept dresses them.
type service struct {
	cfg      Config
	log      *slog.Logger
	metrics  *metrics
	meta     metadata.Store // metadata.Refusing
	shown    metadata.Store // metadata.QuorumOrOne, for answers that change nothing
	peers    *peer.Pool
	members  membership.Monitor
	now      func() time.Time
	began    time.Time       // of the process: what it has seen of the cluster, it has seen since
	draining context.Context // ends when long polls shall
	calls    *gate.Gate
	turns    *turns.Turns // of pulls
	known    known        // of shares
	keys     atomic.Pointer[tokenKeys]
	copies   atomic.Pointer[copies]
	counts   *queueCounts                 // of namespaces with a limit of queues
	retell   *retell.Teller[core.QueueID] // their controllers, of queues and groups that changed

	publishers *publishers.Pool
}

var (
	_ columbav1connect.AdminServiceHandler   = (*service)(nil)
	_ columbav1connect.MessageServiceHandler = (*service)(nil)
)

// intercept gives every call a place, a deadline and a count, and turns errors into answers.
func (s *service) intercept(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		method := req.Spec().Procedure
		method = method[strings.LastIndexByte(method, '/')+1:]
		start := time.Now()
		defer func() {
			code := "ok"
			if err != nil {
				code = string(core.CodeOf(err))
				resp, err = nil, convert.RPCError(err)
			}
			s.metrics.calls.WithLabelValues(method, code).Inc()
			if method != "Pull" {
				s.metrics.seconds.WithLabelValues(method).Observe(time.Since(start).Seconds())
			}
		}()
		call := kindOf(req)
		if err := s.calls.Enter(call); err != nil {
			return nil, err
		}
		defer s.calls.Leave(call)
		s.metrics.inFlight.Inc()
		defer s.metrics.inFlight.Dec()
		timeout := s.cfg.CallTimeout
		switch method {
		case "Pull":
			timeout += maxWait
		case "VerifyExtent":
			timeout += verifyWait
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if !onlyReads(method) {
			ctx = metadata.ForChange(ctx)
		}
		if resp, err = next(ctx, req); err == nil {
			return resp, nil
		}
		if ctx.Err() != nil && core.CodeOf(err) == core.CodeInternal {
			err = core.Errorf(core.CodeDeadline, "%s did not end in time: %w", method, err)
		}
		return nil, err
	}
}

// onlyReads reports whether a method changes nothing, and takes no messages from a group.
func onlyReads(method string) bool {
	switch method {
	case "PreviewSeek", "VerifyExtent", "WhyStuck", "Peek", "PublishRoute", "ConsumeRoute":
		return true
	}
	return strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List")
}

// kindOf says of what kind a call is.
func kindOf(req connect.AnyRequest) gate.Call {
	if m, ok := req.Any().(*pb.PullRequest); ok && m.GetWait().AsDuration() > 0 {
		return gate.Call{Poll: true, Group: m.GetQueue() + " " + m.GetGroup()}
	}
	return gate.Call{}
}
