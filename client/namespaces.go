package client

import (
	"context"
	"iter"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// Namespace is the limits of the queues whose paths begin with its label, as they are recorded.
type Namespace struct {
	Spec    core.NamespaceSpec
	Created time.Time
	Queues  int64 // that it has; set by GetNamespace only
}

// CreateNamespace gives a namespace limits. A limit of zero means no limit. ErrExists if the namespace has limits.
func (a *Admin) CreateNamespace(ctx context.Context, spec core.NamespaceSpec) (Namespace, error) {
	return namespaceOf(change(ctx, a.c, a.c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: convert.NamespaceSpecToProto(spec)}))
}

// GetNamespace returns the limits of a namespace like /acme; ErrNotFound if it has none.
func (a *Admin) GetNamespace(ctx context.Context, name string) (Namespace, error) {
	return namespaceOf(read(ctx, a.c, a.c.admin.GetNamespace, &pb.GetNamespaceRequest{Name: name}))
}

// ListNamespaces yields the namespaces with limits, in order of name.
func (a *Admin) ListNamespaces(ctx context.Context) iter.Seq2[Namespace, error] {
	return pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.Namespace, string, error) {
		res, err := read(ctx, a.c, a.c.admin.ListNamespaces, &pb.ListNamespacesRequest{After: after})
		return res.GetNamespaces(), res.GetNext(), err
	}, func(p *pb.Namespace) (Namespace, error) { return namespaceOf(p, nil) })
}

// UpdateNamespace changes the limits of spec that fields names (like "max_queues"); zero means no limit. Without fields
// it changes the limits that are not zero.
func (a *Admin) UpdateNamespace(ctx context.Context, spec core.NamespaceSpec, fields ...string) (Namespace, error) {
	return namespaceOf(change(ctx, a.c, a.c.admin.UpdateNamespace, &pb.UpdateNamespaceRequest{Spec: convert.NamespaceSpecToProto(spec), Fields: fields}))
}

// DeleteNamespace deletes the limits; the queues stay.
func (a *Admin) DeleteNamespace(ctx context.Context, name string) error {
	_, err := change(ctx, a.c, a.c.admin.DeleteNamespace, &pb.DeleteNamespaceRequest{Name: name})
	return err
}

func namespaceOf(p *pb.Namespace, err error) (Namespace, error) {
	if err != nil {
		return Namespace{}, err
	}
	return Namespace{Spec: convert.NamespaceSpec(p.GetSpec()), Created: timeFromProto(p.GetCreated()), Queues: p.GetQueues()}, nil
}
