package transfer

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/metadata"
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

// unaware is a group whose record is from before its retry queue was made.
type unaware struct{ *harness }

func (u unaware) Record() metadata.GroupRecord {
	r := u.harness.Record()
	r.Retry = core.QueueID{}
	return r
}

// before is a store that has a row as it was before in the copy that is read at One.
type before struct {
	metadata.Store
	row metadata.Row
}

func (s before) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if k == s.row.Key && c == metadata.One {
		return s.row, nil
	}
	return s.Store.Get(ctx, t, k, c)
}

// TestSearch_RetryQueueThatOneCopyLacks: an earlier owner made the retry queue and may have appended a retry to it.
func TestSearch_RetryQueueThatOneCopyLacks(t *testing.T) {
	b := newHarness(t)
	b.delayed = []*wire.Record{{}}
	key := metadata.GroupKey(b.record.Queue, b.record.Spec.Name)
	row, err := metadata.NewRow(metadata.Groups, key, unaware{b}.Record(), time.Time{})
	if err == nil {
		err = metadata.Create(t.Context(), b.mover.cfg.Meta, metadata.Groups, key, b.record)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.mover.cfg.Meta = before{b.mover.cfg.Meta, row}
	found := 0
	err = searchDelayed(t.Context(), b.mover, unaware{b}, []letter{{record: b.delayed[0]}}, func(*wire.Record) bool {
		found++
		return true
	})
	if err != nil || found != 1 {
		t.Errorf("%d records are found, %v; want the one", found, err)
	}
}
