package metadatatest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// getRows reads many rows in the order of keys, whatever order that is; rows that are not there are left out.
func getRows(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	byTable := map[metadata.Table]map[metadata.Key]metadata.Row{swaps: {}, puts: {}}
	var keys []metadata.Key
	for i := range 30 {
		k := metadata.Key{Partition: fmt.Sprint("p", i%3), Row: fmt.Sprintf("%02d", i*37%30)}
		keys = append(keys, k, metadata.Key{Partition: "none", Row: k.Row})
		if i%4 == 0 {
			continue // no such row
		}
		value := bytes.Repeat([]byte{byte(i)}, i)
		wantOK(t, "insert", s.Insert(ctx, swaps, k, value))
		row, err := s.Get(ctx, swaps, k, metadata.Serial)
		wantOK(t, "get", err)
		byTable[swaps][k] = row
		wantOK(t, "put", s.Put(ctx, puts, k, value, at(i+1), 0, metadata.Quorum))
		byTable[puts][k] = metadata.Row{Key: k, Value: value, Written: at(i + 1)}
	}
	gone := keys[4]
	wantOK(t, "delete", s.Delete(ctx, swaps, gone, byTable[swaps][gone].Version))
	delete(byTable[swaps], gone)
	wantOK(t, "remove", s.Remove(ctx, puts, gone, at(100), metadata.Quorum))
	delete(byTable[puts], gone)
	keys = append(keys, keys[2]) // asked for twice
	// Stores may read rows of one partition together. Those of the second order are side by side, and two of them the
	// same.
	byPartition := slices.Clone(keys)
	slices.SortStableFunc(byPartition, func(a, b metadata.Key) int { return strings.Compare(a.Partition, b.Partition) })
	byPartition = append(byPartition, byPartition[len(byPartition)-1])
	for table, there := range byTable {
		for _, keys := range [][]metadata.Key{keys, byPartition} {
			var want []metadata.Row
			for _, k := range keys {
				if row, ok := there[k]; ok {
					want = append(want, row)
				}
			}
			for _, c := range []metadata.Consistency{metadata.Quorum, metadata.Serial} {
				got, err := metadata.GetRows(ctx, s, table, keys, c)
				wantOK(t, "rows", err)
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", table.Name, diff)
				}
			}
		}
		rows, err := metadata.GetRows(ctx, s, table, nil, metadata.One)
		if err != nil || len(rows) != 0 {
			t.Errorf("no keys: %d rows, %v", len(rows), err)
		}
		_, err = metadata.GetRows(ctx, s, table, []metadata.Key{keys[2], {}}, metadata.Serial)
		wantCode(t, "rows without a key", err, core.CodeBadArgument)
	}
}
