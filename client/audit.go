package client

import (
	"context"
	"iter"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
)

// AuditEntry is a change that the audit has recorded.
type AuditEntry struct {
	When   time.Time // the change was asked for
	Who    string    // address of the caller, or "controller HOST"
	What   string    // the change
	Object string    // a path or an id
	Result string    // "ok", the code of an error, or "asked": the change is under way or its end is not known
}

// ListAudit yields the changes that the audit has recorded, oldest first: those of objects that begin with prefix ("" =
// all, at most 512 bytes), since that time (zero = all that is kept). An entry is kept for 30 days.
func (a *Admin) ListAudit(ctx context.Context, prefix string, since time.Time) iter.Seq2[AuditEntry, error] {
	return pages(ctx, a.c, func(ctx context.Context, after string) ([]*pb.AuditEntry, string, error) {
		res, err := read(ctx, a.c, a.c.admin.ListAudit, &pb.ListAuditRequest{Prefix: prefix, Since: convert.Time(since), After: after})
		return res.GetEntries(), res.GetNext(), err
	}, func(p *pb.AuditEntry) (AuditEntry, error) {
		return AuditEntry{When: timeFromProto(p.GetWhen()), Who: p.GetWho(), What: p.GetWhat(), Object: p.GetObject(), Result: p.GetResult()}, nil
	})
}
