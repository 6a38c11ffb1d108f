package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// AuditTTL is how long audit rows are kept.
const AuditTTL = 30 * 24 * time.Hour

// AuditRecord says who changed what, when, and how it ended.
type AuditRecord struct {
	Who    string    `json:"who"`
	What   string    `json:"what"`   // the call
	Object string    `json:"object"` // a path or an id
	When   time.Time `json:"when"`
	Result string    `json:"result"` // "ok" or the error's code
}

// BeginAudit records what somebody asked for, with the result "asked", before it is done: what cannot be recorded is not done. The function it
// answers records how it ended; its error is that this is not recorded.
func BeginAudit(ctx context.Context, s Store, who, what, object string, clock func() time.Time) (ended func(ctx context.Context, err error) error, err error) {
	now := clock()
	key := AuditKey(now, core.NewID(now))
	r := AuditRecord{Who: who, What: what, Object: object, When: now, Result: "asked"}
	if err := Write(ctx, s, Audit, key, r, now, AuditTTL, Quorum); err != nil {
		return nil, core.Errorf(core.CodeOf(err), "record who asked for it: %w", err)
	}
	return func(ctx context.Context, err error) error {
		r.Result = "ok"
		if err != nil {
			r.Result = string(core.CodeOf(err))
		}
		at := clock()
		if !at.After(now) {
			at = now.Add(Tick)
		}
		return Write(context.WithoutCancel(ctx), s, Audit, key, r, at, AuditTTL, Quorum)
	}, nil
}
