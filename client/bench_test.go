package client

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/columbamq/columba/internal/publish/publishtest"
)

// BenchmarkPublishAsync is the rate of 100-byte messages with a callback each, to a host that acknowledges at once
// without looking at them.
func BenchmarkPublishAsync(b *testing.B) {
	f := startFake(b, &fake{input: &publishtest.Host{Unchecked: true, OnBatch: func(b *publishtest.Batch) { b.AckAt(1) }}})
	ctx := context.Background()
	p, err := dial(b, f).Publisher(ctx, "/t/q")
	if err != nil {
		b.Fatal(err)
	}
	m := Message{Body: bytes.Repeat([]byte("x"), 100)}
	var failed atomic.Int64
	done := func(_ Receipt, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	b.SetBytes(100)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.PublishAsync(ctx, m, done); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil || failed.Load() > 0 {
		b.Fatalf("flush: %v, %d failed", err, failed.Load())
	}
	p.Close(ctx)
}

// TestPublishAsync_AllocatesNothing: a message needs no allocation of its own. A batch and its answer need some, for
// many messages together.
func TestPublishAsync_AllocatesNothing(t *testing.T) {
	f := startFake(t, &fake{input: &publishtest.Host{Unchecked: true, OnBatch: func(b *publishtest.Batch) { b.AckAt(1) }}})
	ctx := t.Context()
	p, err := dial(t, f).Publisher(ctx, "/t/q")
	if err != nil {
		t.Fatal(err)
	}
	m := Message{Body: bytes.Repeat([]byte("x"), 100)}
	done := func(Receipt, error) {}
	if n := testing.AllocsPerRun(100, func() {
		for range 100 {
			if err := p.PublishAsync(ctx, m, done); err != nil {
				t.Fatal(err)
			}
		}
	}); n > 50 {
		t.Errorf("100 messages cost %v allocations, want at most 50", n)
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// BenchmarkConsume is the rate of 100-byte messages acknowledged one by one.
func BenchmarkConsume(b *testing.B) {
	f := startFake(b, &fake{})
	f.flood = true
	ctx := context.Background()
	con, err := dial(b, f).Consumer(ctx, "/t/q", "g", Prefetch(5000))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(100)
	b.ReportAllocs()
	n := 0
	b.ResetTimer()
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Ack(); err != nil {
			b.Fatal(err)
		}
		if n++; n >= b.N {
			break
		}
	}
	b.StopTimer()
	con.Close(ctx)
}
