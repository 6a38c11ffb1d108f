package outputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// TestRefresh_HolderOfOlderMetadata lets another run hold the metadata, in which the rows have lower versions: metadata
// were restored, or a copy of them was in use for a while.
func TestRefresh_HolderOfOlderMetadata(t *testing.T) {
	b := newHarness(t)
	held := func() {
		holder := membership.Host{ID: "ctl", Roles: []string{membership.RoleMetadata}, Address: "ctl:1", Run: core.RunID{ID: core.NewID(time.Now())}}
		if err := b.deps.Members.(*static.Monitor).Set([]membership.Host{holder, b.deps.Members.Self()}); err != nil {
			t.Fatal(err)
		}
	}
	held()
	r, a := b.group()
	older := memory.New()
	defer older.Close()
	queue := metadata.QueueRecord{ID: r.Queue, Spec: core.QueueSpec{Path: r.Spec.Queue, Status: core.StatusEnabled}}
	key := metadata.GroupKey(r.Queue, "g")
	_, version, err := metadata.Read[metadata.GroupRecord](t.Context(), b.meta, metadata.Groups, key, metadata.Serial)
	if err != nil {
		t.Fatal(err)
	}
	if err := metadata.Delete(t.Context(), b.meta, metadata.Groups, key, version); err != nil {
		t.Fatal(err)
	}
	for _, s := range []metadata.Store{older, b.meta} { // the rows that are made later have higher versions
		if err := metadata.Create(t.Context(), s, metadata.Queues, metadata.QueueKey(r.Queue), queue); err != nil {
			t.Fatal(err)
		}
		if err := metadata.Create(t.Context(), s, metadata.Groups, key, r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := metadata.Change(t.Context(), b.meta, metadata.Groups, key, func(x *metadata.GroupRecord) error {
		x.Spec.Status, x.Epoch = core.StatusDisabled, 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := metadata.Change(t.Context(), b.meta, metadata.Queues, metadata.QueueKey(r.Queue), func(x *metadata.QueueRecord) error {
		x.Spec.Status = core.StatusDisabled
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	refresh := func(what string, epoch uint64, status core.Status) {
		t.Helper()
		if err := b.refreshGroups(t.Context(), []*group{g}); err != nil {
			t.Fatal(err)
		}
		if g.mu.record.Epoch != epoch || g.mu.record.Spec.Status != status || g.mu.source != status {
			t.Errorf("%s: the group is %s at epoch %d, its queue is %s; want %s at epoch %d", what, g.mu.record.Spec.Status, g.mu.record.Epoch, g.mu.source, status, epoch)
		}
	}
	refresh("the newer rows", 1, core.StatusDisabled)
	newer := b.deps.Meta
	b.deps.Meta = older
	refresh("older rows of the same holder", 1, core.StatusDisabled)
	held()
	refresh("older rows of another holder", 0, core.StatusEnabled)
	b.deps.Meta = newer
	refresh("the newer rows again", 1, core.StatusDisabled)
}
