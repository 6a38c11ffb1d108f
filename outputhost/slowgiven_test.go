package outputhost

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// hangingGiven is metadata where the checkpoints or the claims of one share hang until the call ends.
type hangingGiven struct {
	metadata.Store
	partition string
	claims    bool
}

func (m *hangingGiven) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if m.claims {
		return m.Store.PutAll(ctx, t, rows, c)
	}
	return (&hangingRows{m.Store, m.partition}).PutAll(ctx, t, rows, c)
}

func (m *hangingGiven) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if m.claims && t.Name == metadata.Claims.Name && k.Partition == m.partition {
		<-ctx.Done()
	}
	return (&hangingRows{Store: m.Store}).Update(ctx, t, k, old, value, ttl)
}

// TestLists_AShareThatIsNotSavedHoldsUpNoOther: a list lacks a share of a group that delivers at most once, and its
// last row, or its claim, hangs. Lists of other queues in the same call are applied: their new shares are resumed, and
// the shares that they lack are saved, so that their new owners may begin.
func TestLists_AShareThatIsNotSavedHoldsUpNoOther(t *testing.T) {
	for _, claims := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t)
			once := func() *pb.Assignment {
				r, a := b.group()
				_, err := metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(r.Queue, r.Spec.Name), func(r *metadata.GroupRecord) error {
					r.Spec.Delivery = core.AtMostOnce
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			bad, moves := once(), once()
			_, good := b.group()
			id := core.ExtentID{ID: core.ID(bad.Extent.Id)}
			b.deps.Meta = &hangingGiven{Store: b.meta, partition: metadata.CheckpointPartition(core.GroupID{ID: core.ID(bad.Group)}, id), claims: claims}
			if err := b.give(1, bad, moves); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), b.cfg.CallTimeout)
			defer cancel()
			ctx, cancel = inTime(ctx)
			defer cancel()
			run := b.deps.Members.Self().Run
			resp, err := b.assign(ctx, &pb.AssignRequest{Run: run.ID[:], Lists: []*pb.AssignmentList{
				list("controller", 2, queueOf(bad)), list("controller", 2, queueOf(moves)), list("controller", 2, queueOf(good), good)}})
			if err != nil {
				t.Fatal(err)
			}
			failed := make([]bool, len(resp.Lists))
			for i, a := range resp.Lists {
				failed[i] = a.Failed != nil
			}
			if !slices.Equal(failed, []bool{true, false, false}) || !b.has(good) {
				t.Errorf("claims %t: lists that failed: %t, want the first one; the new share is here: %t", claims, failed, b.has(good))
			}
			b.deps.Meta = b.meta
		})
	}
}
