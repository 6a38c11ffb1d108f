package frontend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	maxPage   = 1000 // of any listing
	maxCreate = 1000 // queues in one call
	// fanOut is how many metadata calls one call has under way.
	fanOut = 32
)

// CreateQueue makes a queue; CodeExists.
func (s *service) CreateQueue(ctx context.Context, req *connect.Request[pb.CreateQueueRequest]) (*connect.Response[pb.Queue], error) {
	q, err := s.createQueue(ctx, req.Msg.GetSpec())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(queueToProto(q)), nil
}

// CreateQueues makes many at a time; one that fails does not stop the others.
func (s *service) CreateQueues(ctx context.Context, req *connect.Request[pb.CreateQueuesRequest]) (*connect.Response[pb.CreateQueuesResponse], error) {
	specs := req.Msg.GetSpecs()
	if len(specs) > maxCreate {
		return nil, core.Errorf(core.CodeBadArgument, "%d queues in one call; at most %d are allowed", len(specs), maxCreate)
	}
	out := &pb.CreateQueuesResponse{Results: make([]*pb.CreateQueuesResponse_Result, len(specs))}
	var g errgroup.Group
	g.SetLimit(fanOut)
	for i, spec := range specs {
		g.Go(func() error {
			if q, err := s.createQueue(ctx, spec); err != nil {
				out.Results[i] = &pb.CreateQueuesResponse_Result{Error: convert.ErrorToProto(err)}
			} else {
				out.Results[i] = &pb.CreateQueuesResponse_Result{Queue: queueToProto(q)}
			}
			return nil
		})
	}
	g.Wait() // no function fails
	return connect.NewResponse(out), nil
}

func (s *service) createQueue(ctx context.Context, p *pb.QueueSpec) (metadata.QueueRecord, error) {
	var none metadata.QueueRecord
	if p == nil {
		return none, core.Errorf(core.CodeBadArgument, "spec is missing; its path names the new queue")
	}
	copies := s.copies.Load()
	spec := convert.QueueSpec(p).WithDefaults(copies.Replicas, copies.MinReplicas)
	if d := p.ConsumedRetention; d != nil { // 0 is a value here, as in an update
		spec.ConsumedRetention = d.AsDuration()
	}
	if d := p.UnconsumedRetention; d != nil {
		spec.UnconsumedRetention = d.AsDuration()
	}
	if err := checkQueue(spec); err != nil {
		return none, err
	}
	if err := s.checkStores(spec); err != nil {
		return none, err
	}
	return s.claimLimited(ctx, spec)
}

// checkQueue refuses a spec that is wrong, and one that asks for what is not there yet.
func checkQueue(spec core.QueueSpec) error {
	if _, err := core.ParseQueuePath(spec.Path); err != nil {
		return err
	}
	return spec.Validate()
}

// checkStores refuses numbers of replicas for which too few stores live, CodeIncomplete: the queue would take no
// message.
func (s *service) checkStores(spec core.QueueSpec) error {
	stores := len(s.members.Hosts(roleStore))
	if stores == 0 || spec.MinReplicas <= stores {
		return nil
	}
	return core.Errorf(core.CodeIncomplete, "the queue needs at least %d replicas, and of the cluster's stores %d can be reached; start more, ask for --replicas %d, or for --min-replicas %d to begin with fewer copies",
		spec.MinReplicas, stores, stores, stores)
}

