package metadata_test

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// oneCopy is metadata of which reads at One are of a copy that has no row.
type oneCopy struct {
	metadata.Store
	noMajority bool
}

func (o oneCopy) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	switch {
	case c == metadata.One:
		return nil, false, nil
	case o.noMajority:
		return nil, false, core.Errorf(core.CodeUnavailable, "no majority")
	}
	return o.Store.List(ctx, t, partition, after, limit, c)
}

func TestAllQuorumOrOne(t *testing.T) {
	ctx, s, now := t.Context(), memory.New(), time.Now()
	defer s.Close()
	for epoch := range uint64(3) {
		k := metadata.DoneKey(core.GroupID{ID: core.ID{1}}, core.ExtentID{ID: core.ID{1}}, epoch)
		if err := metadata.Write(ctx, s, metadata.Dones, k, metadata.DoneRecord{}, now, 0, metadata.Quorum); err != nil {
			t.Fatal(err)
		}
	}
	for _, noMajority := range []bool{false, true} {
		n := 0
		for _, err := range metadata.AllQuorumOrOne[metadata.DoneRecord](ctx, oneCopy{s, noMajority}, metadata.Dones, core.ID{1}.String()) {
			if n++; err != nil {
				t.Errorf("without a majority %v: %v", noMajority, err)
			}
		}
		if want := map[bool]int{false: 3, true: 0}[noMajority]; n != want {
			t.Errorf("without a majority %v: %d rows, want %d", noMajority, n, want)
		}
	}
}

func TestQuorumOrOne(t *testing.T) {
	for code, want := range map[core.Code]int{"": 1, core.CodeNotFound: 1, core.CodeUnavailable: 2} {
		var asked []metadata.Consistency
		_, err := metadata.QuorumOrOne(func(c metadata.Consistency) (int, error) {
			if asked = append(asked, c); code == "" {
				return 0, nil
			}
			return 0, core.Errorf(code, "no")
		})
		if code != "" && core.CodeOf(err) != code || len(asked) != want || asked[0] != metadata.Quorum || asked[len(asked)-1] != []metadata.Consistency{metadata.Quorum, metadata.One}[want-1] {
			t.Errorf("after %q: asked at %v, got %v", code, asked, err)
		}
	}
}

// TestListOperations_ThatOneCopyLacks: an operation is listed that one copy of the metadata has no row of.
func TestListOperations_ThatOneCopyLacks(t *testing.T) {
	s := memory.New()
	defer s.Close()
	object := core.ID{1}
	if err := metadata.Create(t.Context(), s, metadata.Operations, metadata.OperationKey(object), metadata.OperationRecord{ID: core.ID{2}}); err != nil {
		t.Fatal(err)
	}
	if all, err := metadata.ListOperations(t.Context(), oneCopy{s, false}, true); err != nil || len(all) != 1 {
		t.Errorf("%d operations are listed, %v; want 1", len(all), err)
	}
}
