package bitflip

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
)

// TestRecords_TornOverABlockBorder: the last record goes over a border, and the power went before its sync. The disk
// may have its second page, and not its first one.
func TestRecords_TornOverABlockBorder(t *testing.T) {
	var file bytes.Buffer
	w := record.NewWriter(&file)
	if _, err := w.WriteRecord(bytes.Repeat([]byte("synced "), 4600)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	synced := file.Len()
	if _, err := w.WriteRecord(bytes.Repeat([]byte("not synced "), 200)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := file.Bytes()
	if synced >= recordsBlock || len(b) <= recordsBlock {
		t.Fatalf("%d of %d bytes are synced: the last record goes over no border", synced, len(b))
	}
	clear(b[synced:recordsBlock])
	if fixes, verdict := Records(b); verdict == Damaged || len(fixes) > 0 {
		t.Errorf("a torn record that was never synced counts as damage: %d fixes, verdict %d", len(fixes), verdict)
	}
}