// GetQueue looks a queue up by its path.
func (s *service) GetQueue(ctx context.Context, req *connect.Request[pb.GetQueueRequest]) (*connect.Response[pb.Queue], error) {
	path, err := core.ParseAnyQueuePath(req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	q, err := s.queueToShow(ctx, path)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(queueToProto(q)), nil
}

// ListQueues answers a page of the queues whose path begins with a prefix: in order of path dead letter queues too
// unless told otherwise, and the page token is a path; by backlog or age only those that store messages. A page may
// hold fewer than asked for with more to come.
func (s *service) ListQueues(ctx context.Context, req *connect.Request[pb.ListQueuesRequest]) (*connect.Response[pb.ListQueuesResponse], error) {
	prefix, after := req.Msg.GetPrefix(), req.Msg.GetAfter()
	if err := checkPrefix("prefix", prefix); err != nil {
		return nil, err
	}
	if err := checkOrder(req.Msg.GetSort()); err != nil {
		return nil, err
	}
	limit, err := pageLimit(req.Msg.GetLimit())
	if err != nil {
		return nil, err
	}
	if order := req.Msg.GetSort(); order != "" && order != "name" {
		out, err := s.queuesByDepth(ctx, req.Msg)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(out), nil
	}
	if err := checkPrefix("page token", after); err != nil {
		return nil, err
	}
	wanted := func(path string) bool { return !strings.HasSuffix(path, core.SuffixRetry) }
	if req.Msg.GetWithoutBuiltIn() {
		wanted = func(path string) bool { _, err := core.ParseQueuePath(path); return err == nil }
	}
	out, began := &pb.ListQueuesResponse{}, time.Now()
	for more := true; more && limit > 0 && (out.Next == "" || time.Since(began) < s.cfg.CallTimeout/pageShare); {
		var names []metadata.Record[metadata.NameRecord]
		names, more, err = metadata.PrefixWhere[metadata.NameRecord](ctx, s.meta, metadata.Names, metadata.PartitionPath, prefix, after, min(limit, queuesAtOnce), metadata.One, wanted)
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list queues: %w", err)
		}
		queues, err := s.queuesOf(ctx, names)
		if err != nil {
			return nil, err
		}
		out.Queues, out.Next, limit = append(out.Queues, queues...), "", limit-len(names)
		if more {
			after = names[len(names)-1].Key.Row
			out.Next = after
		}
	}
	if req.Msg.GetDepths() {
		s.addDepths(ctx, out.Queues)
	}
	return connect.NewResponse(out), nil
}

const (
	// queuesAtOnce is how many queues a page of a list reads together.
	queuesAtOnce = 128
	// pageShare: a page of a list reads rows for that part of the time of a call at most, if it has some by then. A
	// metadata store under load may need longer for a whole page than a call lasts.
	pageShare = 4
)

// queuesOf reads the queues of names in their order, but for those that are not shown. A queue that the copy which is
// asked lacks is half made, or new: it is looked up by itself, and finished.
func (s *service) queuesOf(ctx context.Context, names []metadata.Record[metadata.NameRecord]) (out []*pb.Queue, err error) {
	names = slices.DeleteFunc(slices.Clone(names), func(n metadata.Record[metadata.NameRecord]) bool {
		return n.Value.Queue.IsZero()
	})
	keys := make([]metadata.Key, len(names))
	for i, n := range names {
		keys[i] = metadata.QueueKey(n.Value.Queue)
	}
	rows, err := metadata.GetRows(ctx, s.meta, metadata.Queues, keys, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "read queues: %w", err)
	}
	queues := make([]metadata.QueueRecord, len(names))
	finishing, fctx := errgroup.WithContext(ctx)
	finishing.SetLimit(fanOut)
	for i, n := range names {
		if len(rows) > 0 && rows[0].Key == keys[i] {
			if queues[i], err = metadata.Decode[metadata.QueueRecord](metadata.Queues, rows[0]); err != nil {
				break
			}
			rows = rows[1:]
			continue
		}
		finishing.Go(func() (err error) {
			queues[i], err = s.finish(fctx, n.Value)
			return err
		})
	}
	if err := errors.Join(err, finishing.Wait()); err != nil {
		return nil, err
	}
	for _, q := range queues {
		if q.Spec.Status != core.StatusDeleted {
			out = append(out, queueToProto(q))
		}
	}
	return out, nil
}

