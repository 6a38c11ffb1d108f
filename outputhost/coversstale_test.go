package outputhost

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/metadata"
)

// TestResume_StaleReadsUncoverNothing: an owner hears of late settlements by reads of one copy, which may lack what
// another copy had. It knows what it knew all the same.
func TestResume_StaleReadsUncoverNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, first := newSuccessors(t)
		g, s := x.own(first)
		x.takes(first, g, 4)
		x.gives(first, g, s)

		second := x.host("second")
		second.set(second.deps.Members.Self(), first.deps.Members.Self())
		copied := &oldCopy{Store: second.deps.Meta}
		second.deps.Meta = copied
		next, taken := x.own(second)
		old := slices.Collect(maps.Values(second.left(s)))
		read := func(rows []metadata.Row) {
			copied.rows, copied.old = rows, rows != nil
			if err := next.mergeInto(t.Context(), taken, time.Now()); err != nil {
				t.Fatal(err)
			}
			copied.old = false
		}
		x.acksLate(first, g, s, 1)
		read(nil)
		read(old)
		x.acksLate(first, g, s, 3)
		read(nil)
		read([]metadata.Row{})
		x.acksLate(first, g, s, 4)
		read(nil)
		x.returns(second, next, taken, 2)

		third := x.host("third")
		g, s = x.own(third)
		if n := x.rows(third, s); n != 2 {
			t.Fatalf("%d rows are left, want both", n)
		}
		x.want("the third owner", x.takes(third, g, 2), "2@1", "5@1")
	})
}

// oldCopy answers reads of checkpoints at One with rows of before.
type oldCopy struct {
	metadata.Store
	rows []metadata.Row
	old  bool
}

func (c *oldCopy) List(ctx context.Context, t metadata.Table, partition, after string, limit int, level metadata.Consistency) ([]metadata.Row, bool, error) {
	if c.old && t == metadata.Checkpoints && level == metadata.One {
		return c.rows, false, nil
	}
	return c.Store.List(ctx, t, partition, after, limit, level)
}
