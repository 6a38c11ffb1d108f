package frontend

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/metadata"
)

// ListDepths answers a page of the depths that the controllers have computed. It reads nothing itself.
func (s *service) ListDepths(ctx context.Context, req *connect.Request[pb.ListDepthsRequest]) (*connect.Response[pb.ListDepthsResponse], error) {
	m := req.Msg
	if err := checkPrefix("prefix", m.GetPrefix()); err != nil {
		return nil, err
	}
	if _, err := pageLimit(m.GetLimit()); err != nil {
		return nil, err
	}
	if len(m.GetQueues()) > maxPage {
		return nil, core.Errorf(core.CodeTooLarge, "%d queues in one call; at most %d are allowed", len(m.GetQueues()), maxPage)
	}
	for _, path := range m.GetQueues() {
		if _, err := core.ParseAnyQueuePath(path); err != nil {
			return nil, err
		}
	}
	out, err := s.depths(ctx, &pb.ListDepthsRequest{Prefix: m.GetPrefix(), Sort: m.GetSort(), After: m.GetAfter(), Limit: m.GetLimit(), ByQueue: m.GetByQueue(), Queues: m.GetQueues()})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// depths asks the controllers. Of several, each tells of the queues that it is responsible for.
func (s *service) depths(ctx context.Context, req *pb.ListDepthsRequest) (*pb.ListDepthsResponse, error) {
	controllers := s.members.Hosts(roleController)
	req.Part = len(controllers) > 1
	parts, silent, err := askAll(ctx, controllers, roleController, req, func(addr string) rpc[pb.ListDepthsRequest, pb.ListDepthsResponse] {
		return s.peers.Controller(addr).ListDepths
	})
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "list depths: %w", err)
	}
	out := parts[0]
	if req.Part {
		if out, err = mergeDepths(req, parts); err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list depths: %w", err)
		}
		out.Silent = silent
	}
	for _, d := range out.GetDepths() {
		d.DrainMs = drain(d)
	}
	return out, nil
}

// placed is a row of a list.
type placed struct {
	place backlog.Place
	depth *pb.Depth
}

// mergeDepths makes one page of those of several controllers. A queue that was handed over in between may be in two.
func mergeDepths(req *pb.ListDepthsRequest, parts []*pb.ListDepthsResponse) (*pb.ListDepthsResponse, error) {
	order, err := backlog.ParseOrder(req.GetSort())
	if err != nil {
		return nil, err
	}
	var rows []placed
	out, more := &pb.ListDepthsResponse{}, false
	known, counted := uint32(0), uint32(0)
	untold := make(map[string]int) // by the id of a queue of the request: controllers that do not tell of it
	for _, p := range parts {
		if len(p.GetPlaces()) != len(p.GetDepths()) {
			return nil, core.Errorf(core.CodeInternal, "a controller gives %d places of %d depths", len(p.GetPlaces()), len(p.GetDepths()))
		}
		for i, d := range p.GetDepths() {
			place, err := backlog.ParsePlace(p.GetPlaces()[i])
			if err != nil {
				return nil, err
			}
			rows = append(rows, placed{place, d})
		}
		more = more || p.GetNext() != ""
		known, counted = max(known, p.GetKnown()), counted+p.GetCounted()
		for _, id := range p.GetOthers() {
			untold[string(id)]++
		}
		if at := p.GetAsOf(); out.AsOf == nil || at.AsTime().Before(out.AsOf.AsTime()) {
			out.AsOf = at
		}
	}
	slices.SortFunc(rows, func(a, b placed) int { return order.Compare(a.place, b.place) })
	limit, last := cmp.Or(int(req.GetLimit()), maxPage), ""
	seen := make(map[[2]string]bool, len(rows))
	for _, r := range rows {
		key := [2]string{r.place.Path, r.place.Group}
		if seen[key] {
			continue
		}
		if len(out.Depths) == limit {
			more = true
			break
		}
		seen[key], last = true, r.place.String()
		out.Depths = append(out.Depths, r.depth)
	}
	if more {
		out.Next = last
	}
	out.UncountedQueues = known - min(known, counted)
	for id, n := range untold {
		if n == len(parts) {
			out.Others = append(out.Others, []byte(id))
		}
	}
	return out, nil
}

