package publish

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
)

// TestPublisher_QueueMadeAgain loses an answer of a queue that another one has replaced when the publisher is back:
// what may be in the old one is not stored in the new one.
func TestPublisher_QueueMadeAgain(t *testing.T) {
	var hellos atomic.Int32
	h := &publishtest.Host{}
	h.OnHello = func(*pb.PublishHello) error {
		limits := proto.CloneOf(h.Limits)
		limits.QueueId = []string{"first", "second"}[min(hellos.Add(1), 2)-1]
		h.Limits = limits
		return nil
	}
	h.OnBatch = func(b *publishtest.Batch) {
		if hellos.Load() == 1 {
			b.Cut()
			return
		}
		b.Ack()
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	r.append(t, "old", 0)
	r.flush(t)
	if err := r.got["old"]; !errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("what may be in the old queue: %v, want unknown", err)
	}
	r.append(t, "new", 0)
	r.flush(t)
	if err := r.got["new"]; err != nil {
		t.Errorf("what is for the new queue: %v", err)
	}
	if got := h.Stored(); !slices.Equal(got, []string{"new"}) {
		t.Errorf("the new queue has %q", got)
	}
}

// TestPublisher_ThrottledSaysWhyAndWhen gives up on a message whose turn does not come in time.
func TestPublisher_ThrottledSaysWhyAndWhen(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		b.Explain(&core.Error{Code: core.CodeThrottled, Text: "too much of it"})
		b.Throttle(time.Hour)
		b.Refuse(core.CodeThrottled)
	}})
	r := start(t, Config{Timeout: 100 * time.Millisecond}, h)
	r.append(t, "a", 0)
	r.flush(t)
	var why *core.Error
	if err := r.got["a"]; !errors.As(err, &why) || why.Code != core.CodeThrottled || why.RetryAfter != time.Hour || !strings.Contains(err.Error(), "too much of it") {
		t.Errorf("got %v, want why and for how long", err)
	}
}
