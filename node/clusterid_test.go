package node

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// TestCluster_HostsBelieveTheirOwnMetadataOnly stops the controller of a cluster. Neither a new one nor one of another
// cluster takes its place, and the hosts are whole again when it is back.
func TestCluster_HostsBelieveTheirOwnMetadataOnly(t *testing.T) {
	cfg := clusterConfig(t, "controller,frontend")
	ctl := serveMember(t, cfg)
	id := ctl.own.cluster.ID()
	inputCfg := clusterConfig(t, RoleInput, ctl.at.Gossip)
	input := serveMember(t, inputCfg)
	store := serveMember(t, clusterConfig(t, RoleStore, ctl.at.Gossip))
	waitUntil(t, "the store has met its cluster", func() bool { return store.own.cluster.ID() == id })
	if id.IsZero() || input.own.cluster.ID() != id {
		t.Fatalf("the input host is of cluster %s, the controller of %s", input.own.cluster.ID(), id)
	}
	if err := input.own.meta.Insert(t.Context(), probes, probe("a"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := ctl.end(); err != nil {
		t.Fatal(err)
	}
	gone := func() bool { return len(input.own.members.Hosts(membership.RoleMetadata)) == 0 }
	waitUntil(t, "known to be away", gone)

	t.Run("an empty directory begins no cluster here", func(t *testing.T) {
		begun := begin(t, clusterConfig(t, "controller,frontend", input.at.Gossip))
		wantCode(t, "a controller without metadata", receive(t, "its end", begun.ended), core.CodeConflict, "if that cluster's metadata are in Cassandra, start this one with its --metadata")
	})
	t.Run("another cluster's is not asked", func(t *testing.T) {
		otherCfg := clusterConfig(t, "controller,frontend")
		other := serveMember(t, otherCfg)
		if err := other.end(); err != nil {
			t.Fatal(err)
		}
		otherCfg.Join = []string{input.at.Gossip}
		other = serveMember(t, otherCfg)
		waitUntil(t, "the other cluster is seen", func() bool { return len(input.own.gossip.Foreign()) > 0 })
		if !gone() {
			t.Error("the other cluster's metadata are taken for this one's")
		}
		_, err := input.own.peers.Controller(other.at.Addr).EnsureExtent(t.Context(), connect.NewRequest(&pb.EnsureExtentRequest{Queue: make([]byte, 16)}))
		wantCode(t, "a call to the other controller", convert.FromRPC(err), core.CodeUnavailable, "the caller is of another one")
		_, err = input.own.peers.Link(t.Context(), other.at.Addr, "/v1/publish")
		wantCode(t, "a link to it", err, core.CodeUnavailable, "503")
		_, err = other.own.peers.Store(store.at.Addr).Describe(t.Context(), connect.NewRequest(&pb.DescribeRequest{}))
		wantCode(t, "its call to a store", convert.FromRPC(err), core.CodeUnavailable, "the caller is of another one")
		if n := strings.Count(store.log.String(), "a host of another cluster called"); n != 1 {
			t.Errorf("the store's log tells %d times of the other cluster, want once a minute", n)
		}
	})
	if err := input.end(); err != nil {
		t.Fatal(err)
	}
	inputCfg.Join = []string{store.at.Gossip} // a host that starts again keeps to its cluster
	input = begin(t, inputCfg)
	input.own = receive(t, "open resources", input.res)
	cfg.Join = []string{store.at.Gossip}
	serveMember(t, cfg)
	receive(t, "ready", input.ready)
	if _, err := input.own.meta.Get(t.Context(), probes, probe("a"), metadata.Serial); err != nil {
		t.Errorf("the row of before: %v", err)
	}
}

// TestCluster_StoreTakesNothingBeforeItMetItsCluster: what a store takes from one cluster would be out of reach when it
// became a member of another.
func TestCluster_StoreTakesNothingBeforeItMetItsCluster(t *testing.T) {
	ctl := serveMember(t, clusterConfig(t, "controller,frontend"))
	cfg := clusterConfig(t, RoleStore)
	cfg.Stores = 2
	store := serveMember(t, cfg)
	for _, addr := range []string{store.at.Addr, store.own.stores[0].self.Address} {
		_, err := ctl.own.peers.Store(addr).Describe(t.Context(), connect.NewRequest(&pb.DescribeRequest{}))
		wantCode(t, "a call to a store without a cluster", convert.FromRPC(err), core.CodeUnavailable, "has not met the metadata of its cluster yet")
	}
}

// TestNode_RefusesOtherMetadata: a directory that belongs to a cluster is not served with the metadata of another, or
// with new ones.
func TestNode_RefusesOtherMetadata(t *testing.T) {
	dir, err := openDataDir(t.Context(), testConfig(t).Data, someTime, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, two := core.NewID(someTime), core.NewID(someTime)
	if err := dir.join(one); err != nil {
		t.Fatal(err)
	}
	if err := dir.join(one); err != nil {
		t.Errorf("the same cluster again: %v", err)
	}
	wantCode(t, "another cluster", dir.join(two), core.CodeConflict, "belongs to cluster "+one.String())
	if err := dir.close(); err != nil {
		t.Fatal(err)
	}
	if dir, err = openDataDir(t.Context(), dir.path, someTime, nil); err != nil {
		t.Fatal(err)
	}
	if got := dir.cluster(); got != one {
		t.Errorf("after a restart the directory belongs to %s, want %s", got, one)
	}
	if err := dir.close(); err != nil {
		t.Fatal(err)
	}
}
