package frontend

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// oneLacks is metadata of which a read at One finds no row of a table: the copy that answers does not have it yet.
type oneLacks struct {
	metadata.Store
	table metadata.Table
}

func (s oneLacks) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == s.table && c == metadata.One {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return s.Store.Get(ctx, t, k, c)
}

func (s oneLacks) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == s.table && c == metadata.One {
		return nil, false, nil
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// TestExtents_ThatOneCopyLacks: an extent that was made a moment ago is found.
func TestExtents_ThatOneCopyLacks(t *testing.T) {
	c := newHarness(t, oneLacks{memory.New(), metadata.Work})
	c.createQueue("/t/a")
	e := newExtent(c.createGroup("/t/a", "g"))
	c.addExtent(e)
	if got, err := call(t, c.admin.GetExtent, &pb.GetExtentRequest{Extent: e.ID.String()}); err != nil || got.Queue != "/t/a" {
		t.Errorf("got %v, %v, want an extent of /t/a", got, err)
	}
}

// TestDepth_RowsThatOneCopyLacks: a depth counts what a majority has.
func TestDepth_RowsThatOneCopyLacks(t *testing.T) {
	for _, table := range []metadata.Table{metadata.Extents, metadata.Dones, metadata.Seals, metadata.Checkpoints} {
		t.Run(table.Name, func(t *testing.T) {
			c := newHarness(t, oneLacks{memory.New(), table})
			c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) { return &pb.GetDepthResponse{}, nil }
			c.createQueue("/t/a")
			g := c.createGroup("/t/a", "g")
			open, done := newExtent(g), newExtent(g)
			c.addExtent(open)
			c.addExtent(done)
			if err := metadata.Create(t.Context(), c.store, metadata.Seals, metadata.SealKey(open.ID), metadata.SealRecord{Extent: open, State: core.ExtentSealed, L: 9}); err != nil {
				t.Fatal(err)
			}
			if err := metadata.Write(t.Context(), c.store, metadata.Dones, metadata.DoneKey(groupID(g), done.ID, 0), metadata.DoneRecord{L: 7}, time.Now(), 0, metadata.Quorum); err != nil {
				t.Fatal(err)
			}
			state := dispatch.StartAfter(1)
			key := metadata.CheckpointKey(groupID(g), open.ID, 0, core.RunID{})
			if err := c.store.Put(t.Context(), metadata.Checkpoints, key, state.Append(nil), time.Now(), 0, metadata.Quorum); err != nil {
				t.Fatal(err)
			}
			d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t)
			if d.Groups[0].Ready != 8 || d.Groups[0].Extents != 1 {
				t.Errorf("got %v, want 8 of one extent", d.Groups[0])
			}
			l := must(call(t, c.admin.ListExtents, &pb.ListExtentsRequest{Queue: "/t/a"}))(t)
			if len(l.Extents) != 2 || l.Extents[0].LastSeq != 9 && l.Extents[1].LastSeq != 9 {
				t.Errorf("listed %v, want two, one of them up to seq 9", l.Extents)
			}
		})
	}
}

// together is metadata whose reads at Serial wait until another one is under way.
type together struct {
	oneLacks
	meet chan struct{}
}

func (s together) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == metadata.Queues && c == metadata.Serial {
		select {
		case s.meet <- struct{}{}:
		case <-s.meet:
		case <-ctx.Done():
			return metadata.Row{}, core.Errorf(core.CodeUnavailable, "no other read was under way: %w", ctx.Err())
		}
	}
	return s.oneLacks.Get(ctx, t, k, c)
}

// TestListQueues_ThatOneCopyLacks: they are listed in order, and looked up side by side.
func TestListQueues_ThatOneCopyLacks(t *testing.T) {
	store := memory.New()
	c := newHarness(t, together{oneLacks{store, metadata.Queues}, make(chan struct{})})
	var want []string
	for i := range 6 {
		path := fmt.Sprint("/t/q", i)
		want = append(want, path)
		id := core.QueueID{ID: core.NewID(time.Now())}
		name := metadata.NameRecord{Queue: id, Spec: core.QueueSpec{Path: path}.WithDefaults(1, 1)}
		if err := metadata.Create(t.Context(), store, metadata.Names, metadata.NameKey(path), name); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // the others are half made
			if err := metadata.Create(t.Context(), store, metadata.Queues, metadata.QueueKey(id), name.Record()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for _, q := range must(call(t, c.admin.ListQueues, &pb.ListQueuesRequest{}))(t).Queues {
		got = append(got, q.Spec.Path)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}
