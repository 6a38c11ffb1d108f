package migration

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Count is what a table has.
type Count struct {
	Table string
	Rows  int
}

// fading is how long a row must live on to be compared: one that ends meanwhile is in one of the stores only.
const fading = time.Hour

// blurred is by how much the end of a row may differ in its copy: Cassandra counts it in whole seconds from when it is written and read.
const blurred = 10 // seconds

// sums are the rows of each table: how many, a digest that does not depend on their order, and when they end on average.
type sums struct {
	seed  maphash.Seed
	rows  map[string]int
	total map[string]uint64
	end   map[string]int
	ends  map[string]int64 // seconds after began, of all together
	began time.Time
	say   func()
}

func newSums(seed maphash.Seed, began time.Time, say func()) *sums {
	return &sums{
		seed: seed, rows: make(map[string]int), total: make(map[string]uint64), end: make(map[string]int), ends: make(map[string]int64), began: began, say: say,
	}
}

// same reports whether a table has the same rows, which end at the same times.
func (s *sums) same(o *sums, table string) bool {
	n := s.end[table]
	return s.rows[table] == o.rows[table] && s.total[table] == o.total[table] && n == o.end[table] &&
		max(s.ends[table]-o.ends[table], o.ends[table]-s.ends[table]) <= int64(n)*blurred
}

func (s *sums) add(r metadata.Stored) {
	var h maphash.Hash
	h.SetSeed(s.seed)
	number := func(n uint64) { h.Write(binary.BigEndian.AppendUint64(nil, n)) }
	for _, part := range []string{r.Row.Key.Partition, r.Row.Key.Row} {
		number(uint64(len(part)))
		h.WriteString(part)
	}
	if r.Table.Rule == metadata.RuleCAS {
		number(uint64(r.Row.Version))
	} else {
		number(uint64(r.Row.Written.UnixMicro()))
	}
	h.Write(r.Row.Value)
	if !r.Expires.IsZero() {
		s.end[r.Table.Name]++
		s.ends[r.Table.Name] += int64(r.Expires.Sub(s.began) / time.Second)
	}
	s.rows[r.Table.Name]++
	s.total[r.Table.Name] += h.Sum64()
	s.say()
}

// compare reads all rows of both stores. CodeCorrupt when they are not the same.
func compare(ctx context.Context, from Source, to Target, say func(Progress)) ([]Count, error) {
	seed, read := maphash.MakeSeed(), 0
	told := func() {
		if read++; read%window == 0 {
			say(Progress{Rows: read, Check: true})
		}
	}
	now := time.Now()
	want, got := newSums(seed, now, told), newSums(seed, now, told)
	faded := make(map[Position]bool)
	end := now.Add(fading)
	err := from.Stored(ctx, "", "", "", func(r metadata.Stored) error {
		switch {
		case own(r):
		case !r.Expires.IsZero() && r.Expires.Before(end):
			faded[PositionOf(r)] = true
		default:
			want.add(r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = to.Stored(ctx, func(r metadata.Stored) error {
		if !own(r) && !faded[PositionOf(r)] {
			got.add(r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var counts []Count
	for _, t := range metadata.Tables {
		if !want.same(got, t.Name) {
			return nil, core.Errorf(core.CodeCorrupt, "table %s differs after the copy: %d rows there, %d rows here; drop the keyspace (DROP KEYSPACE in cqlsh), run `columba schema apply`, and copy again",
				t.Name, got.rows[t.Name], want.rows[t.Name])
		}
		if n := want.rows[t.Name]; n > 0 {
			counts = append(counts, Count{t.Name, n})
		}
	}
	slices.SortFunc(counts, func(a, b Count) int { return b.Rows - a.Rows })
	return counts, nil
}
