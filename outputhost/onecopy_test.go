package outputhost

import (
	"context"
	"slices"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/deliverytoken"
	"github.com/columbamq/columba/metadata"
)

// oneCopy is a store of several copies. Reads at One see a copy in which some rows are missing, or as they were before.
// Without a majority nothing is read or written at Quorum.
type oneCopy struct {
	metadata.Store
	rows       map[metadata.Key][]byte // in the copy; nil: the row is missing
	noMajority bool
}

// copied has the host read from one copy in which these rows are missing.
func (b *harness) copied(missing ...metadata.Key) *oneCopy {
	c := &oneCopy{Store: b.meta, rows: make(map[metadata.Key][]byte)}
	for _, k := range missing {
		c.rows[k] = nil
	}
	b.deps.Meta = c
	return c
}

func (o *oneCopy) check(c metadata.Consistency) error {
	if c != metadata.One && o.noMajority {
		return core.Errorf(core.CodeUnavailable, "no majority")
	}
	return nil
}

// seen are rows as the copy has them.
func (o *oneCopy) seen(rows []metadata.Row, c metadata.Consistency) []metadata.Row {
	if c != metadata.One {
		return rows
	}
	out := slices.Clone(rows)
	for i, r := range out {
		if value, differs := o.rows[r.Key]; differs && value != nil {
			out[i].Value, out[i].Version = value, r.Version-1
		}
	}
	return slices.DeleteFunc(out, func(r metadata.Row) bool {
		value, differs := o.rows[r.Key]
		return differs && value == nil
	})
}

func (o *oneCopy) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	rows, err := o.GetRows(ctx, t, []metadata.Key{k}, c)
	if err == nil && len(rows) == 0 {
		err = metadata.NoRow(t, k)
	}
	if err != nil {
		return metadata.Row{}, err
	}
	return rows[0], nil
}

func (o *oneCopy) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	if err := o.check(c); err != nil {
		return nil, err
	}
	rows, err := metadata.GetRows(ctx, o.Store, t, keys, c)
	return o.seen(rows, c), err
}

func (o *oneCopy) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := o.check(c); err != nil {
		return nil, false, err
	}
	rows, more, err := o.Store.List(ctx, t, partition, after, limit, c)
	return o.seen(rows, c), more, err
}

func (o *oneCopy) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if err := o.check(c); err != nil {
		return err
	}
	return o.Store.Put(ctx, t, k, value, at, ttl, c)
}

func (o *oneCopy) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	if err := o.check(c); err != nil {
		return err
	}
	return o.Store.PutAll(ctx, t, rows, c)
}

// replace writes a row anew; the copy keeps what was there.
func replace[T any](b *harness, copy *oneCopy, t metadata.Table, k metadata.Key, change func(*T)) {
	b.t.Helper()
	row, err := b.meta.Get(b.t.Context(), t, k, metadata.Serial)
	if err == nil {
		copy.rows[k] = row.Value
		_, err = metadata.Change(b.t.Context(), b.meta, t, k, func(r *T) error {
			change(r)
			return nil
		})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestRefresh_GroupMissingInOneCopy: a group is deleted only if no majority of the copies has its row.
func TestRefresh_GroupMissingInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.mu.groups[r.ID]
	meta := b.copied(metadata.GroupKey(r.Queue, "g"))
	check := func(when string, want core.Code) {
		t.Helper()
		if err := b.refreshGroups(t.Context(), b.groupList()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if got := core.CodeOf(g.mu.paused); got != want {
			t.Errorf("%s: the group is paused: %v, want %q", when, g.mu.paused, want)
		}
	}
	check("the row is missing in one copy", "")
	meta.noMajority = true
	check("and there is no majority", "")
	meta.noMajority = false
	row, err := b.meta.Get(t.Context(), metadata.Groups, metadata.GroupKey(r.Queue, "g"), metadata.Serial)
	if err == nil {
		err = b.meta.Delete(t.Context(), metadata.Groups, row.Key, row.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	meta.noMajority = true
	check("the row is gone, and there is no majority", "")
	meta.noMajority = false
	check("the row is gone", core.CodeNotFound)
}

// TestRefresh_GroupOfBeforeInOneCopy: a copy still has the row of the group that had the name before.
func TestRefresh_GroupOfBeforeInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	meta := b.copied()
	made := core.GroupID{ID: core.NewID(time.Now())}
	replace(b, meta, metadata.Groups, metadata.GroupKey(r.Queue, "g"), func(x *metadata.GroupRecord) { x.ID = made })
	a.Group = made.ID[:]
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	g := b.mu.groups[made]
	if g == nil || len(g.mu.shares) != 1 {
		t.Fatalf("the share of the group that was made again is not resumed: %v", b.mu.groups)
	}
	if err := b.refreshGroups(t.Context(), b.groupList()); err != nil || g.mu.paused != nil {
		t.Errorf("the group that was made again is paused: %v, %v", g.mu.paused, err)
	}
}

// TestLookUp_RowsMissingInOneCopy: a consumer comes right after its queue and its group were made.
func TestLookUp_RowsMissingInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, _ := b.group()
	path := r.Spec.Queue
	name, key := metadata.NameKey(path), metadata.GroupKey(r.Queue, "g")
	if err := metadata.Create(t.Context(), b.meta, metadata.Names, name, metadata.NameRecord{Queue: r.Queue}); err != nil {
		t.Fatal(err)
	}
	half, deleted := r, r
	half.Started = false
	deleted.Spec.Status = core.StatusDeleted
	for _, c := range []struct {
		copy  string
		key   metadata.Key
		value []byte
	}{
		{"no name", name, nil},
		{"the name of a queue that was deleted", name, encoded(t, metadata.Names, metadata.NameRecord{})},
		{"the name of the queue before", name, encoded(t, metadata.Names, metadata.NameRecord{Queue: core.QueueID{ID: core.NewID(time.Now())}})},
		{"no group", key, nil},
		{"a group that is half made", key, encoded(t, metadata.Groups, half)},
		{"a group that was deleted", key, encoded(t, metadata.Groups, deleted)},
	} {
		meta := b.copied()
		meta.rows[c.key] = c.value
		if g, err := b.lookUp(t.Context(), path, "g"); err != nil {
			t.Errorf("a copy has %s: %v", c.copy, err)
		} else {
			g.release()
			b.unload(g)
		}
		meta.noMajority = true
		if _, err := b.lookUp(t.Context(), path, "g"); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("a copy has %s, and there is no majority: %v, want %s", c.copy, err, core.CodeUnavailable)
		}
	}
	b.copied()
	if _, err := b.lookUp(t.Context(), path, "other"); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("a group that is not there: %v", err)
	}
	if _, err := b.lookUp(t.Context(), "/t/other", "g"); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("a queue that is not there: %v", err)
	}
}

