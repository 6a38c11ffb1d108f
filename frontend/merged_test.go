package frontend

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// countedSeals counts the seals that are looked up together.
type countedSeals struct {
	metadata.Store
	keys atomic.Int64
}

func (s *countedSeals) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	if t == metadata.Seals {
		s.keys.Add(int64(len(keys)))
	}
	return metadata.GetRows(ctx, s.Store, t, keys, c)
}

// letter makes a sealed extent of a group's dead letter queue.
func (c *harness) letter(g *pb.Group, age time.Duration, merged bool) core.Extent {
	c.t.Helper()
	_, r, err := c.host.svc.group(c.t.Context(), g.Spec.Queue, g.Spec.Name)
	if err != nil {
		c.t.Fatal(err)
	}
	e := newExtent(g)
	e.Queue, e.ID.ID = r.DLQ, core.NewID(time.Now().Add(-age))
	c.addExtent(e)
	seal := metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 1, Bytes: 1, Holders: []core.HostID{"a"}}
	if merged {
		seal.Home = core.MergedInto(r.Queue, r.ID)
	}
	if err := metadata.Create(c.t.Context(), c.store, metadata.Seals, metadata.SealKey(e.ID), seal); err != nil {
		c.t.Fatal(err)
	}
	return e
}

// TestWhyStuck_ReadsNoDeadLetters: nothing of a dead letter queue was merged into its group.
func TestWhyStuck_ReadsNoDeadLetters(t *testing.T) {
	s := &countedSeals{Store: memory.New()}
	c := newHarness(t, s)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	c.out.onStuck = func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
		return &pb.WhyStuckResponse{Reason: "nothing_waits"}, nil
	}
	for i := range 5 {
		c.letter(g, time.Duration(i)*time.Minute, false)
	}
	s.keys.Store(0)
	must(call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}))(t)
	if n := s.keys.Load(); n != 0 {
		t.Errorf("%d seals of dead letters were looked up", n)
	}
}

// TestWhyStuck_OfMerged: dead letters wait in their group, without an owner, and then with one that is silent.
func TestWhyStuck_OfMerged(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	b := c.addOutput("b")
	merged := c.letter(g, time.Hour, true)
	o := metadata.OperationRecord{Object: merged.Queue, Kind: metadata.OperationMerge, State: metadata.OperationRunning}
	if err := metadata.Create(t.Context(), c.store, metadata.Operations, metadata.OperationKey(o.Object.ID), o); err != nil {
		t.Fatal(err)
	}
	of := map[core.HostID]core.Extent{"a": newExtent(g), "b": newExtent(g)}
	for owner, e := range of {
		c.addExtent(e)
		c.assign(g, e, 1, owner)
	}
	c.out.onStuck = stands(core.Receipt{Extent: of["a"].ID, Seq: 1}, time.Minute)
	b.onStuck = func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) {
		return nil, core.Errorf(core.CodeUnavailable, "down")
	}
	why := func(reason string) {
		t.Helper()
		if w := must(call(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}))(t); w.Reason != reason || w.Extents != 3 {
			t.Errorf("it is %v, want %s in 3 extents", w, reason)
		}
	}
	why("no_owner")
	c.assign(g, merged, 1, "b")
	why("owner_unreachable")
}
