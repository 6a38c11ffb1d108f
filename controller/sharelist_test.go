package controller

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
)

// TestCutList: a list goes up to its bound, and what does not fit is of the newest extents.
func TestCutList(t *testing.T) {
	list := func(n int) *pb.AssignmentList {
		out := &pb.AssignmentList{Queue: make([]byte, 16), Version: &pb.ListVersion{Counter: 1 << 60, Controller: "controller", Run: make([]byte, 16)}}
		for i := range n {
			id := core.NewID(time.UnixMilli(int64(n - i)))
			out.Assignments = append(out.Assignments, &pb.Assignment{Group: make([]byte, 16), Name: fmt.Sprint("group ", i), Extent: &pb.Extent{Id: id[:]}, Counter: uint64(i)})
		}
		return out
	}
	const many = 1000
	whole := proto.Size(list(many))
	if left := cutList(list(many), whole); left != 0 {
		t.Errorf("%d are left out of a list at its bound", left)
	}
	for limit := whole - 1; limit > 100; limit = limit * 2 / 3 {
		all := list(many)
		left := cutList(all, limit)
		if size := proto.Size(all); size > limit || size < limit-100 && left < many {
			t.Errorf("bound %d: a list of %d bytes", limit, size)
		}
		if left != many-len(all.Assignments) || left == 0 {
			t.Errorf("bound %d: %d left out, %d given", limit, left, len(all.Assignments))
		}
		for i, a := range all.Assignments { // they were made the newest first
			if a.Counter != uint64(left+i) {
				t.Fatalf("bound %d: %d is at %d", limit, a.Counter, i)
			}
		}
	}
}

// TestList_FullIsCut: an output host that owns more shares than a list holds gets those of the oldest extents, the
// others as it consumes them, and an alarm tells.
func TestList_FullIsCut(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: func(c *Config) { c.ListBytes = 5 << 10 }}, func(r *harness) {
		const many = 60
		queue := r.queue(1, 1)
		group := r.group(queue, "g")
		var all []core.Extent
		for range many {
			e, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
			r.ok(err)
			all = append(all, e)
			r.sleep(time.Millisecond) // ids are in the order of their milliseconds
		}
		r.sleep(10 * time.Second)
		o := r.outputs[0]
		fit := len(o.shares())
		if fit < 10 || fit >= many {
			t.Fatalf("%d of %d shares are given", fit, many)
		}
		for i, e := range all {
			if _, given := o.shares()[e.ID]; given != (i < fit) {
				t.Fatalf("share %d is given: %t, of %d", i, given, fit)
			}
		}
		if n, _ := r.ctl.shares.LeftOut(catalog.HostRun{}, core.QueueID{}, 0); n != many-fit {
			t.Errorf("%d are said to wait, want %d", n, many-fit)
		}
		for _, e := range all[:many-fit] {
			r.stores[0].write(e, "a")
			_, err := r.seal(e, 1)
			r.ok(err)
			r.done(group, e)
		}
		r.eventually("the others are given", time.Minute, func() bool {
			_, given := o.shares()[all[many-1].ID]
			return given && len(o.shares()) == fit
		})
		if n, _ := r.ctl.shares.LeftOut(catalog.HostRun{}, core.QueueID{}, 0); n != 0 {
			t.Errorf("%d are said to wait, want none", n)
		}
	})
}
