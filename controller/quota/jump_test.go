package quota

import (
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
)

// TestLease_ClockJumpsWhileItIsMeasured: between what a host has told and its lease the clock is set ahead, or the
// controller stood still, for longer than what nobody asks for is kept.
func TestLease_ClockJumpsWhileItIsMeasured(t *testing.T) {
	r := newHarness(t)
	q := r.queue("/acme/q", 1000)
	now := r.now
	r.Keeper.now = func() time.Time {
		now = now.Add(forgetAfter + time.Second)
		return now
	}
	out := r.lease(run(1), &pb.LeaseQuotaRequest{Queues: []*pb.QueueFill{fillOf(q, 100)}})
	if len(out.Queues) != 1 || out.Queues[0].Room > 1000 {
		t.Errorf("leased %v", out.Queues)
	}
}
