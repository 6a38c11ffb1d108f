package inspect

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// TestLookUp_RetiredExtentWithoutStores: a look-up ends although no store of a retired extent is there.
func TestLookUp_RetiredExtentWithoutStores(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"}}
	h.sealed(metadata.SealRecord{Extent: e, State: core.ExtentRetired, L: 5, Holders: e.Replicas})
	left, ended := lookBytes, make(chan error, 1)
	go func() {
		more, err := New(Config{}, h).eachSinceIn(t.Context(), e, time.Time{}, &left, func(*wire.Record) bool { return true })
		if err == nil && !more {
			err = core.Errorf(core.CodeInternal, "the look-up stops at the extent")
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the look-up does not end")
	}
}
