package metadata

import (
	"context"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
)

// AuditTTL is how long audit rows are kept.
const AuditTTL = 30 * 24 * time.Hour

// Bounds of one page of ListAudit.
const (
	auditRows  = 5000    // rows it reads
	auditBytes = 1 << 20 // of the values it answers; the last row may go beyond
)

const auditDay = 24 * time.Hour // rows of one partition

// AuditRecord says who changed what, when, and how it ended.
type AuditRecord struct {
	Who    string    `json:"who"`
	What   string    `json:"what"`   // the call
	Object string    `json:"object"` // a path or an id
	When   time.Time `json:"when"`
	Result string    `json:"result"` // "ok" or the error's code
}

// BeginAudit records a requested change, with the result "asked", before it is made. On an error the caller must not
// make the change. The returned function records the result; its error says that the result is not recorded.
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

// AuditQuery selects audit rows.
type AuditQuery struct {
	Prefix string    // the object begins with it; "" = all objects
	Since  time.Time // the earliest When; zero = all that is kept
	After  Key       // the row before the first; zero = from the beginning
	Limit  int       // rows of a page, above 0
}

// ListAudit reads one page of the audit rows that q selects, in the order in which they were begun. next is the After
// of the page that follows; it is zero when no row is left. A call reads at most 5,000 rows and about 1 MiB of them, so
// a page may be short, or empty, though another one follows. Errors are those of Store.List, and CodeCorrupt.
func ListAudit(ctx context.Context, s Store, q AuditQuery, now time.Time, c Consistency) (records []AuditRecord, next Key, err error) {
	at, after := q.begin(now)
	last := AuditPartition(now.Add(auditDay)) // the clock of another host may be ahead
	read, size := 0, 0
	for ; AuditPartition(at) <= last; at, after = at.Add(auditDay), "" {
		for more := true; more; {
			var rows []Row
			if rows, more, err = s.List(ctx, Audit, AuditPartition(at), after, listPage, c); err != nil {
				return nil, Key{}, err
			}
			for _, row := range rows {
				if len(records) == q.Limit || read == auditRows || size >= auditBytes {
					return records, Key{AuditPartition(at), after}, nil
				}
				r, err := decode[AuditRecord](Audit, row)
				if err != nil {
					return nil, Key{}, err
				}
				after, read = row.Key.Row, read+1
				if !r.When.Before(q.Since) && strings.HasPrefix(r.Object, q.Prefix) {
					records, size = append(records, r), size+len(row.Value)
				}
			}
			more = more && len(rows) > 0
		}
	}
	return records, Key{}, nil
}

// begin is the day with which a listing begins, and the row of that day before its first. Rows older than the TTL are
// not looked for.
func (q AuditQuery) begin(now time.Time) (day time.Time, after string) {
	from := now.Add(-AuditTTL - auditDay) // the end of a change is written later than its beginning and lives longer
	if q.Since.After(from) {
		from = q.Since
	}
	first := core.NewID(from)
	clear(first[6:]) // what follows the time: no row of that millisecond is before it
	after = first.String()
	if q.After.Partition >= AuditPartition(from) {
		if day, err := time.Parse(time.DateOnly, q.After.Partition); err == nil {
			return day, q.After.Row
		}
	}
	return from, after
}
