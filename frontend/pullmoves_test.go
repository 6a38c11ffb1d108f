package frontend

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// TestPull_FindsANewOwner has a pull wait at one of three output hosts. Meanwhile another host gets an extent that has
// a message.
func TestPull_FindsANewOwner(t *testing.T) {
	for name, x := range map[string]struct{ owns, moves bool }{
		"of the first extent": {false, false}, "of the next extent": {true, false}, "of an extent that moves": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newHarness(t, nil)
			c.createQueue("/t/a")
			g := c.createGroup("/t/a", "g")
			outs := map[core.HostID]*fakeOutput{"a": c.out, "b": c.addOutput("b"), "c": c.addOutput("c")}
			ranked := c.host.svc.ranked(roleOutput, groupID(g).ID)
			first, other := ranked[0].ID, ranked[1].ID // without an extent a pull asks the first
			e := newExtent(g)
			if x.owns {
				c.assign(g, e, 1, first)
			}
			var asked atomic.Int32
			waits := make(chan struct{}, 100)
			for _, out := range outs {
				out.onPull = func(ctx context.Context, r *pb.PullRequest) (*pb.PullResponse, error) {
					asked.Add(1)
					waits <- struct{}{}
					select {
					case <-time.After(r.GetWait().AsDuration()):
					case <-ctx.Done():
					}
					return none(ctx, r)
				}
			}
			outs[other].onPull = one
			began := time.Now()
			got := make(chan int, 1)
			go func() {
				res, err := call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(5 * time.Second)})
				if err != nil {
					t.Error(err)
				}
				got <- len(res.GetMessages())
			}()
			select {
			case <-waits:
			case n := <-got:
				t.Fatalf("the pull ended with %d messages, and asked nobody", n)
			}
			if x.moves {
				c.assign(g, e, 2, other)
			} else {
				c.assign(g, newExtent(g), 1, other)
			}
			if n := <-got; n != 1 {
				t.Errorf("the pull got %d messages, want that of host %s", n, other)
			}
			took := time.Since(began)
			if n, most := int(asked.Load()), 2+2*int(took/turn); n > most { // a round without a wait comes first when there are two owners
				t.Errorf("the pull asked host %s %d times in %s, want at most %d", first, n, took, most)
			}
		})
	}
}