// UpdateQueue changes the fields that are named, or if none is those that are set. The queues that belong to its groups
// follow in their copies.
func (s *service) UpdateQueue(ctx context.Context, req *connect.Request[pb.UpdateQueueRequest]) (*connect.Response[pb.Queue], error) {
	to := convert.QueueSpec(req.Msg.GetSpec())
	path, err := core.ParseQueuePath(to.Path)
	if err != nil {
		return nil, err
	}
	f := fields(req.Msg.GetFields())
	if err := f.check("durability", "replicas", "min_replicas", "consumed_retention", "unconsumed_retention", "max_message", "status", "max_backlog"); err != nil {
		return nil, err
	}
	name, _, err := s.resolve(ctx, path)
	if err != nil {
		return nil, err
	}
	ended, err := s.audit(ctx, req.Peer().Addr, auditedUpdate("update queue", req.Msg.GetSpec(), f), path)
	if err != nil {
		return nil, err
	}
	q, err := metadata.Change(ctx, s.meta, metadata.Queues, metadata.QueueKey(name.Queue), func(q *metadata.QueueRecord) error {
		if q.Spec.Status == core.StatusDeleted {
			return noQueue(path)
		}
		if to.Consistency != "" && to.Consistency != q.Spec.Consistency {
			return core.Errorf(core.CodeBadArgument, "consistency of queue %s is fixed at its creation: it is %s", path, q.Spec.Consistency)
		}
		was := q.Spec
		change(f, "durability", &q.Spec.Durability, to.Durability)
		change(f, "replicas", &q.Spec.Replicas, to.Replicas)
		change(f, "min_replicas", &q.Spec.MinReplicas, to.MinReplicas)
		change(f, "consumed_retention", &q.Spec.ConsumedRetention, to.ConsumedRetention)
		change(f, "unconsumed_retention", &q.Spec.UnconsumedRetention, to.UnconsumedRetention)
		change(f, "max_message", &q.Spec.MaxMessage, to.MaxMessage)
		change(f, "status", &q.Spec.Status, to.Status)
		change(f, "max_backlog", &q.Spec.MaxBacklog, to.MaxBacklog)
		if err := checkQueue(q.Spec); err != nil {
			return err
		}
		if q.Spec.Replicas == was.Replicas && q.Spec.MinReplicas == was.MinReplicas {
			return nil // stores that are away now do not matter for the rest
		}
		return s.checkStores(q.Spec)
	})
	if err == nil {
		s.tellOfQueue(ctx, q.ID)
		err = core.Partly(s.passCopiesOn(ctx, q), fmt.Sprintf("queue %s is changed, but perhaps not all queues of its groups", path), "update it again with the same settings")
	}
	ended(ctx, err)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(queueToProto(q)), nil
}

// DeleteQueue deletes a queue with its groups; its path is free then. A queue made under it later is another one.
func (s *service) DeleteQueue(ctx context.Context, req *connect.Request[pb.DeleteQueueRequest]) (*connect.Response[pb.DeleteQueueResponse], error) {
	path, err := core.ParseQueuePath(req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	name, _, err := s.entry(ctx, path) // also one that an earlier call has marked, and did not come to its end
	if err != nil {
		return nil, err
	}
	ended, err := s.audit(ctx, req.Peer().Addr, "delete queue", path)
	if err != nil {
		return nil, err
	}
	err = s.deletion().Queue(ctx, name)
	ended(ctx, err)
	s.logDeletion(req.Peer().Addr, "delete queue", path, err)
	if err != nil {
		return nil, undeleted(err, "delete queue "+path)
	}
	return connect.NewResponse(&pb.DeleteQueueResponse{}), nil
}

// undeleted is the error of a command that deletes something.
func undeleted(err error, command string) error {
	if core.CodeOf(err) == core.CodeUnknown {
		return core.Errorf(core.CodeUnknown, "%s: %w; a controller goes on with it, and so does the same command again", command, err)
	}
	return core.Errorf(core.CodeOf(err), "%s: %w", command, err)
}

func queueToProto(q metadata.QueueRecord) *pb.Queue {
	return &pb.Queue{Id: q.ID.String(), Spec: convert.QueueSpecToProto(q.Spec), Created: convert.Time(q.Created)}
}

// set overwrites *v by a value that is not the zero one.
func set[T comparable](v *T, to T) {
	var zero T
	if to != zero {
		*v = to
	}
}

// pageLimit reads the limit of a listing; 0 means the largest.
func pageLimit(limit int32) (int, error) {
	switch {
	case limit < 0 || limit > maxPage:
		return 0, core.Errorf(core.CodeBadArgument, "limit %d is not in 0 … %d", limit, maxPage)
	case limit == 0:
		return maxPage, nil
	}
	return int(limit), nil
}

// checkPrefix refuses what no path can begin with.
func checkPrefix(what, prefix string) error {
	const most = (core.MaxPathLabels + 1) * (core.MaxLabel + 1 + len(core.SuffixRetry))
	if prefix == "" {
		return nil
	}
	if len(prefix) > most || prefix[0] != '/' {
		return core.Errorf(core.CodeBadName, "%s is not the beginning of a queue path like /namespace/name", what)
	}
	for i := range len(prefix) {
		if c := prefix[i]; c != '/' && c != '_' && c != '.' && c != '-' && !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') {
			return core.Errorf(core.CodeBadName, "%s holds a character other than letters, digits, '/', '_', '.', '-'", what)
		}
	}
	return nil
}
