package frontend

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/frontend/cancels"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// The roles that a frontend asks.
const (
	roleController = "controller"
	roleInput      = "inputhost"
	roleOutput     = "outputhost"
	roleStore      = "storehost"
)

// publishHosts is how many input hosts a publisher spreads over.
const publishHosts = 2

// askTimeout bounds one host's answer while there is another one to ask.
const askTimeout = 2 * time.Second

const (
	// longTimeout bounds one controller's answer to a call that may take long. A seek takes no longer.
	longTimeout = 20 * time.Second
	// memberEvery is how often such a call looks whether the membership still shows the controller.
	memberEvery = time.Second
)

// PublishRoute answers the input hosts that a publisher of the queue connects to.
func (s *service) PublishRoute(ctx context.Context, req *connect.Request[pb.PublishRouteRequest]) (*connect.Response[pb.RouteResponse], error) {
	hosts, err := s.publishRoute(ctx, req.Msg.GetQueue())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(s.route(hosts)), nil
}

func (s *service) publishRoute(ctx context.Context, path string) ([]membership.Host, error) {
	q, err := s.publishable(ctx, path)
	if err != nil {
		return nil, err
	}
	hosts, err := s.chainRoute(ctx, q)
	if err != nil || len(hosts) > 0 {
		return hosts, err
	}
	hosts = s.ranked(roleInput, q.ID.ID)
	if len(hosts) == 0 {
		return nil, core.Errorf(core.CodeUnavailable, "no input host is known; try again")
	}
	return hosts[:min(len(hosts), publishHosts)], nil
}

// publishable is the queue that a user may publish to. One copy of the metadata lets a publisher in, and turns none
// away.
func (s *service) publishable(ctx context.Context, path string) (metadata.QueueRecord, error) {
	path, err := core.ParseAnyQueuePath(path)
	if err != nil {
		return metadata.QueueRecord{}, err
	}
	if q, err := s.copyOf(ctx, path); err == nil && mayPublish(q) == nil {
		return q, nil
	}
	_, q, err := s.resolve(ctx, path)
	if err == nil {
		err = mayPublish(q)
	}
	return q, err
}

// mayPublish is why a user may not publish to a queue.
func mayPublish(q metadata.QueueRecord) error {
	if !q.Owner.IsZero() {
		return core.Errorf(core.CodeUnsupported, "queue %s belongs to its group: only the group writes to it", q.Spec.Path)
	}
	return q.Spec.Status.PublishError(q.Spec.Path)
}

// ConsumeRoute answers the output hosts that a consumer of the group connects to.
func (s *service) ConsumeRoute(ctx context.Context, req *connect.Request[pb.ConsumeRouteRequest]) (*connect.Response[pb.RouteResponse], error) {
	g, err := s.consumable(ctx, req.Msg.GetQueue(), req.Msg.GetGroup())
	if err != nil {
		return nil, err
	}
	hosts, err := s.consumeRoute(ctx, g)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(s.route(hosts)), nil
}

// consumeRoute are the hosts that own shares of the group, and some more that are about to: a share that moves is
// delivered at once.
func (s *service) consumeRoute(ctx context.Context, g metadata.GroupRecord) ([]membership.Host, error) {
	outputs := s.members.Hosts(roleOutput)
	owners := make(map[core.HostID]bool)
	switch {
	case len(outputs) == 0:
		return nil, core.Errorf(core.CodeUnavailable, "no output host is known; try again")
	case len(outputs) > membership.ConsumeHosts:
		hosts, _, err := s.owners(ctx, g)
		if err != nil {
			return nil, err
		}
		for _, h := range hosts {
			owners[h.ID] = true
		}
	}
	return membership.Consume(outputs, g.ID, owners), nil
}

// consumable is the group that may be consumed. One copy of the metadata may be behind, and where no majority answers
// there is only one.
func (s *service) consumable(ctx context.Context, path, name string) (metadata.GroupRecord, error) {
	if err := checkGroupNames(path, name); err != nil {
		return metadata.GroupRecord{}, err
	}
	if q, err := s.copyOf(ctx, path); err == nil {
		q, g, err := s.groupOf(ctx, q, name, metadata.One)
		if mayConsume(q, g, err) == nil {
			return g, nil
		}
	}
	q, g, err := s.groupNow(ctx, path, name)
	return g, mayConsume(q, g, err)
}

