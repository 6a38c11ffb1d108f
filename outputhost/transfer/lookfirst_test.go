package transfer

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

// TestMover_LookUpWaitsForNoPublisher looks for a message at once while others wait for room at the publisher of the
// queue: else the look-up would have the rest of their time, and fail.
func TestMover_LookUpWaitsForNoPublisher(t *testing.T) {
	b := newHarness(t)
	answer := make(chan struct{})
	b.host.OnBatch = func(x *publishtest.Batch) {
		<-answer
		x.Ack()
	}
	b.looking = make(chan struct{})
	large, err := wire.AppendRecord(nil, &wire.Record{ID: core.MessageID{ID: core.NewID(now)}, Payload: make([]byte, 1<<20-1024)})
	if err != nil {
		t.Fatal(err)
	}
	var some []dispatch.Transfer
	for i := range core.Seq(40) { // more bytes than a publisher takes
		x := b.message(dispatch.RetryQueue, 1+i, false)
		x.Record = large
		some = append(some, x)
	}
	some = append(some, b.message(dispatch.RetryQueue, 41, true))
	b.mover.Begin(b, time.Now(), some)
	select {
	case <-b.looking:
	case <-time.After(5 * time.Second):
		t.Error("no look-up began")
		close(answer)
		<-b.looking
		<-b.looking
		return
	}
	<-b.looking
	close(answer)
}
