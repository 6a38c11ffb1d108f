package client

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
)

var auditTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ListAudit answers one entry, after an empty page.
func (f *adminFake) ListAudit(_ context.Context, r *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	f.got = [2]any{r.Msg.Prefix, r.Msg.Since == nil}
	if r.Msg.After == "" {
		return connect.NewResponse(&pb.ListAuditResponse{Next: "next"}), nil
	}
	return connect.NewResponse(&pb.ListAuditResponse{Entries: []*pb.AuditEntry{
		{When: convert.Time(auditTime), Who: "127.0.0.1:1", What: "delete namespace", Object: "/t", Result: "ok"},
	}}), nil
}

func TestAdmin_ListAudit(t *testing.T) {
	f := &adminFake{}
	a := startAdmin(t, f).Admin()
	for since, unset := range map[time.Time]bool{{}: true, auditTime: false} {
		var got []AuditEntry
		for e, err := range a.ListAudit(limited(t), "/t", since) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		want := []AuditEntry{{When: auditTime, Who: "127.0.0.1:1", What: "delete namespace", Object: "/t", Result: "ok"}}
		if diff := cmp.Diff(want, got); diff != "" || f.got != [2]any{"/t", unset} {
			t.Errorf("asked %v (-want +got):\n%s", f.got, diff)
		}
	}
}
