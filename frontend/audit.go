package frontend

import (
	"context"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// maxAuditPrefix is the longest prefix of an object, in bytes. No object has a longer name.
const maxAuditPrefix = 512

// ListAudit answers a page of the audit, oldest first. The page token is the day and the id of an entry.
func (s *service) ListAudit(ctx context.Context, req *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	m := req.Msg
	limit, err := pageLimit(m.GetLimit())
	if err != nil {
		return nil, err
	}
	if n := len(m.GetPrefix()); n > maxAuditPrefix {
		return nil, core.Errorf(core.CodeBadArgument, "prefix has %d bytes; at most %d are allowed", n, maxAuditPrefix)
	}
	q := metadata.AuditQuery{Prefix: m.GetPrefix(), Limit: limit}
	if q.After, err = auditToken(m.GetAfter()); err != nil {
		return nil, err
	}
	if since := m.GetSince(); since != nil {
		if err := since.CheckValid(); err != nil {
			return nil, core.Errorf(core.CodeBadArgument, "since is not a time: %w", err)
		}
		q.Since = since.AsTime()
	}
	records, next, err := metadata.ListAudit(ctx, s.meta, q, s.now(), metadata.Quorum)
	if err != nil {
		return nil, core.Errorf(core.CodeOf(err), "list the audit: %w", err)
	}
	out := &pb.ListAuditResponse{}
	for _, r := range records {
		out.Entries = append(out.Entries, auditToProto(r))
	}
	if next != (metadata.Key{}) {
		out.Next = next.Partition + "/" + next.Row
	}
	return connect.NewResponse(out), nil
}

// auditToken reads a page token; "" is the zero key.
func auditToken(token string) (metadata.Key, error) {
	if token == "" {
		return metadata.Key{}, nil
	}
	day, row, _ := strings.Cut(token, "/")
	at, err := time.Parse(time.DateOnly, day)
	if err == nil {
		var id core.ID
		if id, err = core.ParseID(row); err == nil {
			return metadata.AuditKey(at, id), nil
		}
	}
	return metadata.Key{}, core.Errorf(core.CodeBadArgument, "the page token is not one that this list has returned; leave it out to begin with the first page")
}

func auditToProto(r metadata.AuditRecord) *pb.AuditEntry {
	return &pb.AuditEntry{When: convert.Time(r.When), Who: r.Who, What: r.What, Object: r.Object, Result: r.Result}
}

// audit records who asks for a change of a namespace, a queue or a group, before it is made; the function it answers
// records how it ended.
func (s *service) audit(ctx context.Context, who, what, object string) (ended func(context.Context, error), err error) {
	record, err := metadata.BeginAudit(ctx, s.meta, who, what, object, s.now)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, err error) {
		if err := record(ctx, err); err != nil {
			s.log.Warn("the result of a change is not recorded in the audit", "what", what, "object", object, "err", err)
		}
	}, nil
}

// logDeletion logs that a queue or group was deleted, or that this failed.
func (s *service) logDeletion(who, what, object string, err error) {
	attrs := []any{"who", who, "what", what, "object", object}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	s.log.Info("an operator changes the cluster", attrs...)
}

// auditedUpdate has the changes of an update: the fields that it names, or those that its spec sets when it names none.
// The path and name of the spec are not among them.
func auditedUpdate(what string, spec proto.Message, names []string) string {
	if len(names) == 0 {
		spec.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			if name := string(field.Name()); name != "path" && name != "queue" && name != "name" {
				names = append(names, name)
			}
			return true
		})
		slices.Sort(names) // Range has no order
	}
	return what + ": " + strings.Join(names, ", ")
}
