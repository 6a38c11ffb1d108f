package publish

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

func TestPublisher_LostConnectionSendsAgain(t *testing.T) {
	var cuts atomic.Int32
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		if cuts.Add(1) <= 3 {
			b.Store()
			b.Cut()
			return
		}
		b.Ack()
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	want := names(300)
	for _, s := range want {
		r.append(t, s, 0)
	}
	r.flush(t)
	r.wantAll(t, len(want))
	var first []string
	seen := map[string]bool{}
	for _, s := range h.Stored() {
		if !seen[s] {
			seen[s] = true
			first = append(first, s)
		}
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("first stored (-want +got):\n%s", diff)
	}
	if len(h.Stored()) <= len(want) {
		t.Errorf("stored %d, want duplicates beyond %d", len(h.Stored()), len(want))
	}
}

func TestPublisher_RefusedAfterLostIsUnknown(t *testing.T) {
	var n atomic.Int32
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		if n.Add(1) == 1 {
			b.Cut()
			return
		}
		b.Refuse(core.CodeDisabled)
	}})
	r := start(t, Config{}, h)
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unknown outcome", err)
	}
}

func TestPublisher_NeverSentIsUnavailable(t *testing.T) {
	r := start(t, Config{Timeout: 100 * time.Millisecond})
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestPublisher_FatalRefusalFailsAtOnce(t *testing.T) {
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		runs := []wire.AckRun{{First: b.First, Count: 1, Status: wire.AckRefused, Code: core.CodeTooLarge}}
		if b.Count > 1 {
			runs = append(runs, wire.AckRun{First: b.First + 1, Count: uint32(b.Count - 1), Extent: h.Extent, Base: 7})
		}
		b.Answer(runs...)
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("got %v, want too large", err)
	}
	if err := r.Append(limited(t), &wire.Record{Payload: make([]byte, 2<<20)}, 0, nil); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("append over the host's limit: %v, want too large", err)
	}
}

func TestPublisher_RetryableRefusalIsSentAgain(t *testing.T) {
	for _, code := range []core.Code{core.CodeUnavailable, core.CodeThrottled, core.CodeDraining, core.CodeFenced} {
		t.Run(string(code), func(t *testing.T) {
			var n atomic.Int32
			h := &publishtest.Host{}
			h.OnBatch = func(b *publishtest.Batch) {
				if n.Add(1) <= 2 {
					b.Refuse(code)
					return
				}
				b.Ack()
			}
			publishtest.Start(t, h)
			r := start(t, Config{}, h)
			want := names(50)
			for _, s := range want {
				r.append(t, s, 0)
			}
			r.flush(t)
			r.wantAll(t, len(want))
			got := h.Stored()
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublisher_PartlyRefusedBatchSendsTheRestAgain(t *testing.T) {
	h := &publishtest.Host{}
	var batches []int
	h.OnBatch = func(b *publishtest.Batch) {
		if batches = append(batches, b.Count); len(batches) > 1 {
			b.Ack()
			return
		}
		b.Answer( // the second and the fourth are refused, the last is lost
			wire.AckRun{First: 1, Count: 1, Extent: h.Extent, Base: 1000},
			wire.AckRun{First: 2, Count: 1, Status: wire.AckRefused, Code: core.CodeUnavailable},
			wire.AckRun{First: 3, Count: 1, Extent: h.Extent, Base: 1001},
			wire.AckRun{First: 4, Count: 1, Status: wire.AckRefused, Code: core.CodeUnavailable},
			wire.AckRun{First: 5, Count: uint32(b.Count - 5), Extent: h.Extent, Base: 1002},
			wire.AckRun{First: uint64(b.Count), Count: 1, Status: wire.AckUnknown, Code: core.CodeUnavailable})
	}
	publishtest.Start(t, h)
	gathered := make(chan struct{})
	r := start(t, Config{Route: func(context.Context) ([]Host, error) {
		<-gathered
		return []Host{{ID: "in0", Address: h.Addr()}}, nil
	}})
	want := names(400)
	for _, s := range want {
		r.append(t, s, 0)
	}
	close(gathered)
	r.flush(t)
	r.wantAll(t, len(want))
	if diff := cmp.Diff([]string{want[1], want[3], want[399]}, h.Stored()); diff != "" {
		t.Errorf("sent again (-want +got):\n%s", diff)
	}
	for i, seq := range map[int]core.Seq{0: 1000, 1: 1, 2: 1001, 3: 2, 4: 1002, 399: 3} {
		if r.at[want[i]].Seq != seq {
			t.Errorf("%s: seq %d, want %d", want[i], r.at[want[i]].Seq, seq)
		}
	}
}

func TestPublisher_DrainMovesOn(t *testing.T) {
	var held atomic.Pointer[publishtest.Batch]
	drained := &publishtest.Host{}
	drained.OnBatch = func(b *publishtest.Batch) {
		if held.CompareAndSwap(nil, b) {
			b.Drain()
			return
		}
		t.Error("a batch came after the drain")
	}
	publishtest.Start(t, drained)
	other := publishtest.Start(t, &publishtest.Host{})
	var routed atomic.Int32
	cfg := Config{}
	cfg.Route = func(context.Context) ([]Host, error) {
		hosts := []Host{{ID: "drained", Address: drained.Addr()}}
		if routed.Add(1) > 1 {
			hosts = append(hosts, Host{ID: "other", Address: other.Addr()})
		}
		return hosts, nil
	}
	r := start(t, cfg)
	r.append(t, "a", 0)
	eventually(t, func() bool { return held.Load() != nil })
	eventually(t, func() bool { r.Publisher.mu.Lock(); defer r.Publisher.mu.Unlock(); return r.Publisher.mu.active == nil })
	r.append(t, "b", 0)
	eventually(t, func() bool { return len(other.Stored()) == 1 })
	held.Load().AckAt(5)
	r.flush(t)
	r.wantAll(t, 2)
	if got := r.at["a"]; got != (core.Receipt{Extent: drained.Extent, Seq: 5}) {
		t.Errorf("a: receipt %v", got)
	}
}

func TestPublisher_HelloRefusedForGood(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnHello: func(*pb.PublishHello) error {
		return core.Errorf(core.CodeNotFound, "queue /t/q is not there; create it first")
	}})
	r := start(t, Config{}, h)
	if err := r.Connect(limited(t)); !errors.Is(err, core.ErrNotFound) {
		t.Errorf("connect: %v, want not found", err)
	}
	r.append(t, "a", 0)
	r.flush(t)
	if err := r.got["a"]; !errors.Is(err, core.ErrNotFound) {
		t.Errorf("publish: %v, want not found", err)
	}
}
