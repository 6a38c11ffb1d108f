package publish

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

// FuzzSession gives a publisher that waits for answers sequences of frames of its host. Then the connection ends: each
// of its records is told one outcome, within its time.
func FuzzSession(f *testing.F) {
	for _, frames := range answerSeeds(f) {
		f.Add(false, frames)
		f.Add(true, frames)
	}
	f.Fuzz(func(t *testing.T, ordered bool, frames []byte) {
		var sent atomic.Bool
		got := make(chan struct{}, 1)
		h := publishtest.Start(t, &publishtest.Host{
			Limits: &pb.PublishHelloOK{MaxMessage: 1 << 20, MaxBatch: 1 << 20, Window: 4 << 20, Ordered: ordered},
			OnBatch: func(b *publishtest.Batch) {
				if sent.Load() {
					b.Ack()
				}
				select {
				case got <- struct{}{}:
				default:
				}
			},
		})
		r := start(t, Config{Timeout: 300 * time.Millisecond}, h)
		for _, payload := range names(3) {
			r.append(t, payload, 0)
		}
		<-got
		r.Publisher.mu.Lock()
		s := r.Publisher.mu.active
		r.Publisher.mu.Unlock()
		over := func() bool {
			r.Publisher.mu.Lock()
			defer r.Publisher.mu.Unlock()
			return s == nil || s.over
		}
		for len(frames) >= 3 && !over() {
			n := min(int(binary.LittleEndian.Uint16(frames[1:])), len(frames)-3)
			s.HandleFrame(wire.Frame{Type: wire.FrameType(frames[0]), Body: frames[3 : 3+n]}, nil)
			frames = frames[3+n:]
		}
		sent.Store(true)
		h.Cut()
		r.flush(t)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.got) != 3 {
			t.Errorf("%d of 3 records have an outcome: %v", len(r.got), r.got)
		}
	})
}

// answerSeeds are sequences of frames: type, length u16, body.
func answerSeeds(f *testing.F) (seeds [][]byte) {
	frame := func(t wire.FrameType, body []byte) []byte {
		return append([]byte{byte(t), byte(len(body)), byte(len(body) >> 8)}, body...)
	}
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	ack := func(runs ...wire.AckRun) []byte {
		return frame(wire.TypePublishAck, (&wire.PublishAck{Runs: runs}).Append(nil))
	}
	extent := core.ExtentID{ID: core.NewID(time.Now())}
	route := &pb.Reconfigure{Version: math.MaxUint64, Hosts: []*pb.HostAddress{{Id: "x", Address: "x"}, {Id: "x"}, {}}}
	single := [][]byte{
		ack(wire.AckRun{First: 1, Count: 1, Extent: extent, Base: 1}), ack(wire.AckRun{First: 1, Count: 3, Extent: extent, Base: math.MaxUint64 - 3}),
		ack(wire.AckRun{First: 2, Count: math.MaxUint32, Status: wire.AckUnknown}), ack(wire.AckRun{First: 1, Count: 1, Status: wire.AckRefused, Code: core.CodeTooLarge}),
		ack(wire.AckRun{First: 1, Count: 2, Status: wire.AckRefused, Code: core.CodeThrottled}, wire.AckRun{First: 1, Count: 1, Extent: extent, Base: 1}),
		frame(wire.TypeThrottled, marshal(&pb.Throttled{RetryAfter: durationpb.New(math.MaxInt64)})), frame(wire.TypeThrottled, marshal(&pb.Throttled{RetryAfter: &durationpb.Duration{Seconds: math.MinInt64}})),
		frame(wire.TypeThrottled, marshal(&pb.Throttled{Reason: &pb.Error{Code: "throttled", Text: "x"}})),
		frame(wire.TypePublishHelloOK, marshal(&pb.PublishHelloOK{QueueId: "other", MaxMessage: -1, Window: math.MinInt64, Ordered: true})),
		frame(wire.TypePublishHelloOK, nil), frame(wire.TypeReconfigure, marshal(route)), frame(wire.TypeReconfigure, nil),
		frame(wire.TypeDrain, nil), frame(wire.TypeError, nil), frame(wire.TypeDeliver, nil),
	}
	for i, frames := range single {
		seeds = append(seeds, frames, append(append([]byte(nil), frames...), single[(i+1)%len(single)]...), append(append([]byte(nil), single[0]...), frames...))
	}
	return seeds
}
