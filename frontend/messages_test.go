package frontend

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

func TestPublish_StoresInOrder(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	id := core.NewID(time.Now())
	res := must(call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{
		{Payload: []byte("one"), Key: "k", Headers: map[string]string{"h": "v"}, TraceParent: "00-trace"},
		{Payload: nil, Id: id.String()},
		{Payload: []byte{0, 255, '\n'}},
	}}))(t)
	for i, r := range res.Results {
		if want := fmt.Sprintf("%s:%d", c.input.Extent, i+1); r.Error != nil || r.Receipt != want || len(r.Id) != 36 {
			t.Errorf("message %d: got %v, want receipt %s", i, r, want)
		}
	}
	if res.Results[1].Id != id.String() {
		t.Errorf("message 1 has id %s, want the given %s", res.Results[1].Id, id)
	}
	if got := c.input.Stored(); len(got) != 3 || got[0] != "one" || got[1] != "" || got[2] != "\x00\xff\n" {
		t.Errorf("stored %q", got)
	}
}

func TestPublish_KeepsItsTimes(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	at := time.UnixMilli(1_700_000_000_123)
	for name, x := range map[string]struct {
		m    *pb.Message
		want [3]int64 // deliver at, delay, expire at
	}{
		"none":       {&pb.Message{}, [3]int64{}},
		"expire at":  {&pb.Message{ExpireAt: timestamppb.New(at)}, [3]int64{0, 0, at.UnixMilli()}},
		"deliver at": {&pb.Message{DeliverAt: timestamppb.New(at.Add(-time.Microsecond))}, [3]int64{at.UnixMilli(), 0, 0}},
		"no delay":   {&pb.Message{Delay: durationpb.New(0)}, [3]int64{}},
		"delay":      {&pb.Message{Delay: durationpb.New(time.Minute + 1)}, [3]int64{0, 60_001, 0}},
		"a year":     {&pb.Message{Delay: durationpb.New(core.MaxAhead)}, [3]int64{0, core.MaxAhead.Milliseconds(), 0}},
	} {
		stored := make(chan wire.Record, 1)
		c.input.OnBatch = func(b *publishtest.Batch) {
			var r wire.Record
			if _, err := wire.DecodeRecord(b.Records, &r); err != nil {
				t.Error(err)
			}
			stored <- r
			b.Ack()
		}
		must(call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{x.m}}))(t)
		if r := <-stored; [3]int64{r.DeliverAt, r.Delay, r.ExpireAt} != x.want {
			t.Errorf("%s: stored with deliver_at %d, delay %d, expire_at %d", name, r.DeliverAt, r.Delay, r.ExpireAt)
		}
	}
}

func TestPublish_SharesOnePublisherPerQueue(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{{}}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := c.input.Hellos(); got != 1 {
		t.Errorf("%d sessions for one queue, want 1", got)
	}
	if got := len(c.input.Stored()); got != 20 {
		t.Errorf("stored %d messages, want 20", got)
	}
}

