package core_test

import (
	"testing"

	"github.com/columbamq/columba/core"
)

func TestExtent_Equal(t *testing.T) {
	base := func() core.Extent {
		return core.Extent{
			ID: core.ExtentID{ID: core.ID{1}}, Queue: core.QueueID{ID: core.ID{2}}, Kind: core.KindLog, Durability: core.DurabilityFsync,
			Input: "in", InputRun: core.RunID{ID: core.ID{3}}, Token: core.WriterToken{ID: core.ID{4}}, Replicas: []core.HostID{"a", "b"},
		}
	}
	if !base().Equal(base()) {
		t.Error("an extent differs from itself")
	}
	for name, change := range map[string]func(*core.Extent){
		"id":         func(e *core.Extent) { e.ID = core.ExtentID{} },
		"queue":      func(e *core.Extent) { e.Queue = core.QueueID{} },
		"kind":       func(e *core.Extent) { e.Kind = core.KindTimer },
		"durability": func(e *core.Extent) { e.Durability = core.DurabilityWritten },
		"input":      func(e *core.Extent) { e.Input = "other" },
		"run":        func(e *core.Extent) { e.InputRun = core.RunID{} },
		"token":      func(e *core.Extent) { e.Token = core.WriterToken{} },
		"replicas":   func(e *core.Extent) { e.Replicas = []core.HostID{"b", "a"} },
		"disks":      func(e *core.Extent) { e.Disks = make([]core.DiskID, 2) },
		"horizon":    func(e *core.Extent) { e.Horizon = core.HorizonDay },
	} {
		e := base()
		change(&e)
		if e.Equal(base()) || base().Equal(e) {
			t.Errorf("another %s is the same extent", name)
		}
	}
}

func TestExtent_Disk(t *testing.T) {
	e := core.Extent{Replicas: []core.HostID{"a", "b"}}
	if got := e.Disk("a"); !got.IsZero() {
		t.Errorf("disk of a in a tuple without disks: %s", got)
	}
	e.Disks = []core.DiskID{{}, {ID: core.ID{7}}}
	for store, want := range map[core.HostID]core.DiskID{"a": {}, "b": {ID: core.ID{7}}, "c": {}} {
		if got := e.Disk(store); got != want {
			t.Errorf("disk of %s: got %s, want %s", store, got, want)
		}
	}
}

func TestExtentState_HasEnd(t *testing.T) {
	for state, want := range map[core.ExtentState]bool{
		core.ExtentOpen: false, core.ExtentSealing: false, core.ExtentSealed: true, core.ExtentRetiring: true, core.ExtentRetired: true, "": false,
	} {
		if state.HasEnd() != want {
			t.Errorf("%q: got %v, want %v", state, state.HasEnd(), want)
		}
	}
}