// mayConsume is why a group, or the error of its look-up, is not to be consumed.
func mayConsume(q metadata.QueueRecord, g metadata.GroupRecord, err error) error {
	if err == nil {
		err = q.Spec.Status.ConsumeError(q.Spec.Path)
	}
	if err == nil {
		err = g.Spec.Status.GroupError(q.Spec.Path, g.Spec.Name)
	}
	return err
}

// route is a complete list; of two the one with the higher version is the newer.
func (s *service) route(hosts []membership.Host) *pb.RouteResponse {
	out := &pb.RouteResponse{Version: uint64(s.now().UnixMicro())}
	for _, h := range hosts {
		out.Hosts = append(out.Hosts, &pb.HostAddress{Id: string(h.ID), Address: h.Address})
	}
	return out
}

// assigned are the assignments of a group's shares that count, whether their owners live or not.
func (s *service) assigned(ctx context.Context, group core.GroupID) (map[core.ExtentID]metadata.AssignmentRecord, error) {
	out, err := metadata.Assigned(ctx, s.meta, group, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "look up the shares of group %s: %w", group, err)
	}
	return out, nil
}

// ranked are the live hosts of a role in the order that rendezvous hashing gives them for key.
func (s *service) ranked(role string, key core.ID) []membership.Host {
	return core.Rank(key.String(), s.members.Hosts(role), func(h membership.Host) core.HostID { return h.ID })
}

// rpc is a method of a host's client.
type rpc[Q, R any] = func(context.Context, *connect.Request[Q]) (*connect.Response[R], error)

// ask calls the hosts of a role in turn until one answers something else than "not here, not now". The call must be one
// that may be done again.
func ask[Q, R any](ctx context.Context, hosts []membership.Host, role string, req *Q, at func(addr string) rpc[Q, R]) (*R, error) {
	return askInTurn(ctx, hosts, role, req, at, func(ctx context.Context, _ membership.Host, last bool) (context.Context, context.CancelFunc) {
		if last {
			return ctx, func() {}
		}
		return context.WithTimeout(ctx, askTimeout)
	})
}

// askForLong is ask for calls that may take long. The next host is asked only when one has answered, cannot be reached,
// is not in the membership any more, or has not answered for longTimeout: a call that is given up after a moment begins
// anew at the next host, and what two hosts do beside each other may be done a second time after the caller has its
// answer.
func askForLong[Q, R any](ctx context.Context, s *service, hosts []membership.Host, role string, req *Q, at func(addr string) rpc[Q, R]) (*R, error) {
	return askInTurn(ctx, hosts, role, req, at, func(ctx context.Context, h membership.Host, _ bool) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(ctx, longTimeout)
		var watch sync.WaitGroup
		watch.Go(func() {
			for s.isThere(h) {
				select {
				case <-time.After(memberEvery):
				case <-ctx.Done():
					return
				}
			}
			cancel()
		})
		return ctx, func() { cancel(); watch.Wait() }
	})
}

// isThere reports whether the membership shows a host in the same run.
func (s *service) isThere(h membership.Host) bool {
	now, ok := membership.Find(s.members, h.ID)
	return ok && now.Run == h.Run
}

// askInTurn is ask with the time that each host has.
func askInTurn[Q, R any](ctx context.Context, hosts []membership.Host, role string, req *Q, at func(addr string) rpc[Q, R],
	within func(ctx context.Context, h membership.Host, last bool) (context.Context, context.CancelFunc),
) (*R, error) {
	err := error(core.Errorf(core.CodeUnavailable, "no %s is known; try again", role))
	for i, h := range hosts {
		its, cancel := within(ctx, h, i == len(hosts)-1)
		var resp *R
		resp, err = askOne(its, h, 0, req, at)
		over := its.Err() != nil
		cancel()
		if err == nil {
			return resp, nil
		}
		err = core.Errorf(core.CodeOf(err), "%s %s: %w", role, h.ID, err)
		if ctx.Err() != nil || !over && !elsewhere(err) {
			break
		}
	}
	return nil, err
}

