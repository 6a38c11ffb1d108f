package removal

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func newID(n byte) core.ID { return core.ID{15: n} }

func windowOf(seqs ...core.Seq) []byte {
	var w acklevel.Window
	for _, seq := range seqs {
		w.Ack(seq)
	}
	b, _ := w.Append(nil)
	return b
}

// TestTold: of two selections it names the one that took a message; one that was not decided took nothing, and one that
// is not on record has no name.
func TestTold(t *testing.T) {
	meta := memory.New()
	defer meta.Close()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dlq, extent := core.QueueID{ID: newID(1)}, core.ExtentID{ID: newID(2)}
	write := func(n byte, kind metadata.OperationKind, decided bool, found ...core.Seq) {
		t.Helper()
		o := metadata.OperationRecord{
			ID: newID(n), Kind: kind, Object: dlq, Name: "g", State: metadata.OperationDone, Changed: time.Unix(1e9, 0), Decided: decided, Selection: &core.Selection{MinAttempts: 1},
		}
		ok(metadata.Create(t.Context(), meta, metadata.Operations, metadata.EndedOperationKey(o.ID), o))
		ok(metadata.Create(t.Context(), meta, metadata.Operations, metadata.SelectedKey(o.ID, extent), metadata.SelectedRecord{Found: windowOf(found...), Count: uint64(len(found))}))
	}
	write(10, metadata.OperationMerge, true, 2, 4)
	write(11, metadata.OperationPurge, true, 3)
	write(12, metadata.OperationPurge, false, 2, 3, 5)
	whole := metadata.OperationRecord{ID: newID(13), Kind: metadata.OperationMerge, Object: dlq, Extents: []core.ExtentID{extent}, State: metadata.OperationRunning}
	ok(metadata.Create(t.Context(), meta, metadata.Operations, metadata.OperationKey(dlq.ID), whole))

	own := metadata.SealRecord{Extent: core.Extent{ID: extent, Queue: dlq}, State: core.ExtentSealed, L: 9, Removed: windowOf(2, 3, 4, 7)}
	home := func(kind core.HomeKind) metadata.SealRecord {
		row := own
		row.Home.Kind = kind
		return row
	}
	for name, x := range map[string]struct {
		row  metadata.SealRecord
		seq  core.Seq
		want []string
	}{
		"there":             {own, 5, nil},
		"nothing is sealed": {metadata.SealRecord{}, 5, nil},
		"merged":            {own, 4, []string{"merged into group g", newID(10).String(), "2001-09-09T01:46:40Z"}},
		"purged":            {own, 3, []string{"was purged", newID(11).String()}},
		"long ago":          {own, 7, []string{"merged or purged", "not on record"}},
		"all merged":        {home(core.HomeMerged), 5, []string{"merged into its group", newID(13).String()}},
		"merged before all": {home(core.HomeMerged), 2, []string{"merged into group g", newID(10).String()}},
		"all purged":        {home(core.HomePurged), 5, []string{"was purged", "not on record"}},
		"a copy":            {home(core.HomeStaging), 5, []string{"not decided"}},
	} {
		got, err := Told(t.Context(), meta, x.row, x.seq)
		ok(err)
		if x.want == nil && got != "" {
			t.Errorf("%s: %q, want nothing", name, got)
		}
		for _, part := range x.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q, want %q in it", name, got, part)
			}
		}
	}
	damaged := own
	damaged.Removed = []byte{0xff}
	if _, err := Told(t.Context(), meta, damaged, 2); err == nil {
		t.Error("a damaged row is no error")
	}
}
