package outputhost

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// BenchmarkAssign_ChangeOfOneShare is what a change of one share costs an output host that has 50,000 shares in 1,000
// queues.
func BenchmarkAssign_ChangeOfOneShare(b *testing.B) {
	x := newHarness(b)
	var all []*pb.Assignment
	for range 1000 {
		_, first := x.group()
		for range 50 {
			a := proto.CloneOf(first)
			id := core.NewID(time.Now())
			a.Extent.Id = id[:]
			all = append(all, a)
		}
	}
	if err := x.give(1, all...); err != nil {
		b.Fatal(err)
	}
	some := all[:50]
	version := uint64(1)
	for b.Loop() {
		version++
		some[0].Holders = []string{"other"}
		x.send(list("controller", version, queueOf(some[0]), some...))
	}
}
