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

// sums are the rows of each table: how many, and a digest that does not depend on their order.
type sums struct {
	seed  maphash.Seed
	rows  map[string]int
	total map[string]uint64
	say   func()
}

func newSums(seed maphash.Seed, say func()) *sums {
	return &sums{seed: seed, rows: make(map[string]int), total: make(map[string]uint64), say: say}
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
	want, got := newSums(seed, told), newSums(seed, told)
	faded := make(map[Position]bool)
	end := time.Now().Add(fading)
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
		if want.rows[t.Name] != got.rows[t.Name] || want.total[t.Name] != got.total[t.Name] {
			return nil, core.Errorf(core.CodeCorrupt, "table %s differs after the copy: %d rows there, %d rows here; drop the keyspace and copy again",
				t.Name, got.rows[t.Name], want.rows[t.Name])
		}
		if n := want.rows[t.Name]; n > 0 {
			counts = append(counts, Count{t.Name, n})
		}
	}
	slices.SortFunc(counts, func(a, b Count) int { return b.Rows - a.Rows })
	return counts, nil
}