// askOne calls one host; timeout 0 is ctx's.
func askOne[Q, R any](ctx context.Context, h membership.Host, timeout time.Duration, req *Q, at func(addr string) rpc[Q, R]) (*R, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	resp, err := at(h.Address)(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// elsewhere reports whether another host may do better.
func elsewhere(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeDraining, core.CodeMoved, core.CodeDeadline, core.CodeIncomplete, core.CodeReadOnly:
		return true
	}
	return false
}

// unsure turns a transport's failure into unknown, for calls that change something, unless no connection was made.
func unsure(err error) error {
	var dial *net.OpError
	if core.CodeOf(err) != core.CodeUnavailable && core.CodeOf(err) != core.CodeDeadline || errors.As(err, &dial) && dial.Op == "dial" {
		return err
	}
	return core.Errorf(core.CodeUnknown, "the answer was lost; it may or may not have been done: %w", err)
}

// timerCluster is what a cancellation asks.
type timerCluster struct {
	*service
	home core.Home
}

// Readers are the groups of the queue that reads the extent; a group's own queue of retries is read by that group.
func (s timerCluster) Readers(ctx context.Context, e core.Extent) (out []metadata.GroupRecord, err error) {
	queue, ok := s.home.Reader(e.Queue)
	if !ok {
		return nil, nil
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(queue), metadata.Serial)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "look up the queue of extent %s: %w", e.ID, err)
	}
	only := ""
	if i := strings.LastIndexByte(q.Spec.Path, '/'); i > 0 && strings.HasSuffix(q.Spec.Path, core.SuffixRetry) {
		only = strings.TrimSuffix(q.Spec.Path[i+1:], core.SuffixRetry)
		if _, q, err = s.resolve(ctx, q.Spec.Path[:i]); err != nil {
			return nil, err
		}
	}
	for g, err := range metadata.All[metadata.GroupRecord](ctx, s.meta, metadata.Groups, q.ID.String(), metadata.Serial) {
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list groups of queue %s: %w", q.Spec.Path, err)
		}
		if g.Value.Started && g.Value.Spec.Status != core.StatusDeleted && s.home.ReadBy(g.Value.ID) && (only == "" || only == g.Value.Spec.Name) {
			out = append(out, g.Value)
		}
	}
	return out, nil
}

func (s timerCluster) Owner(ctx context.Context, group core.GroupID, extent core.ExtentID) (owner cancels.Owner, err error) {
	a, ok, err := s.assignment(ctx, group, extent, metadata.Quorum)
	if err != nil || !ok {
		return owner, err
	}
	return cancels.Owner{Host: a.Owner, Counter: a.Counter}, nil
}

func (s timerCluster) Consumed(ctx context.Context, group metadata.GroupRecord, extent core.ExtentID) (bool, error) {
	return metadata.IsConsumed(ctx, s.meta, group.ID, extent, group.Epoch, metadata.Quorum)
}

func (s timerCluster) Saved(ctx context.Context, group metadata.GroupRecord, extent core.Extent) (dispatch.State, error) {
	return s.saved(ctx, group, extent)
}

func (s timerCluster) Outputs() []membership.Host { return s.members.Hosts(roleOutput) }

func (s timerCluster) Hold(ctx context.Context, h membership.Host, req *pb.HoldTimersRequest) (*pb.HoldTimersResponse, error) {
	return askOne(ctx, h, 0, req, func(addr string) rpc[pb.HoldTimersRequest, pb.HoldTimersResponse] {
		return s.peers.Output(addr).HoldTimers
	})
}

func (s timerCluster) Follow(ctx context.Context, h membership.Host, req *pb.FollowCancelsRequest) error {
	_, err := askOne(ctx, h, 0, req, func(addr string) rpc[pb.FollowCancelsRequest, pb.FollowCancelsResponse] {
		return s.peers.Output(addr).FollowCancels
	})
	return err
}

// chainRoute is the one input host that takes the messages of a CP queue: the writer of its open head. None when there
// is no open head, or its host is not there any more; then any host may ask for the next one.
func (s *service) chainRoute(ctx context.Context, q metadata.QueueRecord) ([]membership.Host, error) {
	if q.Spec.Consistency != core.CP {
		return nil, nil
	}
	head, err := metadata.ReadHead(ctx, s.meta, q.ID, metadata.One)
	if err == nil && head.Extent.Chain > 0 {
		_, err = s.meta.Get(ctx, metadata.Seals, metadata.SealKey(head.Extent.ID), metadata.One)
		if err == nil {
			return nil, nil // it takes nothing more
		}
	}
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return nil, core.Errorf(core.CodeOf(err), "look up the head of queue %s: %w", q.Spec.Path, err)
	}
	for _, h := range s.members.Hosts(roleInput) {
		if h.ID == head.Extent.Input && h.Run == head.Extent.InputRun {
			return []membership.Host{h}, nil
		}
	}
	return nil, nil
}
