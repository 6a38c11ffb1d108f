package storehost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestReadersOfAnExtentAreBounded(t *testing.T) {
	var r readers
	one, other := core.ExtentID{ID: core.NewID(time.Now())}, core.ExtentID{ID: core.NewID(time.Now())}
	for range maxReaders {
		if err := r.enter(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.enter(one); core.CodeOf(err) != core.CodeThrottled {
		t.Errorf("a reader too many: %v, want %s", err, core.CodeThrottled)
	}
	if err := r.enter(other); err != nil {
		t.Errorf("a reader of another extent: %v", err)
	}
	r.leave(one)
	if err := r.enter(one); err != nil {
		t.Errorf("a reader in the place of one that left: %v", err)
	}
	for range maxReaders {
		r.leave(one)
	}
	r.leave(other)
	if n := len(r.byExtent); n != 0 {
		t.Errorf("%d extents without readers are kept", n)
	}
}
