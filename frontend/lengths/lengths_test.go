package lengths

import (
	"context"
	"slices"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// seekers are stores of which each answers the same seq to any seek; those that are none have nothing.
type seekers map[core.HostID]core.Seq

func (s seekers) Find(id core.HostID) (membership.Host, bool) { return membership.Host{ID: id}, true }

func (s seekers) Replica(context.Context, membership.Host, time.Duration, *pb.GetReplicaRequest) (*pb.Replica, error) {
	return nil, core.Errorf(core.CodeUnavailable, "nobody was to be asked")
}

func (s seekers) Seek(_ context.Context, h membership.Host, _ time.Duration, _ *pb.SeekRequest) (*pb.SeekResponse, error) {
	if seq, ok := s[h.ID]; ok {
		return &pb.SeekResponse{Seq: uint64(seq)}, nil
	}
	return nil, core.Errorf(core.CodeNotFound, "no such extent")
}

// TestGauge_SinceCountsWhatIsReadable: of an extent of ten messages, of which some were given up.
func TestGauge_SinceCountsWhatIsReadable(t *testing.T) {
	for name, c := range map[string]struct {
		lostFrom core.Seq
		holders  []core.HostID
		stores   seekers
		want     core.Seq
	}{
		"whole":                         {0, []core.HostID{"a", "b"}, seekers{"a": 8, "b": 8}, 3},
		"whole, and no holder tells":    {0, []core.HostID{"a"}, seekers{"b": 8}, 0},
		"what is left is older":         {7, []core.HostID{"a", "b"}, seekers{"a": 7, "b": 7}, 0},
		"some of what is left is older": {7, []core.HostID{"a", "b"}, seekers{"a": 5, "b": 5}, 2},
		"a copy of more":                {7, []core.HostID{"a"}, seekers{"a": 9}, 0},
		"its holder has lost it":        {7, []core.HostID{"a"}, seekers{"b": 6}, 1},
		"nothing is left":               {1, []core.HostID{"a"}, seekers{"b": 1}, 0},
	} {
		l := &Length{Last: 10, Known: true, Extent: core.Extent{Replicas: []core.HostID{"a", "b"}}}
		l.Seal = metadata.SealRecord{State: core.ExtentSealed, L: 10, LostFrom: c.lostFrom, Holders: c.holders}
		if got := (Gauge{Stores: c.stores}).Since(t.Context(), l, time.Now()); got != c.want {
			t.Errorf("%s: %d since then, want %d", name, got, c.want)
		}
	}
}

func TestLength_Readers(t *testing.T) {
	l := &Length{Extent: core.Extent{Replicas: []core.HostID{"a", "b"}}}
	for _, step := range []struct {
		row  metadata.SealRecord
		want []core.HostID
	}{
		{metadata.SealRecord{}, l.Replicas},
		{metadata.SealRecord{State: core.ExtentSealed, Holders: []core.HostID{"b", "c"}}, []core.HostID{"b", "c"}},
		{metadata.SealRecord{State: core.ExtentSealed, Holders: []core.HostID{"b", "c"}, LostFrom: 3}, []core.HostID{"b", "c", "a"}},
	} {
		if l.Seal = step.row; !slices.Equal(l.Readers(), step.want) {
			t.Errorf("%+v: read from %v, want %v", step.row, l.Readers(), step.want)
		}
	}
}
