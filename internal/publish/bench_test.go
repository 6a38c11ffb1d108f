package publish

import (
	"bytes"
	"context"
	"testing"

	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
)

// BenchmarkAppend is the rate of 100-byte messages to a host that acknowledges at once without looking at them.
func BenchmarkAppend(b *testing.B) {
	h := &publishtest.Host{Unchecked: true}
	h.OnBatch = func(b *publishtest.Batch) { b.AckAt(1) }
	publishtest.Start(b, h)
	r := start(b, Config{}, h)
	ctx := context.Background()
	if err := r.Connect(ctx); err != nil {
		b.Fatal(err)
	}
	record := wire.Record{Payload: bytes.Repeat([]byte("x"), 100)}
	b.SetBytes(100)
	b.ReportAllocs()
	for b.Loop() {
		v := record
		if err := r.Append(ctx, &v, 0, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Flush(ctx); err != nil {
		b.Fatal(err)
	}
}
