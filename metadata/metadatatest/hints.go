package metadatatest

import (
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// hintRow is a hint of a made-up extent; those of one bucket are in one shard.
func hintRow(t *testing.T, h metadata.Hint, n, bucket int) metadata.Row {
	t.Helper()
	id := core.ExtentID{ID: core.NewID(at(n))}
	id.ID[15] = byte(bucket)
	row, err := metadata.NewRow(metadata.Work, metadata.HintKey(h, id), metadata.ExtentRecord{Extent: core.Extent{ID: id}}, at(n))
	wantOK(t, "encode a hint", err)
	return row
}

func putHints(t *testing.T, s metadata.Store, rows []metadata.Row) {
	t.Helper()
	for len(rows) > 0 {
		n := min(len(rows), 500)
		wantOK(t, "put hints", s.PutAll(t.Context(), metadata.Work, rows[:n], metadata.Quorum))
		rows = rows[n:]
	}
}

// wantHints checks that a kind has exactly these hints, each once and in its shard.
func wantHints(t *testing.T, s metadata.Store, h metadata.Hint, rows []metadata.Row) {
	t.Helper()
	want := make(map[string]metadata.Row)
	for _, row := range rows {
		want[row.Key.Row] = row
	}
	for r, err := range metadata.Hints(t.Context(), s, h, metadata.Quorum) {
		wantOK(t, "list hints", err)
		row, ok := want[r.Value.ID.String()]
		if !ok || r.Key != metadata.HintKey(h, r.Value.ID) || !r.Written.Equal(row.Written) {
			t.Errorf("hint %v of %s was listed twice, or is not wanted there", r.Key, r.Written)
		}
		delete(want, r.Value.ID.String())
	}
	if len(want) > 0 {
		t.Errorf("%d of %d %s hints are not listed", len(want), len(rows), h)
	}
}

// hintShards lists hints that are spread evenly, and some pages of them in one shard.
func hintShards(t *testing.T, s metadata.Store) {
	wantHints(t, s, metadata.HintOpen, nil)
	var open, live []metadata.Row
	for n := range 1200 {
		open = append(open, hintRow(t, metadata.HintOpen, n, 3))
		live = append(live, hintRow(t, metadata.HintLive, n, n))
	}
	putHints(t, s, open)
	putHints(t, s, live)
	wantHints(t, s, metadata.HintOpen, open)
	wantHints(t, s, metadata.HintLive, live)
	for r, err := range metadata.Hints(t.Context(), s, metadata.HintLive, metadata.Quorum) { // the others are not waited for
		wantOK(t, "list hints", err)
		wantOK(t, "remove a hint", s.Remove(t.Context(), metadata.Work, r.Key, r.Written, metadata.Quorum))
		break
	}
	left := 0
	for _, err := range metadata.Hints(t.Context(), s, metadata.HintLive, metadata.Quorum) {
		wantOK(t, "list hints", err)
		left++
	}
	if left != len(live)-1 {
		t.Errorf("%d hints after one of %d was removed", left, len(live))
	}
}

// moveHints moves hints out of the one partition of a kind where earlier versions kept them, after a move that ended
// half way.
func moveHints(t *testing.T, s metadata.Store) {
	var live, old []metadata.Row
	for n := range 1200 {
		live = append(live, hintRow(t, metadata.HintLive, n, n))
		row := live[n]
		row.Key.Partition = string(metadata.HintLive)
		old = append(old, row)
	}
	open := hintRow(t, metadata.HintOpen, 1, 1)
	before := open
	before.Key.Partition = string(metadata.HintOpen)
	putHints(t, s, old[:1100])
	putHints(t, s, live[1000:]) // some are in both places
	putHints(t, s, []metadata.Row{before})
	for _, want := range []int{1101, 0} {
		moved, err := metadata.MoveHints(t.Context(), s)
		wantOK(t, "move hints", err)
		if moved != want {
			t.Errorf("%d hints were moved, want %d", moved, want)
		}
		wantHints(t, s, metadata.HintLive, live)
		wantHints(t, s, metadata.HintOpen, []metadata.Row{open})
	}
	putHints(t, s, old[:1]) // a write that comes late
	rows, err := listAll(t.Context(), s, metadata.Work, string(metadata.HintLive), 100)
	wantOK(t, "list", err)
	if len(rows) != 0 {
		t.Errorf("%d hints are where they were", len(rows))
	}
}
