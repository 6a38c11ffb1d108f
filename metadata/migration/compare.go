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

// endsWithin is by how many seconds the end of a row may differ in its copy: Cassandra counts whole seconds from when a
// row is written, and when it is read.
const endsWithin = 10

// sum is of the rows of one table. It does not depend on their order.
type sum struct {
	rows   int
	digest uint64
	ending int   // rows that end
	ends   int64 // when they do, added up: seconds after sums.began
}

// same reports whether these are the same rows, which end at the same times.
func (s sum) same(o sum) bool {
	return s.rows == o.rows && s.digest == o.digest && s.ending == o.ending && max(s.ends-o.ends, o.ends-s.ends) <= int64(s.ending)*endsWithin
}

// sums are those of all tables of a store.
type sums struct {
	seed   maphash.Seed
	began  time.Time
	tables map[string]sum
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
	t := s.tables[r.Table.Name]
	t.rows, t.digest = t.rows+1, t.digest+h.Sum64()
	if !r.Expires.IsZero() {
		t.ending, t.ends = t.ending+1, t.ends+int64(r.Expires.Sub(s.began)/time.Second)
	}
	s.tables[r.Table.Name] = t
}

// compare reads all rows of both stores. CodeCorrupt when they are not the same.
func compare(ctx context.Context, l *link, from Source, to Target) ([]Count, error) {
	seed, now := maphash.MakeSeed(), time.Now()
	want, got := &sums{seed, now, make(map[string]sum)}, &sums{seed, now, make(map[string]sum)}
	faded := make(map[Position]bool)
	end, total, read := now.Add(fading), 0, 0
	err := from.Stored(ctx, "", "", "", func(r metadata.Stored) error {
		switch {
		case own(r):
		case !r.Expires.IsZero() && r.Expires.Before(end):
			faded[PositionOf(r)] = true
		default:
			want.add(r)
			total++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.begin(total, true)
	err = l.stored(ctx, to, func(r metadata.Stored) error {
		if !own(r) && !faded[PositionOf(r)] {
			got.add(r)
			if read++; read%window == 0 {
				l.at(read)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.at(read)
	var counts []Count
	for _, t := range metadata.Tables {
		there, here := got.tables[t.Name], want.tables[t.Name]
		if !here.same(there) {
			return nil, core.Errorf(core.CodeCorrupt, "table %s differs after the copy: %d rows there, %d rows here; drop the keyspace (DROP KEYSPACE in cqlsh), run `columba schema apply`, and copy again",
				t.Name, there.rows, here.rows)
		}
		if here.rows > 0 {
			counts = append(counts, Count{t.Name, here.rows})
		}
	}
	slices.SortFunc(counts, func(a, b Count) int { return b.Rows - a.Rows })
	return counts, nil
}
