package cli

import (
	"context"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
)

// ListAudit answers what begins with the prefix, an entry a page.
func (s *fakeServer) ListAudit(_ context.Context, r *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	entries := []*pb.AuditEntry{
		{When: fakeTime, Who: "127.0.0.1:40522", What: "create namespace", Object: "/demo", Result: "ok"},
		{When: fakeTime, Who: "controller host-a", What: "retention: delete 7 messages unconsumed", Object: fakeExtent, Result: "ok"},
		{When: fakeTime, Who: "127.0.0.1:40523", What: "purge dead letters\x1b[31m", Object: "/demo/a/billing.dlq", Result: "not_found"},
	}
	n, _ := strconv.Atoi(r.Msg.After)
	res := &pb.ListAuditResponse{}
	if e := entries[n]; strings.HasPrefix(e.Object, r.Msg.Prefix) && (r.Msg.Since == nil || !e.When.AsTime().Before(r.Msg.Since.AsTime())) {
		res.Entries = append(res.Entries, e)
	}
	if n+1 < len(entries) {
		res.Next = strconv.Itoa(n + 1)
	}
	return connect.NewResponse(res), nil
}