// encoded is the value of a row with the record.
func encoded[T any](t *testing.T, table metadata.Table, record T) []byte {
	t.Helper()
	row, err := metadata.NewRow(table, metadata.Key{}, record, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return row.Value
}

// TestGive_GroupMissingInOneCopy: the share of a group is resumed though a copy lacks the group, and it is not taken
// for resumed without a majority.
func TestGive_GroupMissingInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	meta := b.copied(metadata.GroupKey(r.Queue, "g"))
	meta.noMajority = true
	if err := b.give(1, a); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("without a majority: %v, want %s, so that the list comes again", err, core.CodeUnavailable)
	}
	meta.noMajority = false
	if err := b.give(1, a); err != nil {
		t.Fatal(err)
	}
	if g := b.mu.groups[r.ID]; g == nil || len(g.mu.shares) != 1 {
		t.Error("the share is not resumed")
	}
}

// TestGive_DoneMissingInOneCopy: a copy that was cut off has not heard that the group consumed the extent. Without a
// majority the share is not resumed: with that copy alone the whole extent would be delivered again.
func TestGive_DoneMissingInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	done := metadata.DoneKey(r.ID, core.ExtentID{ID: core.ID(a.Extent.Id)}, 0)
	if err := metadata.Write(t.Context(), b.meta, metadata.Dones, done, metadata.DoneRecord{}, time.Now(), 0, metadata.Quorum); err != nil {
		t.Fatal(err)
	}
	meta := b.copied(done)
	resumed := func() bool {
		g := b.mu.groups[r.ID]
		return g != nil && len(g.mu.shares) > 0
	}
	meta.noMajority = true
	if err := b.give(1, a); core.CodeOf(err) != core.CodeUnavailable || resumed() {
		t.Errorf("without a majority: %v, resumed: %t; want %s, so that the list comes again", err, resumed(), core.CodeUnavailable)
	}
	meta.noMajority = false
	if err := b.give(1, a); err != nil || resumed() {
		t.Errorf("with a majority, which knows that it is consumed: %v, resumed: %t", err, resumed())
	}
}

// TestGive_EpochOfBeforeInOneCopy: a list is of an epoch of its group that a copy has not heard of.
func TestGive_EpochOfBeforeInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	meta := b.copied()
	replace(b, meta, metadata.Groups, metadata.GroupKey(r.Queue, "g"), func(x *metadata.GroupRecord) { x.Epoch = 2 })
	a.Epoch = 2
	if err := b.give(1, a); err != nil {
		t.Error(err)
	}
}

// TestToken_GroupMissingInOneCopy: a message is acked by its token after a restart of the host, when a copy lacks its
// group.
func TestToken_GroupMissingInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, a := b.group()
	meta := b.copied(metadata.GroupKey(r.Queue, "g"))
	token := deliverytoken.Token{Queue: r.Queue, Group: r.ID, Extent: core.ExtentID{ID: core.ID(a.Extent.Id)}, Seq: 1, Attempt: 1}
	ack := func(when string, want core.Code) {
		t.Helper()
		if err := b.settleToken(t.Context(), &pb.SettleRequest{Verb: "ack"}, token.Seal(b.keys), map[core.ExtentID]bool{}); core.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", when, err, want)
		}
	}
	ack("the group is there", core.CodeMoved) // its share is not
	for _, g := range b.groupList() {
		b.unload(g)
	}
	meta.noMajority = true
	ack("there is no majority", core.CodeUnavailable)
	meta.noMajority = false
	token.Group.ID = core.NewID(time.Now())
	ack("another group", core.CodeStale)
}

// TestDepths_GroupMissingInOneCopy: the depths of a queue are those of all of its groups.
func TestDepths_GroupMissingInOneCopy(t *testing.T) {
	b := newHarness(t)
	r, _ := b.group()
	if err := metadata.Create(t.Context(), b.meta, metadata.Names, metadata.NameKey(r.Spec.Queue), metadata.NameRecord{Queue: r.Queue}); err != nil {
		t.Fatal(err)
	}
	b.copied(metadata.GroupKey(r.Queue, "g"))
	resp, err := (&service{b.Host}).depths(t.Context(), r.Spec.Queue, "")
	if err != nil || len(resp.Groups) != 1 {
		t.Errorf("%v, %v; want the depth of one group", resp, err)
	}
}
