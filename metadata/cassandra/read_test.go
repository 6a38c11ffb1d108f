package cassandra

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Many rows are read side by side, in bounds, and not after one read has failed. A request reads rows of one partition;
// a Paxos read is of one row.
func TestStore_GetRowsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		fail := int64(0)
		s := scripted(&script{onRead: func() error {
			n := reads.Add(1)
			<-time.After(time.Second)
			if n == fail {
				return errUnavailable
			}
			return nil
		}})
		defer s.Close()
		var keys []metadata.Key
		for i := range 140 {
			keys = append(keys, metadata.Key{Partition: "id", Row: fmt.Sprint(i)})
		}
		for _, test := range []struct {
			c     metadata.Consistency
			reads int64
			took  time.Duration
			fails int64
			most  int64
		}{
			{metadata.One, 9, 3 * time.Second, 2, 8},
			{metadata.Quorum, 9, 3 * time.Second, 6, 9},
			{metadata.Serial, 140, 9 * time.Second, 20, 48},
		} {
			reads.Store(0)
			fail = 0
			began := time.Now()
			rows, err := s.GetRows(t.Context(), metadata.Seals, keys, test.c)
			if took := time.Since(began); err != nil || len(rows) != 0 || reads.Load() != test.reads || took != test.took {
				t.Errorf("consistency %d: %d rows, %v, %d reads in %s; want %d in %s", test.c, len(rows), err, reads.Load(), took, test.reads, test.took)
			}
			reads.Store(0)
			fail = test.fails
			if _, err := s.GetRows(t.Context(), metadata.Seals, keys, test.c); core.CodeOf(err) != core.CodeUnavailable || reads.Load() > test.most {
				t.Errorf("consistency %d: %v after %d reads, want it to end when one has failed", test.c, err, reads.Load())
			}
		}
	})
}

// Rows of partitions of their own, as the groups of many queues, are read as many at once as before.
func TestStore_GetRowsOfManyPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(&script{onRead: func() error {
			<-time.After(time.Second)
			return nil
		}})
		defer s.Close()
		var keys []metadata.Key
		for i := range 2 * atOnce {
			keys = append(keys, metadata.Key{Partition: fmt.Sprint(i), Row: "g"})
		}
		began := time.Now()
		if _, err := s.GetRows(t.Context(), metadata.Groups, keys, metadata.One); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %s; want %d rows in two times a second", err, time.Since(began), len(keys))
		}
	})
}

// Of several requests one times out. The call ends with its error, whatever those say that end for it.
func TestStore_GetRowsOfWhichSomeTimeOut(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code core.Code
		text string
	}{
		"replicas that do not answer": {&gocql.RequestErrReadTimeout{Received: 1, BlockFor: 2}, core.CodeUnavailable, startNodes},
		"a client's timeout":          {gocql.ErrTimeoutNoResponse, core.CodeUnavailable, "no response"},
		"a node that is overloaded":   {answer(gocql.ErrCodeOverloaded), core.CodeUnavailable, "answer"},
		"a request that is refused":   {answer(gocql.ErrCodeInvalid), core.CodeInternal, "refuses to read"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads atomic.Int64
				s := scripted(&script{onRead: func() error {
					if reads.Add(1) == 2 {
						<-time.After(time.Second)
						return test.err
					}
					return nil
				}})
				defer s.Close()
				var keys []metadata.Key
				for i := range 3 * rowsTogether {
					keys = append(keys, metadata.Key{Partition: "id", Row: fmt.Sprint(i)})
				}
				rows, err := s.GetRows(t.Context(), metadata.Seals, keys, metadata.Quorum)
				if rows != nil || core.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.text) {
					t.Errorf("%d rows, %v; want %s with %q", len(rows), err, test.code, test.text)
				}
			})
		})
	}
}

// TestTogether: a request has keys of one partition, and no more than an answer may hold.
func TestTogether(t *testing.T) {
	keys := func(runs ...int) (all []metadata.Key) {
		for i, n := range runs {
			for range n {
				all = append(all, metadata.Key{Partition: fmt.Sprint(i)})
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		keys []metadata.Key
		want []part
	}{
		"none":                {nil, nil},
		"one":                 {keys(1), []part{{0, 1}}},
		"as many as may be":   {keys(rowsTogether), []part{{0, rowsTogether}}},
		"one more":            {keys(rowsTogether + 1), []part{{0, rowsTogether}, {rowsTogether, rowsTogether + 1}}},
		"several partitions":  {keys(2, 1, 3), []part{{0, 2}, {2, 3}, {3, 6}}},
		"rows of one, bounds": {keys(3, 2*rowsTogether), []part{{0, 3}, {3, 3 + rowsTogether}, {3 + rowsTogether, 3 + 2*rowsTogether}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := together(test.keys); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Rows of the largest size are read together, and listed. A row that was deleted and one that never was are left out.
func TestStore_LargeRowsTogether(t *testing.T) {
	s, ctx := open(t), t.Context()
	defer s.Close()
	value := bytes.Repeat([]byte("x"), metadata.MaxValue)
	var keys, want []metadata.Key
	for i := range rowsAtOnce {
		k := metadata.Key{Partition: "id", Row: fmt.Sprintf("%02d", i)}
		keys = append(keys, k)
		if i == 7 {
			continue
		}
		if err := s.Insert(ctx, metadata.Names, k, value); err != nil {
			t.Fatal(err)
		}
		if i != 20 {
			want = append(want, k)
			continue
		}
		row, err := s.Get(ctx, metadata.Names, k, metadata.Serial)
		if err == nil {
			err = s.Delete(ctx, metadata.Names, k, row.Version)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []metadata.Consistency{metadata.One, metadata.Quorum} {
		rows, err := s.GetRows(ctx, metadata.Names, keys, c)
		var got []metadata.Key
		for _, row := range rows {
			if got = append(got, row.Key); len(row.Value) != len(value) {
				t.Errorf("row %s has %d bytes", row.Key.Row, len(row.Value))
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("consistency %d: %v, %v; want %v", c, got, err, want)
		}
	}
	got, after := []metadata.Key(nil), ""
	for more := true; more; {
		var page []metadata.Row
		var err error
		if page, more, err = s.List(ctx, metadata.Names, "id", after, 100, metadata.Quorum); err != nil {
			t.Fatal(err)
		}
		for _, row := range page {
			got, after = append(got, row.Key), row.Key.Row
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}
