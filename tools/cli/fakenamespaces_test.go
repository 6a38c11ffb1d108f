package cli

import (
	"context"
	"maps"
	"slices"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func (s *fakeServer) namespace(name string) (*pb.Namespace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.namespaces[name]; n != nil {
		return n, nil
	}
	return nil, fail(core.CodeNotFound, "namespace %s has no limits; give it some with: columba create namespace %s", name, name)
}

func (s *fakeServer) CreateNamespace(_ context.Context, r *connect.Request[pb.CreateNamespaceRequest]) (*connect.Response[pb.Namespace], error) {
	name := r.Msg.Spec.Name
	if _, err := s.namespace(name); err == nil {
		return nil, fail(core.CodeExists, "namespace %s has limits; change them with: columba update namespace %s", name, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &pb.Namespace{Spec: r.Msg.Spec, Created: fakeTime}
	s.namespaces[name] = n
	return connect.NewResponse(n), nil
}

func (s *fakeServer) GetNamespace(_ context.Context, r *connect.Request[pb.GetNamespaceRequest]) (*connect.Response[pb.Namespace], error) {
	n, err := s.namespace(r.Msg.Name)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.Namespace{Spec: n.Spec, Created: n.Created, Queues: 7}), nil
}

func (s *fakeServer) ListNamespaces(_ context.Context, r *connect.Request[pb.ListNamespacesRequest]) (*connect.Response[pb.ListNamespacesResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res := &pb.ListNamespacesResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		if name > r.Msg.After {
			if len(res.Namespaces) == 1 {
				res.Next = res.Namespaces[0].Spec.Name
				break
			}
			res.Namespaces = append(res.Namespaces, s.namespaces[name])
		}
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) UpdateNamespace(_ context.Context, r *connect.Request[pb.UpdateNamespaceRequest]) (*connect.Response[pb.Namespace], error) {
	n, err := s.namespace(r.Msg.Spec.Name)
	if err != nil {
		return nil, err
	}
	if slices.Contains(r.Msg.Fields, "messages_per_second") {
		n.Spec.MessagesPerSecond = r.Msg.Spec.MessagesPerSecond
	}
	return connect.NewResponse(n), nil
}

func (s *fakeServer) DeleteNamespace(_ context.Context, r *connect.Request[pb.DeleteNamespaceRequest]) (*connect.Response[pb.DeleteNamespaceResponse], error) {
	if _, err := s.namespace(r.Msg.Name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.namespaces, r.Msg.Name)
	return connect.NewResponse(&pb.DeleteNamespaceResponse{}), nil
}
