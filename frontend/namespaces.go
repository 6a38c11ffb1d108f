package frontend

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// CreateNamespace gives a namespace limits; CodeExists. Its queues may be there already.
func (s *service) CreateNamespace(ctx context.Context, req *connect.Request[pb.CreateNamespaceRequest]) (*connect.Response[pb.Namespace], error) {
	spec, err := namespaceSpec(req.Msg.GetSpec())
	if err != nil {
		return nil, err
	}
	ended, err := s.audit(ctx, req.Peer().Addr, "create namespace", spec.Name)
	if err != nil {
		return nil, err
	}
	r := metadata.NamespaceRecord{Spec: spec, Created: s.now().UTC()}
	err = metadata.Create(ctx, s.meta, metadata.Namespaces, metadata.NamespaceKey(spec.Name), r)
	ended(ctx, err)
	if core.CodeOf(err) == core.CodeExists {
		err = core.Errorf(core.CodeExists, "namespace %s has limits; change them with: columba update namespace %s", spec.Name, spec.Name)
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(namespaceToProto(r)), nil
}

// GetNamespace answers the limits of a namespace, and how many queues it has.
func (s *service) GetNamespace(ctx context.Context, req *connect.Request[pb.GetNamespaceRequest]) (*connect.Response[pb.Namespace], error) {
	name, err := core.ParseNamespace(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	r, _, err := metadata.Read[metadata.NamespaceRecord](ctx, s.meta, metadata.Namespaces, metadata.NamespaceKey(name), metadata.Serial)
	if err != nil {
		return nil, noNamespace(name, err)
	}
	out := namespaceToProto(r)
	if out.Queues, err = s.countQueues(ctx, name, 0); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// ListNamespaces answers a page of those with limits, in order of name. The page token is a name.
func (s *service) ListNamespaces(ctx context.Context, req *connect.Request[pb.ListNamespacesRequest]) (*connect.Response[pb.ListNamespacesResponse], error) {
	if err := checkPrefix("page token", req.Msg.GetAfter()); err != nil {
		return nil, err
	}
	limit, err := pageLimit(req.Msg.GetLimit())
	if err != nil {
		return nil, err
	}
	rows, more, err := s.meta.List(ctx, metadata.Namespaces, metadata.PartitionID, req.Msg.GetAfter(), limit, metadata.One)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "list namespaces: %w", err)
	}
	out := &pb.ListNamespacesResponse{}
	for _, row := range rows {
		r, err := metadata.Decode[metadata.NamespaceRecord](metadata.Namespaces, row)
		if err != nil {
			return nil, err
		}
		out.Namespaces = append(out.Namespaces, namespaceToProto(r))
	}
	if more && len(rows) > 0 {
		out.Next = rows[len(rows)-1].Key.Row
	}
	return connect.NewResponse(out), nil
}

// UpdateNamespace changes the limits that are named, or if none is those that are set. Input hosts follow within
// seconds.
func (s *service) UpdateNamespace(ctx context.Context, req *connect.Request[pb.UpdateNamespaceRequest]) (*connect.Response[pb.Namespace], error) {
	to, err := namespaceSpec(req.Msg.GetSpec())
	if err != nil {
		return nil, err
	}
	f := fields(req.Msg.GetFields())
	if err := f.check("max_queues", "messages_per_second", "bytes_per_second", "backlog_bytes"); err != nil {
		return nil, err
	}
	ended, err := s.audit(ctx, req.Peer().Addr, "update namespace", to.Name)
	if err != nil {
		return nil, err
	}
	r, err := metadata.Change(ctx, s.meta, metadata.Namespaces, metadata.NamespaceKey(to.Name), func(r *metadata.NamespaceRecord) error {
		change(f, "max_queues", &r.Spec.MaxQueues, to.MaxQueues)
		change(f, "messages_per_second", &r.Spec.MessagesPerSecond, to.MessagesPerSecond)
		change(f, "bytes_per_second", &r.Spec.BytesPerSecond, to.BytesPerSecond)
		change(f, "backlog_bytes", &r.Spec.BacklogBytes, to.BacklogBytes)
		return r.Spec.Validate()
	})
	ended(ctx, err)
	if err != nil {
		return nil, noNamespace(to.Name, err)
	}
	return connect.NewResponse(namespaceToProto(r)), nil
}

// DeleteNamespace deletes the limits of a namespace. Its queues stay, without limits.
func (s *service) DeleteNamespace(ctx context.Context, req *connect.Request[pb.DeleteNamespaceRequest]) (*connect.Response[pb.DeleteNamespaceResponse], error) {
	name, err := core.ParseNamespace(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	ended, err := s.audit(ctx, req.Peer().Addr, "delete namespace", name)
	if err != nil {
		return nil, err
	}
	key := metadata.NamespaceKey(name)
	for range maxTries {
		var version metadata.Version
		if _, version, err = metadata.Read[metadata.NamespaceRecord](ctx, s.meta, metadata.Namespaces, key, metadata.Serial); err != nil {
			break
		}
		if err = metadata.Delete(ctx, s.meta, metadata.Namespaces, key, version); core.CodeOf(err) != core.CodeConflict { // else it was updated meanwhile
			break
		}
	}
	ended(ctx, err)
	if err != nil {
		return nil, noNamespace(name, err)
	}
	return connect.NewResponse(&pb.DeleteNamespaceResponse{}), nil
}

func namespaceSpec(p *pb.NamespaceSpec) (core.NamespaceSpec, error) {
	spec := convert.NamespaceSpec(p)
	if _, err := core.ParseNamespace(spec.Name); err != nil {
		return spec, err
	}
	return spec, spec.Validate()
}

func namespaceToProto(r metadata.NamespaceRecord) *pb.Namespace {
	return &pb.Namespace{Spec: convert.NamespaceSpecToProto(r.Spec), Created: convert.Time(r.Created)}
}

func noNamespace(name string, err error) error {
	if core.CodeOf(err) == core.CodeNotFound {
		return core.Errorf(core.CodeNotFound, "namespace %s has no limits; give it some with: columba create namespace %s", name, name)
	}
	return err
}
