package outputhost

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is an output host without a network: it knows groups and shares, and reaches no store.
type harness struct {
	*Host
	t    testing.TB
	meta metadata.Store
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	meta := memory.New()
	t.Cleanup(func() { meta.Close() })
	return harnessOn(t, meta, "out")
}

// harnessOn is a host on metadata that others may use, too.
func harnessOn(t testing.TB, meta metadata.Store, id core.HostID) *harness {
	t.Helper()
	members, err := static.New(membership.Host{ID: id, Roles: []string{"outputhost"}, Address: string(id) + ":1", Run: core.RunID{ID: core.NewID(time.Now())}})
	if err != nil {
		t.Fatal(err)
	}
	peers := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler)})
	h, err := New(DefaultConfig(), Deps{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Meta: meta, Peers: peers, Members: members})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		peers.Close()
	})
	return &harness{h, t, meta}
}

// group makes a group of a queue of its own, and the share of an extent.
func (b *harness) group() (metadata.GroupRecord, *pb.Assignment) {
	b.t.Helper()
	id := core.NewID(time.Now())
	queue := core.QueueID{ID: core.NewID(time.Now())}
	spec := core.GroupSpec{Queue: "/t/" + id.String(), Name: "g"}.WithDefaults()
	r := metadata.GroupRecord{ID: core.GroupID{ID: id}, Queue: queue, Spec: spec, Started: true}
	b.write(metadata.Groups, metadata.GroupKey(queue, "g"), r)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: core.KindLog, Durability: core.DurabilityFsync, Input: "in", Replicas: []core.HostID{"store"}}
	return r, &pb.Assignment{Group: id[:], Name: "g", Extent: convert.ExtentToProto(e), Counter: 1, By: "controller"}
}

func (b *harness) write(table metadata.Table, key metadata.Key, record any) {
	b.t.Helper()
	var err error
	switch r := record.(type) {
	case metadata.GroupRecord:
		err = metadata.Create(b.t.Context(), b.meta, table, key, r)
	case metadata.SealRecord:
		err = metadata.Create(b.t.Context(), b.meta, table, key, r)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// give makes the shares those of the list: a list for each queue of them, and an empty one for every other that was
// given before.
func (b *harness) give(version uint64, list ...*pb.Assignment) error {
	return b.giveIn(b.t.Context(), version, list...)
}

func (b *harness) giveIn(ctx context.Context, version uint64, list ...*pb.Assignment) error {
	run := b.deps.Members.Self().Run
	req := &pb.AssignRequest{Run: run.ID[:]}
	lists := make(map[core.QueueID]*pb.AssignmentList)
	add := func(queue core.QueueID, some ...*pb.Assignment) {
		if lists[queue] == nil {
			lists[queue] = &pb.AssignmentList{Queue: queue.ID[:], Version: versionBy("controller", version)}
			req.Lists = append(req.Lists, lists[queue])
		}
		lists[queue].Assignments = append(lists[queue].Assignments, some...)
	}
	for _, a := range list {
		add(core.QueueID{ID: core.ID(a.Extent.Queue)}, a)
	}
	for queue := range b.versions() {
		add(queue)
	}
	resp, err := b.assign(ctx, req)
	for _, a := range resp.GetLists() {
		err = errors.Join(err, convert.ErrorFromProto(a.Failed))
	}
	return err
}

func versionBy(controller string, counter uint64) *pb.ListVersion {
	return convert.ListVersionToProto(core.ListVersion{Counter: counter, Controller: core.HostID(controller), Run: core.RunID{ID: core.ID{15: 1}}})
}

func (b *harness) loaded() int { return len(b.groupList()) }
