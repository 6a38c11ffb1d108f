package controller

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/metadata/faulty"
)

// TestMinority_AnOutputHostThatLostItsSharesMayNotGoOn: it stood still, and may find a list of before in its socket
// when it goes on. Such a list begins a lease.
func TestMinority_AnOutputHostThatLostItsSharesMayNotGoOn(t *testing.T) {
	apart(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness, meta *faulty.Replicas) {
		e, owner := r.shareOfMinority(meta)
		first := owner()
		still := r.outputs[0]
		for _, o := range r.outputs {
			if o.id == first {
				still = o
			}
		}
		keeps := func(o *fakeOutput) bool {
			resp, err := (&service{r.ctl.Host}).RenewShares(r.t.Context(), connect.NewRequest(&pb.RenewSharesRequest{Owner: string(o.id), Run: o.run.ID[:]}))
			r.ok(err)
			return resp.Msg.Minority
		}
		if !keeps(still) {
			t.Error("the owner may not go on")
		}
		still.mu.Lock()
		still.silent, still.hung = true, make(chan struct{})
		late := still.minority[e.Queue]
		still.mu.Unlock()
		r.eventually("the other one has it", 10*time.Second, func() bool { return owner() != first && owner() != "" })
		r.sleep(10 * time.Second)
		still.mu.Lock()
		still.silent, still.hung = false, nil
		still.minority[e.Queue] = late
		still.mu.Unlock()
		if keeps(still) {
			t.Error("the owner of before may go on with the share")
		}
		r.eventually("it is told that it has nothing", 2*time.Second, func() bool { return r.sharesIn(e.ID, true) == 1 })
	})
}
