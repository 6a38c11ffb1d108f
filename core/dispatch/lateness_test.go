package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

// TestTake_TellsWhenEachWasDue: messages that were published together, for different times, go out as one run, which
// tells the time of each.
func TestTake_TellsWhenEachWasDue(t *testing.T) {
	g := NewGroup(core.GroupSpec{LockTimeout: time.Minute, MaxDeliveries: 3})
	s := g.AddTimers(core.ExtentID{}, State{}, start)
	times, want := map[core.Seq]timerTimes{}, []int64{}
	for seq := core.Seq(1); seq <= 3; seq++ {
		due := start.Add(-time.Duration(4-seq) * time.Second).Truncate(time.Millisecond)
		times[seq] = timerTimes{enqueued: start.Add(-time.Minute), due: due}
		want = append(want, due.UnixMicro())
	}
	if err := s.OfferDue(dueRecords(times, nil, 1, 2, 3), start); err != nil {
		t.Fatal(err)
	}
	runs := g.Take(1, Credit{Messages: 10, Bytes: 1 << 20}, start, nil)
	if len(runs) != 1 || runs[0].Count != 3 {
		t.Fatalf("it hands out %+v, want one run", runs)
	}
	if diff := cmp.Diff(want, runs[0].Due); diff != "" {
		t.Errorf("when they were due (-want +got):\n%s", diff)
	}
}