func TestPublish_RefusesBeforeAnythingIsStored(t *testing.T) {
	c := newHarness(t, nil)
	must(call(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", MaxMessage: 10}}))(t)
	c.createGroup("/t/a", "g")
	for name, x := range map[string]struct {
		m    *pb.Message
		code core.Code
	}{
		"too large":     {&pb.Message{Payload: make([]byte, 11)}, core.CodeTooLarge},
		"long key":      {&pb.Message{Key: strings.Repeat("k", 129)}, core.CodeTooLarge},
		"headers":       {&pb.Message{Headers: map[string]string{"h": strings.Repeat("v", 70000)}}, core.CodeTooLarge},
		"id":            {&pb.Message{Id: "x"}, core.CodeBadID},
		"zero id":       {&pb.Message{Id: core.ID{}.String()}, core.CodeBadID},
		"long delay":    {&pb.Message{Delay: durationpb.New(core.MaxAhead + 1)}, core.CodeBadArgument},
		"back delay":    {&pb.Message{Delay: durationpb.New(-1)}, core.CodeBadArgument},
		"far off":       {&pb.Message{DeliverAt: timestamppb.New(time.Now().Add(core.MaxAhead + time.Hour))}, core.CodeBadArgument},
		"deliver at":    {&pb.Message{DeliverAt: &timestamppb.Timestamp{}}, core.CodeBadArgument},
		"two times":     {&pb.Message{DeliverAt: timestamppb.Now(), Delay: durationpb.New(time.Second)}, core.CodeBadArgument},
		"expire at":     {&pb.Message{ExpireAt: &timestamppb.Timestamp{}}, core.CodeBadArgument},
		"expire late":   {&pb.Message{ExpireAt: timestamppb.New(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC))}, core.CodeBadArgument},
		"expire due":    {&pb.Message{Delay: durationpb.New(time.Hour), ExpireAt: timestamppb.New(time.Now().Add(time.Minute))}, core.CodeBadArgument},
		"expire at due": {&pb.Message{DeliverAt: timestamppb.New(time.Now().Add(time.Hour)), ExpireAt: timestamppb.New(time.Now().Add(time.Minute))}, core.CodeBadArgument},
		"traceparent":   {&pb.Message{TraceParent: strings.Repeat("t", 70000)}, core.CodeTooLarge},
	} {
		_, err := call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{{}, x.m}})
		wantCode(t, name, err, x.code)
		if err != nil && !strings.Contains(err.Error(), "message 2 of 2") {
			t.Errorf("%s: %q does not say which message", name, err)
		}
	}
	for name, x := range map[string]struct {
		req  *pb.PublishRequest
		code core.Code
	}{
		"none":     {&pb.PublishRequest{Queue: "/t/a"}, core.CodeBadArgument},
		"1001":     {&pb.PublishRequest{Queue: "/t/a", Messages: make([]*pb.Message, 1001)}, core.CodeBadArgument},
		"no queue": {&pb.PublishRequest{Queue: "/t/none", Messages: []*pb.Message{{}}}, core.CodeNotFound},
		"dlq":      {&pb.PublishRequest{Queue: "/t/a/g.dlq", Messages: []*pb.Message{{}}}, core.CodeUnsupported},
	} {
		_, err := call(t, c.msgs.Publish, x.req)
		wantCode(t, name, err, x.code)
	}
	if got := c.input.Stored(); len(got) > 0 {
		t.Errorf("stored %q", got)
	}
}

func TestPublish_NoAnswerIsUnknown(t *testing.T) {
	c := newHarness(t, nil, func(cfg *Config) { cfg.CallTimeout = 2 * time.Second }) // it is sent within that
	c.createQueue("/t/a")
	c.input.OnBatch = func(*publishtest.Batch) {}
	res := must(call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{{}}}))(t)
	if got := core.Code(res.Results[0].GetError().GetCode()); got != core.CodeUnknown {
		t.Errorf("got %v, want an unknown outcome", res.Results[0])
	}
}

func TestPublish_RefusedForGood(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.input.OnHello = func(*pb.PublishHello) error { return core.Errorf(core.CodeDisabled, "not any more") }
	res := must(call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{{}}}))(t)
	if got := core.Code(res.Results[0].GetError().GetCode()); got != core.CodeDisabled {
		t.Errorf("got %v, want disabled", res.Results[0])
	}
}

func TestRequests_AreBounded(t *testing.T) {
	c := newHarness(t, nil, func(cfg *Config) { cfg.MaxRequest = 64 << 10 })
	c.createQueue("/t/a")
	_, err := call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{{Payload: bytes.Repeat([]byte("x"), 100<<10)}}})
	wantCode(t, "100 KiB", err, core.CodeTooLarge)
}

func TestPublish_AllPublishersInUse(t *testing.T) {
	c := newHarness(t, nil, func(cfg *Config) { cfg.MaxPublishers = 2 })
	for range 2 {
		if _, err := c.host.svc.publishers.Take(metadata.QueueRecord{ID: core.QueueID{ID: core.NewID(time.Now())}}); err != nil {
			t.Fatal(err)
		}
	}
	c.createQueue("/t/more")
	_, err := call(t, c.msgs.Publish, &pb.PublishRequest{Queue: "/t/more", Messages: []*pb.Message{{}}})
	wantCode(t, "publish while all publishers are in use", err, core.CodeThrottled)
}