// addDepths fills in the depths of queues. Without a controller, or while none has counted a queue, they stay unknown:
// the list is worth having all the same.
func (s *service) addDepths(ctx context.Context, queues []*pb.Queue) {
	if len(queues) == 0 {
		return
	}
	req := &pb.ListDepthsRequest{ByQueue: true, Sort: "name"}
	for _, q := range queues {
		req.Queues = append(req.Queues, q.GetSpec().GetPath())
		if id, err := core.ParseID(q.GetId()); err == nil {
			req.Ids = append(req.Ids, id[:])
		}
	}
	out, err := s.depths(ctx, req)
	if err != nil {
		s.log.Debug("a list of queues has no depths", "err", err)
		return
	}
	byPath := make(map[string]*pb.Depth, len(out.GetDepths()))
	for _, d := range out.GetDepths() {
		byPath[d.GetQueue()] = d
	}
	unknown := make(map[string]bool, len(out.GetOthers()))
	for _, b := range out.GetOthers() {
		if id, err := core.IDFromBytes(b); err == nil { // another id is none that was asked for
			unknown[id.String()] = true
		}
	}
	for _, q := range queues {
		path := q.GetSpec().GetPath()
		if q.Depth = byPath[path]; q.Depth == nil && !unknown[q.GetId()] { // it has no message
			q.Depth = &pb.Depth{Queue: path}
		}
	}
}

// queuesByDepth answers a page of queues, those with the largest backlog or the oldest message first. Queues without
// any stored message are left out.
func (s *service) queuesByDepth(ctx context.Context, req *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	depths, err := s.depths(ctx, &pb.ListDepthsRequest{Prefix: req.GetPrefix(), Sort: req.GetSort(), After: req.GetAfter(), Limit: req.GetLimit(), ByQueue: true})
	if err != nil {
		return nil, err
	}
	keys := make([]metadata.Key, len(depths.GetDepths()))
	for i, d := range depths.GetDepths() {
		keys[i] = metadata.NameKey(d.GetQueue())
	}
	names, err := metadata.GetRows(ctx, s.meta, metadata.Names, keys, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "list queues: %w", err)
	}
	queueKeys := make([]metadata.Key, 0, len(names))
	for _, row := range names {
		n, err := metadata.Decode[metadata.NameRecord](metadata.Names, row)
		if err != nil {
			return nil, err
		}
		if !n.Queue.IsZero() {
			queueKeys = append(queueKeys, metadata.QueueKey(n.Queue))
		}
	}
	rows, err := metadata.GetRows(ctx, s.meta, metadata.Queues, queueKeys, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "list queues: %w", err)
	}
	byPath := make(map[string]*pb.Queue, len(rows))
	for _, row := range rows {
		q, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
		if err != nil {
			return nil, err
		}
		if q.Spec.Status != core.StatusDeleted {
			byPath[q.Spec.Path] = queueToProto(q)
		}
	}
	out := &pb.ListQueuesResponse{Next: depths.GetNext(), UncountedQueues: depths.GetUncountedQueues(), Silent: depths.GetSilent()}
	for _, d := range depths.GetDepths() {
		if q := byPath[d.GetQueue()]; q != nil {
			q.Depth = d
			out.Queues = append(out.Queues, q)
		}
	}
	return out, nil
}

// queueOrders are what ListQueues sorts by.
var queueOrders = []string{"", "name", "backlog", "age"}

// checkOrder refuses what ListQueues does not sort by.
func checkOrder(order string) error {
	if !slices.Contains(queueOrders, order) {
		return core.Errorf(core.CodeBadArgument, "queues are sorted by name, backlog or age; by nothing else")
	}
	return nil
}
