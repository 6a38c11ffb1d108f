package outputhost

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// slowRows is metadata of which each read takes a while, and one never ends.
type slowRows struct {
	metadata.Store
	hangs metadata.Key // of a group
}

const slowRead = 10 * time.Millisecond

func (s slowRows) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t.Name == metadata.Groups.Name && k == s.hangs {
		<-ctx.Done()
		return metadata.Row{}, context.Cause(ctx)
	}
	time.Sleep(slowRead)
	return s.Store.Get(ctx, t, k, c)
}

// TestLists_GroupsDoNotWaitForEachOther: a queue has many groups. The row of the first one cannot be read, and the
// others get their shares nevertheless, some at a time.
func TestLists_GroupsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		record, first := b.group()
		queue, all := queueOf(first), []*pb.Assignment{first}
		for i := range 40 {
			r, a := record, proto.CloneOf(first)
			r.ID = core.GroupID{ID: core.NewID(time.Now())}
			a.Name, r.Spec.Name = fmt.Sprintf("g%d", i), fmt.Sprintf("g%d", i)
			a.Group = r.ID.ID[:]
			b.write(metadata.Groups, metadata.GroupKey(queue, a.Name), r)
			all = append(all, a)
		}
		b.deps.Meta = slowRows{b.meta, metadata.GroupKey(queue, first.Name)}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		has := func(a *pb.Assignment) bool {
			return b.hasShare(core.ExtentID{ID: core.ID(a.Extent.Id)}, core.GroupID{ID: core.ID(a.Group)}, a)
		}
		last, done := all[len(all)-1], make(chan *pb.AssignResponse)
		go func() {
			run := b.deps.Members.Self().Run
			resp, err := b.assign(ctx, &pb.AssignRequest{Run: run.ID[:], Lists: []*pb.AssignmentList{list("c", 1, queue, all...)}})
			if err != nil {
				t.Error(err)
			}
			done <- resp
		}()
		time.Sleep(time.Duration(len(all)) * slowRead)
		if !has(last) {
			t.Error("the last group waits for all before it, and for the one that cannot be read")
		}
		if answer := (<-done).GetLists()[0]; has(first) || answer.Failed.GetCode() != string(core.CodeDeadline) {
			t.Errorf("the answer is %v, the group that cannot be read has its share: %t", answer, has(first))
		}
	})
}
