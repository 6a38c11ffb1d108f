package outputhost

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// counted counts the calls that read.
type counted struct {
	metadata.Store
	calls atomic.Int64
}

func (c *counted) Get(ctx context.Context, t metadata.Table, k metadata.Key, s metadata.Consistency) (metadata.Row, error) {
	c.calls.Add(1)
	return c.Store.Get(ctx, t, k, s)
}

func (c *counted) List(ctx context.Context, t metadata.Table, partition, after string, limit int, s metadata.Consistency) ([]metadata.Row, bool, error) {
	c.calls.Add(1)
	return c.Store.List(ctx, t, partition, after, limit, s)
}

func (c *counted) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, s metadata.Consistency) ([]metadata.Row, error) {
	c.calls.Add(1)
	return metadata.GetRows(ctx, c.Store, t, keys, s)
}

// count has the host's calls to the metadata counted.
func (b *harness) count() *counted {
	c := &counted{Store: b.meta}
	b.deps.Meta = c
	return c
}

// TestRefresh_ManyGroupsCostAFewCalls changes one group's settings, deletes another, and seals what a third has
// consumed.
func TestRefresh_ManyGroupsCostAFewCalls(t *testing.T) {
	b := newHarness(t)
	var records []metadata.GroupRecord
	var list []*pb.Assignment
	for range 1000 {
		r, a := b.group()
		records, list = append(records, r), append(list, a)
	}
	changed, deleted, consumed := records[3], records[5], list[7]
	if err := b.give(1, list...); err != nil {
		t.Fatal(err)
	}
	changed.Spec.MaxDeliveries++
	for _, r := range []*metadata.GroupRecord{&changed, &deleted} {
		if _, err := metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(r.Queue, "g"), func(x *metadata.GroupRecord) error {
			x.Spec.MaxDeliveries = changed.Spec.MaxDeliveries
			if r == &deleted {
				x.Spec.Status = core.StatusDeleted
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	e, err := convert.Extent(consumed.Extent)
	if err != nil {
		t.Fatal(err)
	}
	b.write(metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 9, Holders: e.Replicas})
	groups := b.groupList()
	byID := make(map[core.GroupID]*group)
	for _, g := range groups {
		byID[g.id] = g
		g.mu.Lock()
		for _, s := range g.mu.shares {
			g.mu.rules.RemoveShare(s.rules)
			s.rules = g.mu.rules.AddShare(s.extent.ID, dispatch.StartAfter(9), b.deps.Now())
		}
		g.mu.Unlock()
	}
	meta := b.count()
	if err := b.refreshGroups(t.Context(), groups); err != nil {
		t.Fatal(err)
	}
	if err := b.lookForEnds(t.Context(), groups); err != nil {
		t.Fatal(err)
	}
	if n := meta.calls.Load(); n > 4 {
		t.Errorf("%d calls to the metadata for %d groups", n, len(groups))
	}
	if got := byID[changed.ID].mu.record.Spec.MaxDeliveries; got != changed.Spec.MaxDeliveries {
		t.Errorf("the changed group allows %d deliveries, want %d", got, changed.Spec.MaxDeliveries)
	}
	if got := byID[deleted.ID].mu.record.Spec.Status; got != core.StatusDeleted {
		t.Errorf("the deleted group is %s", got)
	}
	for i, r := range records {
		g := byID[r.ID]
		for _, s := range g.mu.shares {
			if s.end != (i == 7) {
				t.Errorf("group %d: its extent is sealed: %t", i, s.end)
			}
		}
		if i != 3 && i != 5 && g.mu.record.Spec != r.Spec {
			t.Errorf("group %d has changed", i)
		}
	}
}

// TestAssign_ListThatIsKnownCostsNoCalls: lists come again and again.
func TestAssign_ListThatIsKnownCostsNoCalls(t *testing.T) {
	b := newHarness(t)
	_, one := b.group()
	_, two := b.group()
	if err := b.give(1, one, two); err != nil {
		t.Fatal(err)
	}
	meta := b.count()
	one.Holders = []string{"other"}
	if err := b.give(2, one, two); err != nil {
		t.Fatal(err)
	}
	if n := meta.calls.Load(); n != 0 {
		t.Errorf("%d calls to the metadata for a list that is known", n)
	}
	moved := 0
	for _, g := range b.groupList() {
		for _, s := range g.mu.shares {
			if len(s.holders) == 1 && s.holders[0] == "other" {
				moved++
			}
		}
	}
	if moved != 1 {
		t.Errorf("%d shares have heard of other holders, want one", moved)
	}
}

// TestRefresh_SettingsDoNotGoBack has settings come that were read before others that count already, as two readings of
// a group may overtake each other.
func TestRefresh_SettingsDoNotGoBack(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	late := &overtaken{Store: b.meta, key: metadata.GroupKey(r.Queue, "g")}
	late.meanwhile = func() {
		if _, err := metadata.Change(t.Context(), b.meta, metadata.Groups, late.key, func(x *metadata.GroupRecord) error {
			x.Spec.Status, x.Spec.MaxDeliveries = core.StatusDisabled, 3
			return nil
		}); err != nil {
			t.Error(err)
		}
		if err := b.refreshGroups(t.Context(), []*group{g}); err != nil {
			t.Error(err)
		}
	}
	b.deps.Meta = late
	if err := b.refreshGroups(t.Context(), []*group{g}); err != nil {
		t.Fatal(err)
	}
	if spec := g.mu.record.Spec; spec.Status != core.StatusDisabled || spec.MaxDeliveries != 3 || core.CodeOf(g.mu.paused) != core.CodeDisabled {
		t.Errorf("it is %s with %d deliveries, paused: %v", spec.Status, spec.MaxDeliveries, g.mu.paused)
	}
}

// overtaken answers the first reading of a row only after something else was done.
type overtaken struct {
	metadata.Store
	key       metadata.Key
	meanwhile func()
}

func (o *overtaken) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, s metadata.Consistency) ([]metadata.Row, error) {
	rows, err := metadata.GetRows(ctx, o.Store, t, keys, s)
	if meanwhile := o.meanwhile; meanwhile != nil && slices.Contains(keys, o.key) {
		o.meanwhile = nil
		meanwhile()
	}
	return rows, err
}

// missing is a store that has no groups while it is told to.
type missing struct {
	metadata.Store
	groups bool
}

func (m *missing) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	if m.groups && t.Name == metadata.Groups.Name {
		return nil, nil
	}
	return metadata.GetRows(ctx, m.Store, t, keys, c)
}

// TestRefresh_GroupIsThereAgain has one read miss a group, whose row has not changed when the next one finds it.
func TestRefresh_GroupIsThereAgain(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	meta := &missing{Store: b.meta}
	b.deps.Meta = meta
	groups := b.groupList()
	for _, want := range []core.Status{core.StatusDeleted, r.Spec.Status, r.Spec.Status} {
		meta.groups = want == core.StatusDeleted
		if err := b.refreshGroups(t.Context(), groups); err != nil {
			t.Fatal(err)
		}
		if got := groups[0].mu.record; got.Spec.Status != want || got.ID != r.ID {
			t.Errorf("the group is %+v, want status %q", got, want)
		}
	}
}
