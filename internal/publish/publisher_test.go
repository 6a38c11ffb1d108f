package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

func TestPublisher_OrderAndReceipts(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{})
	r := start(t, Config{}, h)
	want := names(2000)
	for _, s := range want {
		r.append(t, s, 0)
	}
	r.flush(t)
	r.wantAll(t, len(want))
	if diff := cmp.Diff(want, h.Stored()); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	for i, s := range want {
		if got, want := r.at[s], (core.Receipt{Extent: h.Extent, Seq: core.Seq(i + 1)}); got != want {
			t.Fatalf("%s: receipt %v, want %v", s, got, want)
		}
	}
	if err := r.Close(limited(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := r.Append(limited(t), &wire.Record{}, 0, nil); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("append after close: %v", err)
	}
}

func TestPublisher_AnswersOutOfOrderAndSplit(t *testing.T) {
	h := &publishtest.Host{}
	h.OnBatch = func(b *publishtest.Batch) {
		base := b.Store()
		var runs []wire.AckRun
		for i := range b.Count {
			runs = append(runs, wire.AckRun{First: b.First + uint64(i), Count: 1, Extent: h.Extent, Base: base + core.Seq(i)})
		}
		slices.Reverse(runs)
		b.Answer(runs[:len(runs)/2]...)
		b.Answer(runs[len(runs)/2:]...)
	}
	publishtest.Start(t, h)
	r := start(t, Config{}, h)
	want := names(500)
	for _, s := range want {
		r.append(t, s, 0)
	}
	r.flush(t)
	r.wantAll(t, len(want))
	for i, s := range want {
		if r.at[s].Seq != core.Seq(i+1) {
			t.Fatalf("%s: seq %d, want %d", s, r.at[s].Seq, i+1)
		}
	}
}

// TestPublisher_ToldOnceForAll has a host answer for many records at once: whoever wants to know that owners were told
// does so after all of them, once for what came together.
func TestPublisher_ToldOnceForAll(t *testing.T) {
	var r *harness
	var pieces []int // outcomes until then
	all := make(chan struct{})
	h := &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		<-all
		b.Ack()
	}}
	r = start(t, Config{Told: func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		pieces = append(pieces, len(r.got))
	}}, publishtest.Start(t, h))
	const most = 500
	for _, s := range names(most) {
		r.append(t, s, 0)
	}
	close(all)
	if err := r.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(pieces); n == 0 || n > most/10 || pieces[n-1] != most {
		t.Errorf("owners of %d records were told in these pieces: %v", most, pieces)
	}
	if len(slices.Compact(slices.Clone(pieces))) < len(pieces) {
		t.Errorf("nobody was told anything between two pieces: %v", pieces)
	}
}

// A host that stores and then loses the connection before it answers: everything is sent again, in order.
// A try that was lost makes a later definite refusal unknown too: the first may have stored the message.
// A draining host gets its answers in; new records go to the other one.
func TestPublisher_FullWaitsForRoom(t *testing.T) {
	var held atomic.Pointer[publishtest.Batch]
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		if !held.CompareAndSwap(nil, b) {
			b.Ack()
		}
	}})
	r := start(t, Config{MaxRecords: 1}, h)
	r.append(t, "a", 0)
	eventually(t, func() bool { return held.Load() != nil })
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		r.append(t, "b", 0)
	}()
	eventually(t, func() bool { r.Publisher.mu.Lock(); defer r.Publisher.mu.Unlock(); return r.Publisher.mu.room != nil })
	select {
	case <-waited:
		t.Error("a full publisher took a record")
	default:
	}
	held.Load().AckAt(9)
	<-waited
	r.flush(t)
	r.wantAll(t, 2)
}

// An owner that appends the record again when it failed finds its room, also in a full publisher.
func TestPublisher_OwnerAppendsAgain(t *testing.T) {
	var n atomic.Int32
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
		if n.Add(1) <= 5 {
			b.Refuse(core.CodeTooLarge)
			return
		}
		b.Ack()
	}})
	r := start(t, Config{MaxRecords: 1}, h)
	stored := make(chan struct{})
	var again func(core.MessageID, core.Receipt, error)
	again = func(_ core.MessageID, _ core.Receipt, err error) {
		if err == nil {
			close(stored)
			return
		}
		if err := r.Append(limited(t), &wire.Record{}, 0, DoneFunc(again)); err != nil {
			t.Error(err)
			close(stored)
		}
	}
	if err := r.Append(limited(t), &wire.Record{}, 0, DoneFunc(again)); err != nil {
		t.Fatal(err)
	}
	<-stored
}

func TestPublisher_FullEndsWithContext(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(*publishtest.Batch) {}})
	r := start(t, Config{MaxRecords: 1}, h)
	r.append(t, "a", 0)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	err := r.Append(ctx, &wire.Record{}, 0, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("append to a full publisher: %v", err)
	}
}

func TestPublisher_CloseWithoutAnswers(t *testing.T) {
	h := publishtest.Start(t, &publishtest.Host{OnBatch: func(*publishtest.Batch) {}})
	r := start(t, Config{}, h)
	r.append(t, "a", 0)
	eventually(t, func() bool {
		r.Publisher.mu.Lock()
		defer r.Publisher.mu.Unlock()
		return r.Publisher.mu.current == nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); err == nil {
		t.Error("close with records under way succeeded")
	}
	if err := r.got["a"]; !errors.Is(err, core.ErrUnknownOutcome) {
		t.Errorf("got %v, want unknown outcome", err)
	}
}

func TestPublisher_ManyProducersThroughCuts(t *testing.T) {
	h := &publishtest.Host{}
	var n atomic.Int32
	h.OnBatch = func(b *publishtest.Batch) {
		switch k := n.Add(1); {
		case k%37 == 0:
			b.Store()
			b.Cut()
		case k%11 == 0:
			b.Refuse(core.CodeUnavailable)
		default:
			b.Ack()
		}
	}
	publishtest.Start(t, h)
	r := start(t, Config{MaxRecords: 200}, h)
	var wg sync.WaitGroup
	const producers, each = 4, 500
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				r.append(t, fmt.Sprintf("%d-%d", p, i), 0)
			}
		})
	}
	wg.Wait()
	r.flush(t)
	r.wantAll(t, producers*each)
	stored := map[string]bool{}
	for _, s := range h.Stored() {
		stored[s] = true
	}
	if len(stored) != producers*each {
		t.Errorf("stored %d different messages, want %d", len(stored), producers*each)
	}
}
