package bitflip

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// database is the manifest and the tables of a small database.
func database(t *testing.T) (manifest []byte, tables [][]byte, o sstable.ReaderOptions) {
	t.Helper()
	disk := vfs.NewMem()
	options := &pebble.Options{FS: disk, FormatMajorVersion: pebble.FormatNewest, DisableWAL: true, DisableAutomaticCompactions: true}
	for i := range options.Levels {
		options.Levels[i].BlockSize = 2 << 10
		options.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	db, err := pebble.Open("db", options)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for k := range 40 {
			if err := db.Set(fmt.Appendf(nil, "%d-%03d", i, k), bytes.Repeat([]byte{byte(k)}, 100*i), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.DeleteRange(fmt.Appendf(nil, "%d-1", i), fmt.Appendf(nil, "%d-2", i), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := disk.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := disk.Open("db/" + name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		switch {
		case path.Ext(name) == ".sst":
			tables = append(tables, b)
		case strings.HasPrefix(name, "MANIFEST"):
			manifest = b
		}
	}
	options.EnsureDefaults()
	return manifest, tables, options.MakeReaderOptions()
}

// TestTable_EachBit: a table of which one bit is flipped is as it was, and the fix says which byte it was.
func TestTable_EachBit(t *testing.T) {
	_, tables, o := database(t)
	for _, whole := range tables {
		if fixes, ok := Table(bytes.Clone(whole), o); len(fixes) > 0 || !ok {
			t.Fatalf("%d fixes of a whole table, %v", len(fixes), ok)
		}
		for bit := 0; bit < 8*len(whole); bit += 5 {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			fixes, ok := Table(b, o)
			if !ok || len(fixes) != 1 || fixes[0] != (Fix{int64(bit / 8), whole[bit/8]}) || !bytes.Equal(b, whole) {
				t.Fatalf("bit %d of %d: %v, %v", bit, 8*len(whole), fixes, ok)
			}
		}
	}
}

// TestTable_MoreThanOneBit: damage that is no flipped bit is not corrected.
func TestTable_MoreThanOneBit(t *testing.T) {
	_, tables, o := database(t)
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		b := bytes.Clone(tables[2])
		at := random.IntN(len(b) - 4)
		b[at] ^= 1 << random.IntN(8)
		if b[at+1+random.IntN(3)] ^= 1 << random.IntN(8); random.IntN(4) == 0 {
			b = b[:at]
		}
		if fixes, ok := Table(b, o); ok && !bytes.Equal(b, tables[2]) {
			t.Fatalf("from %d on: %v", at, fixes)
		}
	}
}

// TestRecords_EachBit: a manifest of which one bit is flipped is as it was.
func TestRecords_EachBit(t *testing.T) {
	whole, _, _ := database(t)
	if fixes, verdict := Records(bytes.Clone(whole)); len(fixes) > 0 || verdict != Whole {
		t.Fatalf("%d fixes of a whole manifest, verdict %d", len(fixes), verdict)
	}
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		fixes, verdict := Records(b)
		if verdict != Whole || len(fixes) != 1 || !bytes.Equal(b, whole) {
			t.Fatalf("bit %d of %d: %v, verdict %d", bit, 8*len(whole), fixes, verdict)
		}
	}
}

// TestRecords_TellsATornEndFromDamage: a file that a crash has cut off counts as torn. A damaged chunk before a sound
// one counts as damage.
func TestRecords_TellsATornEndFromDamage(t *testing.T) {
	whole, _, _ := database(t)
	for n := range whole {
		if _, verdict := Records(bytes.Clone(whole[:n])); verdict == Damaged {
			t.Fatalf("cut off at %d: damaged", n)
		}
	}
	if _, verdict := Records(append(bytes.Clone(whole), make([]byte, 100)...)); verdict != Whole {
		t.Errorf("zeros behind the end: verdict %d", verdict)
	}
	b := bytes.Clone(whole)
	clear(b[20:40])
	if _, verdict := Records(b); verdict != Damaged {
		t.Errorf("zeros in the middle: verdict %d", verdict)
	}
}

// TestRecords_OverBlocks: records of all lengths, some of which go over several blocks.
func TestRecords_OverBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	var file bytes.Buffer
	w := record.NewWriter(&file)
	for range 300 {
		b := make([]byte, random.IntN(1<<random.IntN(17)))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if _, err := w.WriteRecord(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	if fixes, verdict := Records(bytes.Clone(whole)); len(fixes) > 0 || verdict != Whole {
		t.Fatalf("%d fixes of a whole file, verdict %d", len(fixes), verdict)
	}
	for range 40 {
		b := bytes.Clone(whole)
		bit := random.IntN(8 * len(whole))
		b[bit/8] ^= 1 << (bit % 8)
		if fixes, verdict := Records(b); verdict != Whole || len(fixes) > 1 || !bytes.Equal(b, whole) && len(fixes) > 0 {
			t.Fatalf("bit %d of %d: %v, verdict %d", bit, 8*len(whole), fixes, verdict)
		}
	}
}
