package outputhost

import (
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
	members, err := static.New(membership.Host{ID: "out", Roles: []string{"outputhost"}, Address: "out:1", Run: core.RunID{ID: core.NewID(time.Now())}})
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
		meta.Close()
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

// give makes the shares those of the list.
func (b *harness) give(version uint64, list ...*pb.Assignment) error {
	run := b.deps.Members.Self().Run
	return b.assign(b.t.Context(), &pb.AssignmentList{Version: version, Run: run.ID[:], Assignments: list})
}

func (b *harness) loaded() int { return len(b.groupList()) }
