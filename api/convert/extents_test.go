package convert

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

func tuple() core.Extent {
	now := time.Now()
	return core.Extent{
		ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}, Kind: "log", Durability: "fsync",
		Input: "in-1", InputRun: core.RunID{ID: core.NewID(now)}, Token: core.WriterToken{ID: core.NewID(now)},
		Replicas: []core.HostID{"store-1", "store-2"}, Disks: []core.DiskID{{}, {ID: core.NewID(now)}}, Chain: 3, Horizon: core.HorizonMonth,
	}
}

func TestExtent_ThereAndBack(t *testing.T) {
	e := tuple()
	got, err := Extent(ExtentToProto(e))
	if d := cmp.Diff(e, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

// A tuple is kept for good, by the store and in every inventory: what no controller makes is refused.
func TestExtent_Refuses(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for what, spoil := range map[string]func(*core.Extent){
		"an id of zeros":          func(e *core.Extent) { e.ID = core.ExtentID{} },
		"a queue of zeros":        func(e *core.Extent) { e.Queue = core.QueueID{} },
		"a long input":            func(e *core.Extent) { e.Input = core.HostID(long) },
		"no input":                func(e *core.Extent) { e.Input = "" },
		"a long store":            func(e *core.Extent) { e.Replicas[1] = core.HostID(long) },
		"a long kind":             func(e *core.Extent) { e.Kind = core.ExtentKind(long) },
		"a long durability":       func(e *core.Extent) { e.Durability = core.Durability(long) },
		"a long horizon":          func(e *core.Extent) { e.Horizon = core.Horizon(long) },
		"no replicas":             func(e *core.Extent) { e.Replicas, e.Disks = nil, nil },
		"disks of other replicas": func(e *core.Extent) { e.Disks = e.Disks[:1] },
	} {
		e := tuple()
		spoil(&e)
		if _, err := Extent(ExtentToProto(e)); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
