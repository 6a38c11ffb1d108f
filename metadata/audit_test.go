package metadata_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// pageCounter counts the pages that a listing reads.
type pageCounter struct {
	metadata.Store
	pages int
}

func (p *pageCounter) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	p.pages++
	return p.Store.List(ctx, t, partition, after, limit, c)
}

// writeAudit writes an entry that was begun at that time.
func writeAudit(t *testing.T, s metadata.Store, at time.Time, object string) {
	t.Helper()
	r := metadata.AuditRecord{Who: "me", What: "test", Object: object, When: at, Result: "ok"}
	if err := metadata.Write(t.Context(), s, metadata.Audit, metadata.AuditKey(at, core.NewID(at)), r, at, 0, metadata.Quorum); err != nil {
		t.Fatal(err)
	}
}

// listAudit walks all pages and is the objects of each.
func listAudit(t *testing.T, s metadata.Store, q metadata.AuditQuery, now time.Time) (pages [][]string) {
	t.Helper()
	for range 100 {
		records, next, err := metadata.ListAudit(t.Context(), s, q, now, metadata.One)
		if err != nil {
			t.Fatal(err)
		}
		page := []string{}
		for _, r := range records {
			page = append(page, r.Object)
		}
		pages = append(pages, page)
		if next == (metadata.Key{}) {
			return pages
		}
		if next == q.After {
			t.Fatalf("the page after %v is itself", next)
		}
		q.After = next
	}
	t.Fatal("the listing does not end")
	return nil
}

func TestListAudit(t *testing.T) {
	s, now := memory.New(), time.Date(2026, 3, 2, 0, 0, 1, 0, time.UTC)
	for _, e := range []struct {
		ago    time.Duration
		object string
	}{
		{29*24*time.Hour + 23*time.Hour, "/a/oldest"}, {48 * time.Hour, "/a/two"}, {2 * time.Second, "/b/yesterday"}, {time.Second, "/a/midnight"}, {0, "/a/now"},
		{-time.Minute, "/a/ahead"},
	} {
		writeAudit(t, s, now.Add(-e.ago), e.object)
	}
	for name, c := range map[string]struct {
		q    metadata.AuditQuery
		want [][]string
	}{
		"all":            {metadata.AuditQuery{Limit: 9}, [][]string{{"/a/oldest", "/a/two", "/b/yesterday", "/a/midnight", "/a/now", "/a/ahead"}}},
		"exactly a page": {metadata.AuditQuery{Limit: 6}, [][]string{{"/a/oldest", "/a/two", "/b/yesterday", "/a/midnight", "/a/now", "/a/ahead"}}},
		"pages":          {metadata.AuditQuery{Limit: 4}, [][]string{{"/a/oldest", "/a/two", "/b/yesterday", "/a/midnight"}, {"/a/now", "/a/ahead"}}},
		"prefix":         {metadata.AuditQuery{Prefix: "/b", Limit: 9}, [][]string{{"/b/yesterday"}}},
		"since":          {metadata.AuditQuery{Since: now.Add(-time.Second), Limit: 9}, [][]string{{"/a/midnight", "/a/now", "/a/ahead"}}},
		"just after":     {metadata.AuditQuery{Since: now.Add(-time.Second + 1), Limit: 1}, [][]string{{"/a/now"}, {"/a/ahead"}}},
		"in the future":  {metadata.AuditQuery{Since: now.AddDate(1, 0, 0), Limit: 9}, [][]string{{}}},
		"after the last": {metadata.AuditQuery{After: metadata.Key{Partition: "2027-01-01", Row: "x"}, Limit: 9}, [][]string{{}}},
		"after the TTL":  {metadata.AuditQuery{After: metadata.Key{Partition: "1970-01-01", Row: "x"}, Limit: 9, Prefix: "/a/o"}, [][]string{{"/a/oldest"}}},
	} {
		if diff := cmp.Diff(c.want, listAudit(t, s, c.q, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestListAudit_Bounds reads no more than 5,000 rows for a page, whatever it finds.
func TestListAudit_Bounds(t *testing.T) {
	mem, now := memory.New(), time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for i := range 5001 {
		writeAudit(t, mem, now.Add(-time.Hour), fmt.Sprint("/many/", i))
	}
	writeAudit(t, mem, now, "/one")
	if diff := cmp.Diff([][]string{{}, {"/one"}}, listAudit(t, mem, metadata.AuditQuery{Prefix: "/one", Limit: 9}, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s := &pageCounter{Store: mem}
	listAudit(t, s, metadata.AuditQuery{Since: now.AddDate(-50, 0, 0), Prefix: "/one", Limit: 9}, now)
	if s.pages > 60 { // 33 days, and the rows of one in pages of 500, twice
		t.Errorf("since fifty years ago %d pages are read", s.pages)
	}
	large := strings.Repeat("x", 200<<10)
	for range 7 {
		writeAudit(t, mem, now, "/large"+large)
	}
	for i, page := range listAudit(t, mem, metadata.AuditQuery{Prefix: "/large", Since: now, Limit: 9}, now) {
		if len(page) > 6 {
			t.Errorf("page %d has %d entries of 200 KiB", i, len(page))
		}
	}
}
