package pebble

import (
	"bytes"
	"cmp"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/metadata"
)

type where struct{ table, partition, row string }

func (w where) key() []byte {
	return rowKey(metadata.Table{Name: w.table}, metadata.Key{Partition: w.partition, Row: w.row})
}

// Engine keys order like (table, partition, row), and a partition's range holds its rows alone.
func TestRowKey_Order(t *testing.T) {
	part := rapid.StringOfN(rapid.SampledFrom([]rune("\x01\x02/ab\u00ff")), 1, 4, -1)
	places := rapid.Custom(func(t *rapid.T) where {
		return where{part.Draw(t, "table"), part.Draw(t, "partition"), part.Draw(t, "row")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := places.Draw(t, "a"), places.Draw(t, "b")
		want := cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.partition, b.partition), cmp.Compare(a.row, b.row))
		if got := bytes.Compare(a.key(), b.key()); got != want {
			t.Fatalf("keys of %q and %q compare as %d, want %d", a, b, got, want)
		}
		prefix := partitionPrefix(metadata.Table{Name: a.table}, a.partition)
		inside := bytes.Compare(prefix, b.key()) <= 0 && bytes.Compare(b.key(), partitionEnd(prefix)) < 0
		if same := a.table == b.table && a.partition == b.partition; inside != same {
			t.Fatalf("%q inside the partition of %q: %v, want %v", b, a, inside, same)
		}
		if bytes.Compare(b.key(), []byte{prefixSweep}) >= 0 || bytes.Compare(b.key(), []byte(formatKey)) <= 0 {
			t.Fatalf("key of %q lies among keys of another kind", b)
		}
	})
}

func TestSweepKey(t *testing.T) {
	row := where{"t", "p", "r"}.key()
	early, late := sweepKey(time.UnixMicro(255), row), sweepKey(time.UnixMicro(256), row)
	if bytes.Compare(early, late) >= 0 {
		t.Error("sweep keys do not order by time")
	}
	if got := sweptRow(early); !bytes.Equal(got, row) {
		t.Errorf("swept row is %q, want %q", got, row)
	}
}
