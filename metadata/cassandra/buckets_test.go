package cassandra

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// shelf is a session with the put rows of one partition.
type shelf struct {
	script
	rows     map[string][]byte
	order    []string // of rows, once they are listed
	requests int
	largest  int // bytes of one answer
}

func (s *shelf) read(_ context.Context, _ gocql.Consistency, page int, list statement, each func(gocql.Scanner) (bool, error)) error {
	after, in, limit := string(list.args[2].([]byte)), list.args[3].([]int), list.args[4].(int)
	s.requests++
	if page != 0 || !strings.Contains(list.text, "IN") {
		return fmt.Errorf("buckets are read one after the other")
	}
	count, size := map[int]int{}, 0
	from, _ := slices.BinarySearch(s.order, after+"\x00")
	for _, row := range s.order[from:] {
		bucket := rowBucket(metadata.Extents, row)
		if count[bucket] == limit || !slices.Contains(in, bucket) {
			continue
		}
		count[bucket]++
		size += len(s.rows[row])
		if _, err := each(putCells{bucket, row, s.rows[row]}); err != nil {
			return err
		}
	}
	s.largest = max(s.largest, size)
	return nil
}

type putCells struct {
	bucket int
	row    string
	value  []byte
}

func (c putCells) Next() bool { return false }
func (c putCells) Err() error { return nil }
func (c putCells) Scan(to ...any) error {
	*to[0].(*int), *to[1].(*[]byte), *to[2].(*[]byte), *to[3].(*int64) = c.bucket, []byte(c.row), c.value, 1
	return nil
}

// listed reads all pages and checks that their rows are those of the shelf, in order.
func (s *shelf) listed(t *testing.T, limit int) (pages int) {
	t.Helper()
	s.order = slices.Sorted(maps.Keys(s.rows))
	store := newStore(s, Config{Keyspace: "k"})
	defer store.Close()
	var got []string
	for after, more := "", true; more; pages++ {
		var rows []metadata.Row
		var err error
		if rows, more, err = store.List(t.Context(), metadata.Extents, "q", after, limit, metadata.Quorum); err != nil {
			t.Fatal(err)
		}
		if len(rows) > limit || more && len(rows) == 0 {
			t.Fatalf("a page of %d has %d rows, more %v", limit, len(rows), more)
		}
		for _, r := range rows {
			after = r.Key.Row
			got = append(got, after)
		}
	}
	if !slices.Equal(got, s.order) {
		t.Fatalf("pages of %d: %d rows, want %d in order", limit, len(got), len(s.order))
	}
	return pages
}

// Rows of all buckets come in their order, page by page.
func TestListBuckets(t *testing.T) {
	die := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 2, 10, 100, 300} {
		s := &shelf{rows: map[string][]byte{}}
		for range n {
			s.rows[fmt.Sprintf("%03x/%d", die.IntN(300), die.IntN(1000))] = nil // many rows of some extents are in one bucket
		}
		for _, limit := range []int{1, 2, 7, 100, 1000} {
			s.listed(t, limit)
		}
	}
}

// A listing of few rows is one request, and one of many takes few. Large rows are read in small parts.
func TestListBuckets_Requests(t *testing.T) {
	for _, test := range []struct {
		rows, size, limit int
		most              int // requests
	}{
		{0, 0, 500, 1}, {1, 1000, 500, 1}, {40, 1000, 500, 1}, {100, 1000, 500, 2}, {500, 1000, 500, 2},
		{3000, 1000, 500, 15}, {1, 1000, 5, 1}, {500, 1000, 5, 110}, {300, metadata.MaxValue, 500, 60},
	} {
		s := &shelf{rows: map[string][]byte{}}
		value := make([]byte, test.size)
		for i := range test.rows {
			s.rows[core.ID{byte(i >> 8), byte(i)}.String()] = value
		}
		pages := s.listed(t, test.limit)
		if s.requests > test.most || s.largest > 33<<20 {
			t.Errorf("%d rows of %d bytes: %d requests for %d pages, one of %d bytes", test.rows, test.size, s.requests, pages, s.largest)
		}
		t.Logf("%d rows of %d bytes by %d: %d requests for %d pages, at most %d KiB", test.rows, test.size, test.limit, s.requests, pages, s.largest>>10)
	}
}

func TestNextPerBucket(t *testing.T) {
	for _, test := range []struct{ want, largest, next int }{
		{1, 0, 1}, {3, 100, 3}, {100, 1000, 32}, {1000, 1000, 64}, {1000, 0, 64}, {1000, 256 << 10, 4}, {1000, 64 << 20, 1},
	} {
		if got := nextPerBucket(test.want, test.largest); got != test.next {
			t.Errorf("%d wanted of up to %d bytes: %d of each bucket, want %d", test.want, test.largest, got, test.next)
		}
	}
}

// On a real node: rows of all buckets come in the order of their bytes, for each size of a page, and only those of
// their partition.
func TestStore_ListBuckets(t *testing.T) {
	s := open(t)
	defer s.Close()
	want := []string{"\x01", "/", "/a", "/a/b", "/a\x01", "0", "10", "9", "A", "a", "a/1", "a/10", "a/2", "a\xff", "b", "é"}
	for range 40 {
		want = append(want, core.NewID(time.Now()).String())
	}
	slices.Sort(want)
	var rows []metadata.Row
	for _, row := range want {
		for _, partition := range []string{"q", "other"} {
			rows = append(rows, metadata.Row{Key: metadata.Key{Partition: partition, Row: row}, Value: []byte(partition + row), Written: time.Unix(1, 0)})
		}
	}
	if err := s.PutAll(t.Context(), metadata.Extents, rows, metadata.Quorum); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{1, 2, 7, 50, 55, 56, 57, 1000} {
		var got []string
		for after, more := "", true; more; {
			var page []metadata.Row
			var err error
			if page, more, err = s.List(t.Context(), metadata.Extents, "q", after, limit, metadata.Quorum); err != nil || len(page) > limit {
				t.Fatalf("a page of %d has %d rows, %v", limit, len(page), err)
			}
			for _, r := range page {
				after = r.Key.Row
				got = append(got, after)
				if string(r.Value) != "q"+after || !r.Written.Equal(time.Unix(1, 0)) {
					t.Errorf("row %q holds %q, written at %s", after, r.Value, r.Written)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
}
