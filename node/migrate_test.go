package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/columbamq/columba/core"
)

// TestCopyMetadata_LeavesOtherDirectoriesAlone names directories without metadata: nothing is made there.
func TestCopyMetadata_LeavesOtherDirectoriesAlone(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	empty := t.TempDir()
	for _, data := range []string{empty, filepath.Join(empty, "none")} {
		_, err := CopyMetadata(t.Context(), data, "cassandra://127.0.0.1:1/x", log, nil)
		wantCode(t, "copy of "+data, err, core.CodeNotFound, "has no metadata")
		wantCode(t, "undo of "+data, UndoCopy(t.Context(), data, "cassandra://127.0.0.1:1/x", log), core.CodeNotFound, "has no metadata")
	}
	_, err := CopyMetadata(t.Context(), empty, "http://127.0.0.1:1/x", log, nil)
	wantCode(t, "a wrong URL", err, core.CodeBadArgument, "cassandra://")
	_, err = CopyMetadata(t.Context(), empty, "cassandra://127.0.0.1:1", log, nil)
	wantCode(t, "copy to no keyspace", err, core.CodeBadArgument, "like cassandra://127.0.0.1:1/columba")
	wantCode(t, "undo of no keyspace", UndoCopy(t.Context(), empty, "cassandra://127.0.0.1:1/?local=127.0.0.1:1", log), core.CodeBadArgument, "no keyspace")
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestDataDir_MovedMetadata is what a directory serves with after its metadata were copied.
func TestDataDir_MovedMetadata(t *testing.T) {
	d := &dataDir{path: t.TempDir()}
	for _, name := range []string{d.store(), d.metadata()} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "Cassandra beside embedded metadata", d.refuseEmbedded(), core.CodeConflict, "columba metadata copy")
	if err := d.rename(d.metadata(), d.movedMetadata()); err != nil {
		t.Fatal(err)
	}
	if err := d.refuseEmbedded(); err != nil {
		t.Errorf("Cassandra after the copy: %v", err)
	}
	wantCode(t, "embedded after the copy", d.checkMetadata(), core.CodeConflict, "metadata copy --undo")
}
