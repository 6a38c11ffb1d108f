package controller

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// audited are the entries of today.
func audited(r *harness) (out []metadata.AuditRecord) {
	r.t.Helper()
	for a, err := range metadata.All[metadata.AuditRecord](r.t.Context(), r.meta, metadata.Audit, metadata.AuditPartition(time.Now()), metadata.One) {
		r.ok(err)
		out = append(out, a.Value)
	}
	return out
}

// TestAudit_ForcedSeal: a frontend makes the call, and the audit names the operator who asked the frontend.
func TestAudit_ForcedSeal(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		e := r.extent(r.queue(2, 2), 5)
		req := &pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Force: true, Reason: "operator", Who: "10.0.0.7:5"}
		_, err := (&service{r.ctl.Host}).SealExtent(r.t.Context(), connect.NewRequest(req))
		r.ok(err)
		if got := audited(r); len(got) != 1 || got[0].Who != "10.0.0.7:5" || got[0].Object != e.ID.String() {
			t.Errorf("audited %+v, want an entry with the operator", got)
		}
	})
}

// TestAudit_Seek names the group by its path, by which entries are looked for; a queue without a record by its id.
func TestAudit_Seek(t *testing.T) {
	bubble(t, harnessOptions{stores: 2}, func(r *harness) {
		known, unknown := r.queue(2, 2), core.QueueID{ID: core.NewID(time.Now())}
		g := r.group(known, "g")
		for queue, want := range map[core.QueueID]string{known: "/t/" + known.String() + "/g", unknown: unknown.String() + "/g"} {
			before := len(audited(r))
			req := &pb.RewindGroupRequest{Queue: queue.ID[:], Group: "g", Id: g.ID[:], To: "earliest", Who: "10.0.0.7:5"}
			_, err := (&service{r.ctl.Host}).RewindGroup(r.t.Context(), connect.NewRequest(req))
			if known := queue == known; (err == nil) != known {
				t.Errorf("seek of %s: %v", queue, err)
			}
			got := audited(r)
			if len(got) != before+1 || !hasObject(got, want) {
				t.Errorf("audited %+v, want %s", got, want)
			}
		}
	})
}

func hasObject(entries []metadata.AuditRecord, object string) bool {
	for _, a := range entries {
		if a.Object == object && a.Who == "10.0.0.7:5" {
			return true
		}
	}
	return false
}
